"""NodeResourcesFit and NodeResourcesBalancedAllocation (semantics 8.8, 8.9)."""
