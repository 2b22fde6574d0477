"""Who owns which field of an object (``metadata.managedFields``), and server-side apply.

``parts`` says how objects divide into fields, ``fieldsets`` computes sets of them, ``managers`` keeps the entries.
"""

from kubestow.devcluster.apiserver.field_management.managed_fields import Manager, apply, record_update

__all__ = ["Manager", "apply", "record_update"]
