"""The served kinds: one module per family, the table of all of them in :mod:`catalog`."""

from kubestow.apiserver.resources.catalog import KINDS, Catalog
from kubestow.apiserver.resources.kind import Kind, Object, Strategy

__all__ = ["KINDS", "Catalog", "Kind", "Object", "Strategy"]
