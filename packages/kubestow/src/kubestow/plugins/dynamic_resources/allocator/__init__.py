"""The device allocator: a depth-first search for devices that satisfy a pod's claims (semantics 8.16)."""
