"""What would make a Workload be admitted now, each change verified; and when it will be admitted."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contrib_tests.kueue.kueue_objects import (
    API_VERSION,
    GPU,
    Manifest,
    cluster,
    cluster_queue,
    flavor,
    local_queue,
    workload,
)
from core_tests.engine.input.manifests import node, write
from kubestow.cli import main
from kubestow.engine.job_admission import AdmissionQueues, Owner
from kubestow.engine.job_forecasts import Remedy
from kubestow_contrib.kueue.admission_system import KUEUE
from kubestow_contrib.kueue.forecast import KueueForecast

NOW = 1767225600.0
BLOCKS = {
    "apiVersion": API_VERSION,
    "kind": "Topology",
    "metadata": {"name": "blocks"},
    "spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
}


def opened(*objects: Manifest, nodes: list[Manifest] | None = None) -> AdmissionQueues:
    found = KUEUE.open(cluster(*objects, nodes=nodes or []), now=NOW)
    assert found is not None
    return found


def forecast(queues: AdmissionQueues, name: str) -> KueueForecast:
    found = queues.forecast(Owner("Job", "default", name))
    assert isinstance(found, KueueForecast)
    return found


def changes(queues: AdmissionQueues, name: str) -> dict[str, tuple[str, ...]]:
    """The flavors that the pods get with each change."""
    return {each.change: each.flavors for each in forecast(queues, name).remedies}


def team(quota: int, *flavors: str, **spec: Any) -> list[Manifest]:
    """A queue with so many GPUs in each flavor, whose nodes have its name as their label gpu."""
    return [
        cluster_queue("team", quota, flavors=flavors or ("h100",), **spec),
        local_queue("team"),
        *(flavor(name, gpu=name) for name in flavors or ("h100",)),
    ]


def selecting(one: Manifest, **labels: str) -> Manifest:
    one["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = labels
    return one


# -- fewer pods --------------------------------------------------------------------------------------------------------


def test_the_most_pods_that_have_quota_are_proposed() -> None:
    queues = opened(*team(16), workload("runs", "team", 4, admitted="team"), workload("asked", "team", 2, pods=8))

    assert changes(queues, "asked") == {"6 pods instead of 8": ("h100",)}


def test_a_job_that_is_too_large_for_ever_starts_with_fewer_pods() -> None:
    queues = opened(*team(8), workload("asked", "team", 4, pods=3))

    assert changes(queues, "asked") == {"2 pods instead of 3": ("h100",)}
    assert list(queues.why(Owner("Job", "default", "asked")))[-1] == (
        "it would be admitted now with 2 pods instead of 3, on flavor h100"
    )


def test_no_change_is_proposed_that_costs_another_job_its_quota() -> None:
    """With the higher priority it would preempt the other, whatever its size."""
    preempting = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    running = workload("runs", "team", 8, admitted="team")
    asked = workload("asked", "team", 4, pods=3, priority=5)

    assert changes(opened(*team(8, **preempting), running, asked), "asked") == {}


@pytest.mark.parametrize("seed", range(10))
def test_the_proposed_number_of_pods_is_the_largest(seed: int) -> None:
    random = Random(seed)
    quota, used = random.randint(4, 12), random.randint(0, 4)
    pods, gpus = random.randint(2, 9), random.randint(1, 3)
    objects = [*team(quota), workload("runs", "team", used, admitted="team")]

    def is_admitted(count: int) -> bool:
        queues = opened(*objects, workload("asked", "team", gpus, pods=count))
        return forecast(queues, "asked").state == "Startable"

    most = max((count for count in range(1, pods + 1) if is_admitted(count)), default=0)
    if most == pods:
        return
    expected = {f"{most} pod{'s' if most > 1 else ''} instead of {pods}"} if most else set()

    assert set(changes(opened(*objects, workload("asked", "team", gpus, pods=pods)), "asked")) == expected


# -- another flavor ----------------------------------------------------------------------------------------------------


def test_a_flavor_that_the_pods_do_not_select_is_proposed() -> None:
    running = workload("runs", "team", 8, admitted="team", flavor="h100")
    asked = selecting(workload("asked", "team", 4), gpu="h100", zone="any")

    assert changes(opened(*team(8, "h100", "a100"), running, asked), "asked") == {"pods for flavor a100": ("a100",)}


def test_a_flavor_whose_taints_the_pods_do_not_tolerate_is_proposed() -> None:
    spot = flavor("spot", gpu="spot")
    spot["spec"]["nodeTaints"] = [{"key": "spot", "value": "true", "effect": "NoSchedule"}]
    running = workload("runs", "team", 8, admitted="team", flavor="h100")
    objects = [one for one in team(8, "h100", "spot") if one["metadata"]["name"] != "spot"]

    queues = opened(*objects, spot, running, workload("asked", "team", 4))

    assert changes(queues, "asked") == {"pods for flavor spot": ("spot",)}


def test_a_flavor_that_is_full_too_is_not_proposed() -> None:
    running = [workload(name, "team", 8, admitted="team", flavor=name) for name in ("h100", "a100")]
    asked = selecting(workload("asked", "team", 4), gpu="h100")

    assert changes(opened(*team(8, "h100", "a100"), *running, asked), "asked") == {}


# -- another level of the topology -------------------------------------------------------------------------------------


def gpu_node(name: str) -> Manifest:
    """A node with four GPUs, such as a0x: in block a, rack a0."""
    labels = {"kubernetes.io/hostname": name, "gpu": "h100", "block": name[0], "rack": name[:2]}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {GPU: 4, "pods": 110}}}


def placed_in(level: str, pods: int) -> list[Manifest]:
    h100 = flavor("h100", gpu="h100")
    h100["spec"]["topologyName"] = "blocks"
    asked = workload("asked", "team", 4, pods=pods, topologyRequest={"required": level})
    return [cluster_queue("team", 99), local_queue("team"), h100, BLOCKS, asked]


def test_the_nearest_level_that_has_room_is_proposed() -> None:
    nodes = [gpu_node(name) for name in ("a0x", "a1x", "b0x")]

    remedies = forecast(opened(*placed_in("rack", 2), nodes=nodes), "asked").remedies

    assert remedies == (
        Remedy("1 pod instead of 2", {"a0x": 1}, ("h100",)),
        Remedy("the topology level block instead of rack", {"a0x": 1, "a1x": 1}, ("h100",)),
    )


def test_a_preferred_level_is_proposed_if_no_domain_has_room() -> None:
    nodes = [gpu_node(name) for name in ("a0x", "b0x")]

    found = changes(opened(*placed_in("rack", 2), nodes=nodes), "asked")

    assert "the topology level rack preferred instead of required" in found


def test_a_larger_domain_for_slices_is_proposed() -> None:
    nodes = [gpu_node(name) for name in ("a0x", "a1x")]
    objects = placed_in("block", 2)
    request = {"required": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    objects[-1]["spec"]["podSets"][0]["topologyRequest"] = request

    found = changes(opened(*objects, nodes=nodes), "asked")

    assert set(found) == {"the topology level block for slices instead of rack"}


def test_fewer_pods_are_whole_slices() -> None:
    nodes = [gpu_node(name) for name in ("a0x", "a0y", "a1x")]
    objects = placed_in("block", 4)
    request = {"required": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    objects[-1]["spec"]["podSets"][0]["topologyRequest"] = request

    assert "2 pods instead of 4" in changes(opened(*objects, nodes=nodes), "asked")


# -- when --------------------------------------------------------------------------------------------------------------


def lasting(one: Manifest, seconds: int) -> Manifest:
    one["spec"]["maximumExecutionTimeSeconds"] = seconds
    return one


def test_a_job_starts_when_those_before_it_have_run() -> None:
    """The first has to end, then the second runs."""
    objects = [
        *team(8),
        lasting(workload("runs", "team", 8, admitted="team"), 3600),
        lasting(workload("before", "team", 8), 600),
        workload("asked", "team", 8, created="2026-01-01T00:00:05Z"),
    ]

    found = forecast(opened(*objects), "asked")

    assert found.start is not None
    assert (found.state, found.position, found.waiting) == ("Waiting", 2, 2)
    assert found.start.timestamp() - NOW == pytest.approx(3600 + 600, abs=5)


def test_the_start_behind_a_job_without_an_end_is_not_known() -> None:
    found = forecast(
        opened(*team(8), workload("runs", "team", 8, admitted="team"), workload("asked", "team", 8)), "asked"
    )

    assert (found.state, found.start) == ("Waiting", None)


def test_what_does_not_wait_for_quota_says_so() -> None:
    objects = [*team(8), workload("runs", "team", 4, admitted="team"), workload("next", "team", 4)]
    queues = opened(*objects, workload("nowhere", "gone", 1))

    assert forecast(queues, "runs").state == "Admitted"
    assert forecast(queues, "next").state == "Startable"
    assert forecast(queues, "nowhere").reasons == ("not admitted: there is no LocalQueue gone",)
    assert queues.forecast(Owner("Job", "default", "absent")) is None


def test_a_job_with_quota_that_waits_for_a_check_says_so() -> None:
    checked = workload("checked", "team", 1, admitted="team")
    checked["status"]["admissionChecks"] = [{"name": "provision", "state": "Pending"}]

    found = forecast(opened(*team(8), checked), "checked")

    assert (found.state, found.waits) == ("QuotaReserved", True)
    assert found.reasons == ("it waits for admission check provision (Pending)",)


def test_the_commands_answer_about_a_job_without_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = lasting(workload("runs", "team", 6, admitted="team"), 3600)
    objects = [node("a"), *team(8), running, workload("asked", "team", 1, pods=4)]
    dump = write(tmp_path, *objects, name="dump.json")

    def printed(*arguments: str) -> str:
        with pytest.raises(SystemExit) as exited:
            main([*arguments, "--cluster", str(dump), "-n", "default"])
        assert not exited.value.code
        return capsys.readouterr().out

    lines = printed("when", "job/asked").splitlines()
    document = json.loads(printed("when", "workload/job-asked", "-o", "json"))
    why = printed("why", "job/asked").splitlines()

    assert lines[0] == "asked in ClusterQueue team: 4 pods"
    assert lines[-1] == "forecast by kueue"
    assert any("2 pods instead of 4" in line for line in lines)
    assert document["forecastBy"] == "kueue"
    assert document["jobs"][0]["wouldStartNow"] == [{"change": "2 pods instead of 4", "nodes": {}, "flavors": ["h100"]}]
    assert "it would be admitted now with 2 pods instead of 4, on flavor h100" in why
