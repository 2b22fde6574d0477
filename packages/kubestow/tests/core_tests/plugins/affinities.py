"""Builders of pod affinity and anti-affinity."""

from __future__ import annotations

from typing import Any

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

Object = dict[str, Any]


def term(app: str | Object | None, key: str = ZONE, **more: Any) -> Object:
    """A term for pods with a value of the label ``app``, or with a label selector."""
    selector = {"matchLabels": {"app": app}} if isinstance(app, str) else app
    return {"labelSelector": selector, "topologyKey": key, **more}


def required_affinity(*terms: Object) -> Object:
    """Required affinity."""
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def required_anti_affinity(*terms: Object) -> Object:
    """Required anti-affinity."""
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def preferred_affinity(*terms: Object, weight: int = 10) -> Object:
    """Preferred affinity."""
    return {"podAffinity": _preferred(terms, weight)}


def preferred_anti_affinity(*terms: Object, weight: int = 10) -> Object:
    """Preferred anti-affinity."""
    return {"podAntiAffinity": _preferred(terms, weight)}


def _preferred(terms: tuple[Object, ...], weight: int) -> Object:
    weighted = [{"weight": weight, "podAffinityTerm": term} for term in terms]
    return {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
