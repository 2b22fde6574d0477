"""The schemas of objects: their fields, the types and zero values of these, and how patches merge lists.

``type_table`` reads the built-in types, ``types`` decodes values by them, and ``structural`` does the same for the
OpenAPI schema of a custom resource, applies its defaults and validates against it. ``descriptors`` makes protobuf
messages of the built-in types.
"""
