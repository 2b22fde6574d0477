"""Dynamic resource allocation: pools of devices, and the search for devices that satisfy claims (semantics 8.16)."""
