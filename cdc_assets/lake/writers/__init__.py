"""How staged changes get into a table, by its kind."""
