"""Admission: what mutates and validates objects on their way into the store, one module per plugin.

``chain`` calls the plugins in kube-apiserver's order: those that mutate before the strategy validates an object, those
that only validate after it.
"""

from kubestow_devcluster.apiserver.registry.admission.chain import Admission

__all__ = ["Admission"]
