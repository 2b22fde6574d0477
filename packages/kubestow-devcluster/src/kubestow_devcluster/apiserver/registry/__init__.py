"""The registry: create, update and delete of objects of any kind, and the rules that every write passes.

``registry`` runs a write through the kind's strategy, ``admission`` and managed fields. ``object_storage`` encodes the
result and writes it to the store. ``deletion`` decides how an object is deleted, and ``custom_resources`` serves the
kinds of CustomResourceDefinitions.
"""
