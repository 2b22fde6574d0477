"""Managed fields: which manager owns which field of an object (``metadata.managedFields``).

``field_paths`` divides objects into fields, ``fieldsets`` computes the sets of fields that a write sets, and
``managers`` updates the entries. Server-side apply, which is based on them, is one of the :mod:`patches`.
"""
