"""Pods counted per node and per topology domain, and the affinity terms that placed pods carry."""
