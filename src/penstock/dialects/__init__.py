"""Text to nouns and back: one folder or file per way of writing. Every problem has its line and column."""
