"""The kernel's filter of system calls that keeps a job from making user namespaces, as a program for it.

In a user namespace a job would have every capability over what it makes there, and reach far more of the kernel.
Bubblewrap can forbid that by itself only where it makes such a namespace for the job; not for root's own work.
"""

from __future__ import annotations

import errno
import os
import struct

CLONE_NEWUSER = 0x10000000
CLONE3 = 435
X32 = 0x40000000
"""A bit in the number that says how the arguments are passed, and nothing else."""
CALLS = {
    "x86_64": [(0xC000003E, 56, 272), (0x40000003, 120, 310)],
    "aarch64": [(0xC00000B7, 220, 97), (0x40000028, 120, 337)],
    "riscv64": [(0xC00000F3, 220, 97)],
    "ppc64le": [(0xC0000015, 120, 282)],
}
"""For each kind of program that such a machine runs: how the kernel calls it, and its numbers of clone and unshare."""
LOAD, AND, EQUAL, BITS, RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
NUMBER, KIND, FIRST_ARGUMENT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def no_user_namespaces() -> bytes:
    """Empty on a machine whose system calls we do not know. What clone3 is asked for cannot be seen by a filter: it is
    said not to be there, and every C library then takes clone."""
    kinds = CALLS.get(os.uname().machine)
    if kinds is None:
        return b""
    program = [(LOAD, 0, 0, KIND)]
    for kind, clone, unshare in kinds:
        program += [
            (EQUAL, 0, 10, kind),
            (LOAD, 0, 0, NUMBER),
            (AND, 0, 0, ~X32 & 0xFFFFFFFF),
            (EQUAL, 6, 0, CLONE3),
            (EQUAL, 1, 0, clone),
            (EQUAL, 0, 2, unshare),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (BITS, 1, 0, CLONE_NEWUSER),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, REFUSE | errno.EPERM),
            (RETURN, 0, 0, REFUSE | errno.ENOSYS),
        ]
    program.append((RETURN, 0, 0, REFUSE | errno.ENOSYS))
    return b"".join(struct.pack("=HBBI", *step) for step in program)
