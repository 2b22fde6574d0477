"""Controllers of nodes and the pods on them: node lifecycle, taint eviction, pod garbage collector."""
