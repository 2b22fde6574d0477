"""The served kinds: one module per family, the table of all of them in :mod:`catalog`."""

from kubestow.devcluster.apiserver.resources.catalog import KINDS, Catalog
from kubestow.devcluster.apiserver.resources.kind import Kind, Object, Strategy

__all__ = ["KINDS", "Catalog", "Kind", "Object", "Strategy"]
