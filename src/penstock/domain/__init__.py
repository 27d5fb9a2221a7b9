"""The nouns and their rules: pure data, no input or output."""
