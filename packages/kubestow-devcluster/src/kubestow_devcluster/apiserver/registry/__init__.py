"""The registry: create, update and delete of objects of any kind, and the rules that every write passes.

``registry`` runs a write through the kind's strategy, ``admission`` and managed fields, writes the result to the store
and serves the kinds of CustomResourceDefinitions. ``deletion`` decides how an object is deleted.
"""
