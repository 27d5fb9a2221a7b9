"""Where and when work runs, for engines that do not schedule: values in, decisions and sentences out.

Nodes, what runs and what waits are told to a `Pool`; it says what starts where, and why the rest does not. No clock and
no randomness: `now` is a value, and the same state gives the same placement.
"""

from penstock.domain.scheduling.asks import Ask, Held, Job, Place, ask_of
from penstock.domain.scheduling.causes import Cause
from penstock.domain.scheduling.explaining import Answer, Explanation
from penstock.domain.scheduling.obstacles import Obstacle
from penstock.domain.scheduling.pool import Pool

__all__ = ["Answer", "Ask", "Cause", "Explanation", "Held", "Job", "Obstacle", "Place", "Pool", "ask_of"]
