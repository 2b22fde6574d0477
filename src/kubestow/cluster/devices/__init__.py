"""Devices in use: the allocations of resource claims (dynamic resource allocation)."""
