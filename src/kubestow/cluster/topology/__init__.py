"""Pods counted per node and topology domain, and the affinity terms that placed pods carry."""
