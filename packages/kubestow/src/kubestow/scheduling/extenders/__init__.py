"""Extenders in the scheduling cycle: the interface to them, and the stages at which they are called (semantics 5.5)."""
