"""The scheduling queue: activeQ, backoffQ, unschedulable and gated pods, in-flight events, hints (semantics 6)."""
