"""The handlers of resource requests, one module per verb; each takes a :class:`RequestScope` and returns a response.

``subresources`` handles binding, eviction, scale, logs and connections of pods; ``reviews`` the review kinds, which
are evaluated on create and never stored.
"""
