"""Which simulations run on an event loop from the start."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.meta import ObjectMeta, convert
from kubestow.api.storage import PersistentVolumeClaim, StorageClass
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.testing import builders
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.drivers import needs_event_loop
from kubestow_lab.simulation.outcomes import OutcomeRecorder

_CLAIMED = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
_EPHEMERAL = {"volumes": [{"name": "data", "ephemeral": {}}]}
_DEVICES = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def _objects(name: str, mode: str, volume: str = "") -> list[Any]:
    spec = {"storageClassName": "fast", "volumeName": volume}
    claim = convert(PersistentVolumeClaim, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    return [StorageClass(metadata=ObjectMeta(name="fast"), volume_binding_mode=mode), claim]


@pytest.mark.parametrize(
    ("spec", "objects", "reason"),
    [
        ({}, _objects("data", "WaitForFirstConsumer"), ""),
        (_CLAIMED, _objects("data", "WaitForFirstConsumer"), "claim default/data is bound once its pod has a node"),
        (_CLAIMED, _objects("data", "Immediate"), ""),
        (_CLAIMED, _objects("data", "WaitForFirstConsumer", volume="disk"), ""),
        (_CLAIMED, _objects("other", "WaitForFirstConsumer"), ""),
        (
            _EPHEMERAL,
            _objects("p-data", "WaitForFirstConsumer"),
            "claim default/p-data is bound once its pod has a node",
        ),
        (_DEVICES, [], "devices are allocated to pods such as default/p"),
    ],
)
@pytest.mark.parametrize("arrives", [True, False])
def test_work_before_the_binding_needs_an_event_loop(
    spec: dict[str, Any], objects: list[Any], reason: str, arrives: bool
) -> None:
    pod = builders.pod("p", spec=spec)
    arrivals = Arrivals([Arrival(pod, 0.0, None, {})]) if arrives else Arrivals()
    cluster = ClusterObjects.of([builders.node("n")], [] if arrives else [pod], objects)
    options: dict[str, Any] = {"driver": "auto", "recorder": OutcomeRecorder, "attempt_seconds": 0.001}
    assert needs_event_loop(cluster, arrivals, **options) == reason
    running = ClusterObjects.of([builders.node("n")], [builders.pod("p", node="n", spec=spec)], objects)
    assert needs_event_loop(running, Arrivals(), **options) == ""
    for name, value in {"driver": "scheduler", "recorder": object(), "attempt_seconds": 2.0}.items():
        assert needs_event_loop(cluster, arrivals, **{**options, name: value})
