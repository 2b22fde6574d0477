"""Whether pod groups fit now, and in words why not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core_tests.engine.gangs.clusters import pod_group, worker
from kubestow import config
from kubestow.api.core import Pod
from kubestow.engine.gangs.group_forecast import GroupForecast, forecast_groups
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.reports.model import Paragraph, Table
from kubestow.testing import node, pod

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

GATES = config.FeatureGates({"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True})


def forecast(
    pods: Sequence[Pod], needed: int, options: SchedulerOptions | None = None, *, cpu: str = "2"
) -> GroupForecast:
    cluster = ClusterObjects.of([node("a", cpu=cpu)], pods, [pod_group("train", needed)])
    found = forecast_groups(cluster, pods, options or SchedulerOptions(gates=GATES))
    assert found is not None
    return found


def workers(count: int, node: str = "") -> list[Pod]:
    return [worker(f"w{number}", cpu="1", node=node) for number in range(count)]


def texts(found: GroupForecast) -> list[str]:
    return [block.text for block in found.blocks() if isinstance(block, Paragraph)]


def test_a_group_that_runs_or_fits_is_said_to_do_so() -> None:
    assert texts(forecast(workers(2, node="a"), 2)) == ["pod group default/train: 2 pods, enough have a node"]
    assert texts(forecast(workers(2), 2)) == ["pod group default/train: 2 pods, fits now"]


def test_a_group_that_waits_has_a_reason_and_the_changes_that_would_help() -> None:
    found = forecast(workers(3), 3)

    reason = (
        "no placement exists: at most 2 pods of the 3 that are needed can be placed; cpu: 3.0 cores needed, "
        "2.0 cores free on nodes that pass the filters, 1.0 cores short"
    )
    assert texts(found) == ["pod group default/train: 3 pods", f"why not yet: {reason}"]
    [table] = [block for block in found.blocks() if isinstance(block, Table)]
    assert table.rows == [("2 pods instead of 3", "a (2)")]
    assert found.why_not_yet() == {"default/train": reason}
    assert found.document() == {
        "kind": "JobForecast",
        "jobs": [
            {
                "job": "default/train",
                "queue": "",
                "state": "Waiting",
                "pods": 3,
                "reason": reason,
                "wouldStartNow": [{"change": "2 pods instead of 3", "nodes": {"a": 2}, "flavors": []}],
            }
        ],
        "remarks": [],
    }


def test_without_a_change_that_helps_that_is_said() -> None:
    found = forecast(workers(3), 3, cpu="500m")

    assert texts(found)[-1] == "no change of the group alone was found with which it would start now"
    assert found.would_start_now() == {"default/train": ()}


def test_what_a_model_cannot_describe_is_undecided_without_a_change() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}
    pods = [pod(f"w{n}", spec={"schedulingGroup": {"podGroupName": "train"}, "volumes": [volume]}) for n in range(2)]

    found = forecast(pods, 2)

    assert found.groups[0].state == "Undecided"
    assert texts(found) == [
        "pod group default/train: 2 pods",
        "why not yet: not searched further: a pod has volumes",
    ]


def test_pods_of_other_schedulers_and_in_no_group_are_left_out() -> None:
    others = [pod("alone"), pod("of-another-scheduler", spec={"schedulerName": "other"})]

    assert [group.name for group in forecast([*others, *workers(2)], 2).groups] == ["default/train"]


def test_extenders_are_remarked_on() -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": "http://extender.example", "filterVerb": "filter"}],
    }

    assert forecast(workers(2), 2).remarks == ()
    assert forecast(workers(2), 2, SchedulerOptions(configuration, gates=GATES)).remarks == (
        "1 extender of the configuration was not called",
    )
