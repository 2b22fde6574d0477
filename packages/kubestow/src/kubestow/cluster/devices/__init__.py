"""Allocated devices (dynamic resource allocation)."""
