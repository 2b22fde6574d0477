"""The commands that only read a live cluster: a short explanation, a snapshot, a recording."""
