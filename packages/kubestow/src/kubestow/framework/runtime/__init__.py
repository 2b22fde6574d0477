"""The runtime: it calls the plugins of a profile, checks what they return, and turns their failures into data."""
