"""How pages write times."""
