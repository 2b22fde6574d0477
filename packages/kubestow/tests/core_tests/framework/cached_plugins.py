"""Plugins with cached results, and profiles of nothing but these, for tests of evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.interface import Plugin
from kubestow.testing import PluginHarness

PODS = on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE)
NODES = on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_LABEL)
SEASON = on(EventResource.STORAGE_CLASS, Action.UPDATE, invalidates=Invalidation.ALL)
"""An event that stands for any that is about no single node."""


class CachedPlugin(Plugin):
    """A plugin whose results are the same for all pods, and change with the pods on a node."""

    events_to_register: Sequence[EventRegistration] = (PODS,)
    label_keys = ()

    def signature(self, pod: PodInfo) -> Any:
        return ()


def harness_of(shown: Sequence[Node], weights: Mapping[type[Any], int]) -> PluginHarness:
    """A cluster with a profile of some plugins with weights, and those that every profile needs."""
    listed = [{"name": kind.name, "weight": weight} for kind, weight in weights.items()]
    names = [{"name": "PrioritySort"}, *listed, {"name": "DefaultBinder"}]
    profile = {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": names}}}
    return PluginHarness(shown, profile=profile, plugins=list(weights))


def evaluation_of(harness: PluginHarness, info: PodInfo) -> Evaluation:
    return harness.profiles["default-scheduler"].evaluations.of(info)


def find_best(harness: PluginHarness, info: PodInfo) -> list[str]:
    """The names of the best nodes. Raises PluginError."""
    evaluation = evaluation_of(harness, info)
    best = evaluation.find_best(info, evaluation.find_feasible(info))
    return [harness.cluster.nodes.names[row] for row in best]
