"""Do slow work in a child process, so that the supervisor keeps watching.

The child holds none of our descriptors but the one it is given: no lock and no end of a pipe lives on in it when we are
killed. What it does can be done again, or is of no use without us.
"""

from __future__ import annotations

import os

from penstock.engines.shared.files import complain

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it costs 12 ms
    from collections.abc import Callable

SAYS = 3
"""Where the child finds the descriptor it was given."""


def apart(work: Callable[[], None], says: int = -1) -> int:
    """The child's process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if says >= 0:
            os.dup2(says, SAYS, inheritable=False)
        os.closerange(SAYS + (says >= 0), 1 << 20)
        work()
        code = 0
    except OSError as error:
        complain(error)
    finally:
        os._exit(code)
