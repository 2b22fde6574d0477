"""The scheduler: queue, scheduling cycle, binding cycle and event handlers.

A backend (a real API server, a cluster in memory) implements the interfaces in :mod:`.interfaces`. In docstrings and
comments, "semantics N.N" refers to a section of docs/semantics.md.
"""
