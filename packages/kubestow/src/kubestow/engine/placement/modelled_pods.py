"""Which pods a model of placements can describe, and how nodes pass filters before any pod is placed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import POD_BITS
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.profile import Profile
from kubestow.plugins.node_resources.fit import NodeResourcesFit

Mask = NDArray[np.bool_]

P = TypeVar("P", bound=FilterPlugin)


def why_not_modelled(profile: Profile, pod: PodInfo, *, with_gang: bool = False, with_claims: bool = False) -> str:
    """Why a pod cannot be part of a problem, empty if it can. Raises PluginError.

    Pods of a gang, and pods with devices, cannot, except in a problem that is about the gang as a whole
    (``with_gang``), or about pods with resource claims (``with_claims``).
    """
    if pod.shape.spec.volumes:
        return "has volumes"
    if not with_gang and profile.gangs.gang_of(pod) is not None:
        return "is in a gang"
    if filter_plugin(profile, NodeResourcesFit) is None:
        return f"is of profile {profile.scheduler_name}, which does not filter by resources"
    if with_gang:
        return ""
    if pod.spec.resource_claims and not with_claims:
        return "has resource claims"
    return "requests devices" if requests_devices(profile, pod) else ""


def requests_devices(profile: Profile, pod: PodInfo) -> bool:
    """Whether a pod requests a resource that can be backed by devices."""
    fit = filter_plugin(profile, NodeResourcesFit)
    return fit is not None and any(
        fit.is_backed_by_devices(name) for name, amount in pod.shape.requests.items() if amount
    )


def has_volumes_or_devices(profile: Profile, pod: PodInfo) -> bool:
    """Whether plugins of Kubernetes may reserve something for a pod beside its requests."""
    return bool(pod.shape.spec.volumes or pod.spec.resource_claims) or requests_devices(profile, pod)


def passes_without_pods(found: Feasibility, *, lasting: Collection[str] = ()) -> Mask:
    """The nodes that pass the filters that no pod on any node influences, bool; none if PreFilter rejects the pod.

    ``lasting`` are further filters to respect, whose rejections stay when more pods are placed.
    """
    candidates = None if found.tried_nominated_node_only else found.candidates
    if candidates is None:
        return np.zeros(len(found.passing), np.bool_)
    static = {
        results.plugin.name
        for results in found.filters.active
        if (reads := results.invalidation_mask) is not None and not reads.all_bits & POD_BITS
    }
    mask = candidates.copy()
    for result in found.filter_results():
        if result.plugin in static or result.plugin in lasting:
            mask &= ~result.rejects
    return mask


def filter_plugin(profile: Profile, kind: type[P]) -> P | None:
    """The Filter plugin of a class, None if the profile has none."""
    return next((plugin for plugin in profile.runtime.plugins.filter if isinstance(plugin, kind)), None)
