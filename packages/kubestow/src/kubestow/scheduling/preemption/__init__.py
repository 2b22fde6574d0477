"""Preemption after the decision: victims are evicted in the background, and nominations kept until they are gone."""
