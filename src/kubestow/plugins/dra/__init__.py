"""Dynamic resource allocation: pools of devices, and the search for devices that satisfy claims (reference 8.16)."""
