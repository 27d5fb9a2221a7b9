"""Bring what is wanted and what is together."""
