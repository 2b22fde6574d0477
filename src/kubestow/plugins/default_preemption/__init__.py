"""DefaultPreemption: finds victims whose removal makes a pod or pod group schedulable (semantics 9)."""
