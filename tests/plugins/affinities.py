"""Pod affinity and anti-affinity in a line each."""

from __future__ import annotations

from typing import Any

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

Object = dict[str, Any]


def term(app: str | Object | None, key: str = ZONE, **more: Any) -> Object:
    """Pods with a value of the label ``app``, or with whatever selector is given."""
    selector = {"matchLabels": {"app": app}} if isinstance(app, str) else app
    return {"labelSelector": selector, "topologyKey": key, **more}


def near(*terms: Object) -> Object:
    """Required affinity."""
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms: Object) -> Object:
    """Required anti-affinity."""
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def rather_near(*terms: Object, weight: int = 10) -> Object:
    """Preferred affinity."""
    return {"podAffinity": _preferred(terms, weight)}


def rather_apart(*terms: Object, weight: int = 10) -> Object:
    """Preferred anti-affinity."""
    return {"podAntiAffinity": _preferred(terms, weight)}


def _preferred(terms: tuple[Object, ...], weight: int) -> Object:
    weighted = [{"weight": weight, "podAffinityTerm": term} for term in terms]
    return {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
