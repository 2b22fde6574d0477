"""The embedded API server: storage, watch, patches, and simulated nodes that run what is bound to them."""
