"""The records: what was asked, by whom, and what became of it. The only SQL is here."""
