"""The published devices: resource slices, pools, attributes and CEL selectors (semantics 8.16)."""
