"""Bring the store, which says what is wanted, and the engine, which has what is, together."""
