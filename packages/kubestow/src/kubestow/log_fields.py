"""Key-value pairs of log records, and their verbosity, for code of every layer.

The keys are kube-scheduler's: ``pod`` ("namespace/name"), ``node``, ``plugin``, ``extensionPoint``, ``event``, ``err``.
:mod:`kubestow.observability.logs` has the formats that print them.
"""

from __future__ import annotations

import logging
from typing import Any

FIELDS = "kubestow_fields"
"""The attribute of a record with its pairs."""

MAX_VERBOSITY = 4
"""From this verbosity on, everything is logged."""


def V(verbosity: int) -> int:  # noqa: N802 - klog's name
    """The logging level of messages that are logged from this verbosity on."""
    return logging.INFO - verbosity if verbosity < MAX_VERBOSITY else logging.DEBUG


def fields(**pairs: Any) -> dict[str, Any]:
    """Key-value pairs of a record; pass them to a logging call as ``extra``."""
    return {FIELDS: pairs}
