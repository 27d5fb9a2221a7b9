"""How a database made by an older version becomes one of ours. A released migration is never edited."""
