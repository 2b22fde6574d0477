"""Validation of a complete configuration: its fields, plugin arguments and node affinities (semantics 2.1 to 2.6)."""
