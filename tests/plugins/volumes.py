"""Worlds with claims and volumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.testing import World

__all__ = ["REFUSED", "put", "world"]

REFUSED = "node(s) didn't find available persistent volumes to bind"


def world(*objects: Any, gates: Mapping[str, bool] | None = None, profile: Mapping[str, Any] | None = None) -> World:
    """A world with these objects in it, whatever their kinds."""
    made = World(
        [obj for obj in objects if isinstance(obj, Node)],
        gates=gates,
        profile=profile,
    )
    put(made, *(obj for obj in objects if not isinstance(obj, Node)))
    return made


def put(made: World, *objects: Any) -> None:
    """Have objects be there, new or changed: everything else before the pods."""
    for obj in objects:
        if not isinstance(obj, Pod | Node):
            made.cluster.catalog(type(obj)).put(obj)
    for obj in objects:
        if isinstance(obj, Pod):
            made.cluster.put_pod(made.info(obj))
