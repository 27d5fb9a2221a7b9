"""Migrations of older databases. A released migration is never edited."""
