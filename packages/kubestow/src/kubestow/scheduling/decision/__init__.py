"""The decision which node a pod gets: filter, sample, score and select (semantics 5.2 to 5.7)."""
