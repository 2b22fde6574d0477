"""DefaultPreemption: finds victims whose eviction makes a pod or a pod group schedulable (semantics 9)."""
