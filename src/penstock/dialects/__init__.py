"""Parse and write text: one folder per way of writing. Every problem has its line and column."""
