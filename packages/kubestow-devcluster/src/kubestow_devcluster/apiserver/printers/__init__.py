"""Printers: the columns of each kind and the cells of one object, as ``kubectl get`` shows them.

``table`` holds the printers with the formats that they share, and makes those of custom resources from their
``additionalPrinterColumns``; the other modules are the printers of built-in kinds. Printers work on plain objects; the
response encoder makes Tables of them.
"""

from kubestow_devcluster.apiserver.printers import core, workloads
from kubestow_devcluster.apiserver.printers.table import DEFAULT, PRINTERS

__all__ = ["DEFAULT", "PRINTERS", "core", "workloads"]
