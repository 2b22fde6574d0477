"""The scheduling queue: activeQ, backoffQ, unschedulable pods, gating, in-flight events and queueing hints (semantics 6)."""
