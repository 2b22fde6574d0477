"""QoS classes, with the test tables of scheduler-plugins, and host ports."""

from __future__ import annotations

import pytest

from kubestow.cluster.pods.shapes import Shapes
from kubestow.rules.pods import HostPort, HostPorts, host_ports, is_preempted, is_terminal, qos_class, qos_class_of
from kubestow.testing import pod

SMALL, LARGE = {"cpu": "100m", "memory": "100Mi"}, {"cpu": "200m", "memory": "200Mi"}
NOTHING: dict[str, str] = {}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([(NOTHING, NOTHING)], "BestEffort"),
        ([({"cpu": "0"}, NOTHING)], "BestEffort"),
        ([({"cpu": "many"}, NOTHING)], "BestEffort"),
        ([({"example.com/gpu": "1"}, NOTHING)], "BestEffort"),
        ([(SMALL, LARGE)], "Burstable"),
        ([(SMALL, NOTHING)], "Burstable"),
        ([({"cpu": "1"}, {"cpu": "1"})], "Burstable"),
        ([(SMALL, SMALL), (NOTHING, NOTHING)], "Burstable"),
        ([(SMALL, SMALL)], "Guaranteed"),
        ([(NOTHING, SMALL)], "Guaranteed"),
        ([({"cpu": "0.1", "memory": "104857600"}, SMALL), (LARGE, LARGE)], "Guaranteed"),
    ],
)
def test_qos_class(containers: list[tuple[dict[str, str], dict[str, str]]], expected: str) -> None:
    resources = [{"name": "c", "resources": {"requests": r, "limits": lim}} for r, lim in containers]
    assert qos_class(pod(spec={"containers": resources}).spec) == expected
    assert qos_class_of({"containers": resources}) == expected
    first, *others = resources
    assert qos_class(pod(spec={"containers": others, "initContainers": [first]}).spec) == expected


def test_the_resources_of_the_pod_decide() -> None:
    spec = {"containers": [{"name": "c"}], "resources": {"requests": SMALL, "limits": SMALL}}
    assert qos_class(pod(spec=spec).spec) == "Guaranteed"


def test_the_form_of_a_manifest_with_pod_level_resources_has_the_same_class() -> None:
    spec = {"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}}
    assert qos_class_of(spec) == qos_class(pod(spec=spec).spec) == "Burstable"


@pytest.mark.parametrize(
    ("phase", "expected"), [("Succeeded", True), ("Failed", True), ("Running", False), (None, False)]
)
def test_terminal_phases(phase: str | None, expected: bool) -> None:
    assert is_terminal(phase) is expected


@pytest.mark.parametrize(
    ("kind", "status", "reason", "expected"),
    [
        ("DisruptionTarget", "True", "PreemptionByScheduler", True),
        ("DisruptionTarget", "False", "PreemptionByScheduler", False),
        ("DisruptionTarget", "True", "EvictionByEvictionAPI", False),
        ("Ready", "True", "PreemptionByScheduler", False),
    ],
)
def test_a_victim_of_preemption_has_a_condition(kind: str, status: str, reason: str, expected: bool) -> None:
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": kind, "status": status, "reason": reason},
    ]
    assert is_preempted(pod(status={"conditions": conditions}).status) is expected


def test_ports_conflict_if_they_can_meet_on_one_address() -> None:
    anywhere, one, other = (HostPort(ip, "TCP", 80) for ip in ("0.0.0.0", "10.0.0.1", "10.0.0.2"))
    taken = HostPorts(sorted([anywhere, one, HostPort("10.0.0.1", "TCP", 81), HostPort("10.0.0.1", "UDP", 80)]))
    assert (taken.conflicts_with(anywhere), taken.conflicts_with(one), taken.conflicts_with(other)) == (2, 2, 1)
    assert [sum(port.conflicts_with(each) for each in taken) for port in (anywhere, one, other)] == [2, 2, 1]
    assert HostPorts([one]).conflicts_with(HostPort("0.0.0.0", "TCP", 81)) == 0
    assert one.on_any_ip == anywhere
    assert host_ports(pod(host_ports=[0, 1]).spec) == (HostPort("0.0.0.0", "TCP", 1),)


def test_a_pod_is_asked_for_its_ports() -> None:
    shape = Shapes().info(pod(host_ports=[80])).shape
    anywhere, one = HostPort("0.0.0.0", "TCP", 80), HostPort("10.0.0.1", "TCP", 80)
    assert (anywhere.is_used_by(shape), one.is_used_by(shape)) == (True, False)
    assert (anywhere.conflicts_in(shape), one.conflicts_in(shape)) == (1, 1)


def test_host_ports_are_those_of_containers_and_sidecars() -> None:
    def container(port: int, **fields: str) -> dict[str, object]:
        return {
            "name": f"c{port}",
            "ports": [{"containerPort": port, "hostPort": port}, {"containerPort": 1}],
            **fields,
        }

    spec = {"containers": [container(80)], "initContainers": [container(81), container(82, restartPolicy="Always")]}
    assert host_ports(pod(spec=spec).spec) == (HostPort("0.0.0.0", "TCP", 80), HostPort("0.0.0.0", "TCP", 82))
