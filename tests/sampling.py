"""How much of a long matrix a run takes: a part that differs from run to run, or with PENSTOCK_KILLS=300 all of it.

`python -m tests` says which `PENSTOCK_SEED` chooses the same part again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

KILLS = int(os.environ.get("PENSTOCK_KILLS", "60"))
WHOLE = KILLS >= 300
SEED = os.environ.get("PENSTOCK_SEED", "0")

Item = TypeVar("Item")


def sample(matrix: Sequence[Item], most: int) -> list[Item]:
    """Return so many of the items, in their order; all of them where the run is to be long."""
    if WHOLE or most >= len(matrix):
        return list(matrix)
    chosen = random.Random(f"{SEED} {matrix}").sample(range(len(matrix)), most)
    return [matrix[index] for index in sorted(chosen)]
