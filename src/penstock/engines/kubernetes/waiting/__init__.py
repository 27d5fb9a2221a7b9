"""Why a run does not start, and what is done about it."""
