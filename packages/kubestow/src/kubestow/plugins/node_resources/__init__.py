"""NodeResourcesFit and NodeResourcesBalancedAllocation: requested and allocatable amounts (semantics 8.8, 8.9)."""
