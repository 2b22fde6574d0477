"""PodTopologySpread: spreads matching pods evenly over topology domains (semantics 8.14)."""
