"""Texts of documents: apply, delete, compare and export."""
