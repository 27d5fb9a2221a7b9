"""Schedule for engines that do not schedule themselves: values in, decisions and reasons out.

Nodes, what runs and what waits are told to a `Pool`; it says what starts where, and why the rest does not. No clock and
no randomness: `now` is a value, and the same state gives the same placement.
"""
