"""InterPodAffinity: required and preferred affinity and anti-affinity between pods (semantics 8.15)."""
