"""Extenders in the scheduling cycle: the port to them, and the stages at which they are called (semantics 5.5)."""
