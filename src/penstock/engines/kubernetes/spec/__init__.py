"""The objects of a run: its Job, its pods, its Secret and its code."""
