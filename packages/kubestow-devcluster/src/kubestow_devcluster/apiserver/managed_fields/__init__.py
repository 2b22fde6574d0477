"""Managed fields: which manager owns which field of an object (``metadata.managedFields``).

``managers`` computes the sets of fields that a write sets and updates the entries. ``server_side_apply`` is the patch
type that is based on them; the others are rules of the core (:mod:`kubestow.rules.patches`).
"""
