"""A simulated scheduler with claims and volumes in its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.testing import PluginHarness


def plugin_harness(
    *objects: Any,
    gates: Mapping[str, bool] | None = None,
    profile: Mapping[str, Any] | None = None,
    minor: Minor = DEFAULT_MINOR,
) -> PluginHarness:
    """A scheduler whose cluster has these objects, of any kind."""
    made = PluginHarness(
        [obj for obj in objects if isinstance(obj, Node)],
        gates=gates,
        profile=profile,
        minor=minor,
    )
    put(made, *(obj for obj in objects if not isinstance(obj, Node)))
    return made


def put(made: PluginHarness, *objects: Any) -> None:
    """Add or update objects other than nodes; pods last."""
    for obj in objects:
        if not isinstance(obj, Pod | Node):
            made.cluster.catalog(type(obj)).put(obj)
    for obj in objects:
        if isinstance(obj, Pod):
            made.cluster.put_pod(made.info(obj))
