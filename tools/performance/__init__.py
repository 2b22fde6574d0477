"""The performance of this version beside that of others: the guard of a change, and the history on main."""
