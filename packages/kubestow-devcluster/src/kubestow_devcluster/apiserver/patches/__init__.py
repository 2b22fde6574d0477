"""Server-side apply, and the managed fields that it is based on: which manager owns which field of an object.

The other patch types are rules of the core (:mod:`kubestow.rules.patches`).
"""
