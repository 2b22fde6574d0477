"""The four patch types, one module each: JSON patch, JSON merge patch, strategic merge patch and server-side apply.

Each is a function from an object and a patch to a new object. Inputs are not modified; outputs can share parts with
them. The patch handler reads the body, calls one of them and writes the result. ``managed_fields`` records which
manager owns which field of an object; server-side apply is based on it.
"""
