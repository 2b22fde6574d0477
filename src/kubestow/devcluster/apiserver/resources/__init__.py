"""The served kinds: one module per family, the table of all of them in :mod:`catalog`."""

from kubestow.devcluster.apiserver.resources.catalog import KINDS, Scheme
from kubestow.devcluster.apiserver.resources.kind import Kind, Object, Strategy

__all__ = ["KINDS", "Kind", "Object", "Scheme", "Strategy"]
