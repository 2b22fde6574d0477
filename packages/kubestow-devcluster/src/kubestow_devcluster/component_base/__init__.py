"""What controllers and simulated kubelets share: watch loops, typed reading of stored objects, events, node health."""
