"""When jobs start: the expected start, what has to end, and what would make a job start now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contrib_tests.queues.jobs_of_pods import profile
from core_tests.engine.input.manifests import Object, node, pod
from kubestow.cli import main
from kubestow.config import FeatureGates
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError
from kubestow_contrib.queues.forecast import Forecast, JobForecast, forecast

NOW = "2026-06-01T12:00:00Z"


def configuration(*queues: Any, **args: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profile(queues or ("q",), **args),
    }


def job(
    name: str,
    pods: int,
    *,
    queue: str = "q",
    run: str = "1h",
    started: str = "",
    on: str = "",
    created: str = NOW,
    **fields: Any,
) -> list[Object]:
    """The pods of a job, on a node if that is given."""
    made = []
    for number in range(pods):
        each = pod(f"{name}-{number}", **fields)
        each["metadata"] |= {
            "namespace": "default",
            "creationTimestamp": created,
            "annotations": {"kubestow.dev/queue": queue, "kubestow.dev/run-time": run},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
            ],
        }
        if on:
            each["spec"]["nodeName"] = on
            each["status"] = {"phase": "Running", "startTime": started or NOW}
        made.append(each)
    return made


def about(name: str, objects: list[Object], tmp_path: Path, **options: Any) -> JobForecast:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    cluster = ClusterObjects.load(path)
    pods = [each for each in cluster.pods if each.metadata.name.startswith(f"{name}-")]
    gates = FeatureGates(options.pop("gates", {}))
    found = forecast(cluster, pods, SchedulerOptions(configuration(**options), gates=gates), f"job/{name}")
    assert isinstance(found, Forecast)
    return found.jobs[0]


def test_a_job_runs_no_longer_than_the_deadline_of_its_job(tmp_path: Path) -> None:
    running = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "first", "namespace": "default"},
        "spec": {"activeDeadlineSeconds": 600, "template": {}},
    }
    objects = [node("a", cpu="4"), *job("first", 4, run="2h", on="a", cpu="1"), *job("next", 4, cpu="1"), running]
    found = about("next", objects, tmp_path)
    assert str(found.start) == "2026-06-01 12:10:00+00:00"
    assert [(e.name, e.source) for e in found.ends] == [("job/default/first", "activeDeadlineSeconds of Job first")]


def test_a_job_starts_when_those_before_it_have_ended(tmp_path: Path) -> None:
    objects = [
        node("a", cpu="4"),
        node("b", cpu="4"),
        *job("first", 4, run="30m", on="a", cpu="1"),
        *job("second", 2, run="2h", on="b", started="2026-06-01T11:00:00Z", cpu="1"),
        *job("large", 8, run="1h", created="2026-06-01T11:30:00Z", cpu="1"),
        *job("next", 4, run="59m", created="2026-06-01T11:40:00Z", cpu="1"),
    ]
    large = about("large", objects, tmp_path)
    assert (large.state, large.position, large.waiting, large.is_reserved) == ("Waiting", 1, 2, True)
    assert large.reason == "too little is free; short of cpu"
    assert str(large.start) == "2026-06-01 13:00:00+00:00"
    assert [(e.name, f"{e.end:%H:%M}") for e in large.ends] == [
        ("job/default/first", "12:30"),
        ("job/default/second", "13:00"),
    ]
    assert large.waited == 30 * 60
    assert "annotation kubestow.dev/run-time" in large.run_time.source
    # "next" would fit from 12:30 on, before "large", if it was shorter; now it starts after it. "large" may start a
    # second later than reserved, in the next round, and its pods five seconds after that.
    later = about("next", objects, tmp_path)
    assert (later.position, str(later.start), later.is_reserved) == (2, "2026-06-01 14:00:06+00:00", False)
    assert {each.change: each.nodes for each in later.remedies} == {
        "2 pods instead of 4": {"b": 2},
    }


def test_remedies_are_verified(tmp_path: Path) -> None:
    objects = [
        node("a", cpu="4", labels={"gpu": "a"}),
        node("b", cpu="4", labels={"gpu": "b"}),
        *job("first", 3, run="30m", on="a", cpu="1"),
        *job("asked", 4, cpu="1", nodeSelector={"gpu": "a"}),
    ]
    flavors = [{"name": name, "nodeLabels": {"gpu": name}} for name in ("a", "b")]
    asked = about("asked", objects, tmp_path, flavors=flavors)
    changes = {each.change: dict(each.nodes) for each in asked.remedies}
    assert changes == {"1 pod instead of 4": {"a": 1}, "nodes of flavor b": {"b": 4}}
    # A filter that planning does not know refuses the pods: no remedy is left.
    avoided = {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    ]}  # fmt: skip
    for each in objects[5:]:
        each["metadata"]["labels"] = {"app": "x"}
        each["spec"]["affinity"] = {"podAntiAffinity": avoided}
    for each in objects[:2]:
        each["metadata"]["labels"]["kubernetes.io/hostname"] = each["metadata"]["name"]
    refused = about("asked", objects, tmp_path, flavors=flavors)
    assert {each.change for each in refused.remedies} == {"1 pod instead of 4"}


GATES = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}


def in_one_rack(*names: str, cpus: str, pods: int) -> list[Object]:
    """Nodes such as a0x, in block a and rack a0, and a job whose pod group has to be in one rack."""
    nodes = [node(name, cpu=cpus, labels={"block": name[0], "rack": name[:2]}) for name in names]
    spec = {
        "schedulingPolicy": {"gang": {"minCount": pods}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
    metadata = {"name": "asked", "namespace": "default", "uid": "group"}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    return [*nodes, group, *job("asked", pods, cpu="1", schedulingGroup={"podGroupName": "asked"})]


def test_a_job_that_is_planned_in_several_racks_is_told_from_one_that_starts(tmp_path: Path) -> None:
    found = about("asked", in_one_rack("a0x", "a1x", cpus="2", pods=4), tmp_path, gates=GATES)

    assert found.state == "Misplaced"
    assert found.reason == "its planned nodes are not in one rack, as its pod group requires"
    assert {each.change: dict(each.nodes) for each in found.remedies} == {
        "2 pods instead of 4": {"a0x": 2},
        "the topology level block instead of rack": {"a0x": 2, "a1x": 2},
    }


def test_no_requirement_is_proposed_if_no_larger_domain_has_the_planned_nodes(tmp_path: Path) -> None:
    found = about("asked", in_one_rack("a0x", "b0x", cpus="2", pods=4), tmp_path, gates=GATES)

    assert "no topology constraint instead of rack" in {each.change for each in found.remedies}


def test_a_job_that_is_planned_in_one_rack_starts(tmp_path: Path) -> None:
    assert about("asked", in_one_rack("a0x", "a0y", cpus="2", pods=4), tmp_path, gates=GATES).state == "Startable"


def test_a_limit_is_named_with_the_jobs_that_count_for_it(tmp_path: Path) -> None:
    objects = [
        node("a", cpu="8"),
        *job("first", 2, run="30m", on="a", cpu="1"),
        *job("other", 1, queue="r", run="10m", on="a", cpu="1"),
        *job("asked", 2, cpu="1"),
    ]
    limited = {"name": "q", "amounts": [{"limit": {"cpu": "2"}}]}
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    cluster = ClusterObjects.load(path)
    pods = [each for each in cluster.pods if each.metadata.name.startswith("asked")]
    found = forecast(cluster, pods, SchedulerOptions(configuration(limited, "r")), "job/asked").jobs[0]
    assert found.reason == "the limits of its queue leave too little"
    assert [each.name for each in found.ends] == ["job/default/first"]
    assert "no limits of its queue" in {each.change for each in found.remedies}


def test_jobs_that_do_not_wait_say_so(tmp_path: Path) -> None:
    objects = [
        node("a", cpu="4"),
        *job("runs", 2, on="a", cpu="1"),
        *job("starts", 1, cpu="1"),
        *job("never", 9, cpu="1"),
    ]
    assert about("runs", objects, tmp_path).state == "Running"
    assert about("starts", objects, tmp_path).state == "Startable"
    never = about("never", objects, tmp_path)
    assert (never.state, never.start) == ("Impossible", None)
    assert never.reason == "it would not fit even if all jobs had ended; short of cpu"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (None, "no profile of the configuration enables JobQueues, so there are no queues"),
        (configuration("r"), "queue q does not exist, or is the parent of others"),
    ],
)
def test_what_has_no_queue_is_an_error(config: Any, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), *job("asked", 1)]}))
    cluster = ClusterObjects.load(path)
    with pytest.raises(InputError, match=problem):
        forecast(cluster, list(cluster.pods), SchedulerOptions(config), "job/asked")


def test_the_command_prints_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump, config = tmp_path / "dump.json", tmp_path / "queues.yaml"
    objects = [node("a", cpu="4"), *job("first", 3, run="30m", on="a", cpu="1"), *job("asked", 2, cpu="1")]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    config.write_text(json.dumps(configuration()))
    with pytest.raises(SystemExit) as exited:
        main(["when", "job/asked", "--cluster", str(dump), "--config", str(config)])
    assert not exited.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "job/default/asked in queue q: 2 pods, position 1 of 1 waiting job, for 0s"
    assert lines[1] == "why not yet: too little is free; short of cpu"
    assert lines[2].startswith("reserved start: 2026-06-01T12:30:00Z, in 30m0s, if running jobs end")
    assert "1 pod instead of 2" in "\n".join(lines)
    assert lines[-1] == "forecast by JobQueues"
    with pytest.raises(SystemExit) as exited:
        main(["when", "job/absent", "--cluster", str(dump), "--config", str(config)])
    assert exited.value.code == 1
    assert "job/absent in namespace default: has no pod, finished pods aside" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["when", "pod/asked-0", "--cluster", str(dump), "--config", str(config), "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["forecastBy"], document["jobs"][0]["job"]) == ("JobQueues", "job/default/asked")


def test_why_has_what_would_make_a_job_start_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump, config = tmp_path / "dump.json", tmp_path / "queues.yaml"
    objects = [node("a", cpu="4"), *job("first", 3, run="30m", on="a", cpu="1"), *job("asked", 2, cpu="1")]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    config.write_text(json.dumps(configuration()))

    def why(*arguments: str) -> str:
        with pytest.raises(SystemExit) as exited:
            main(["why", "job/asked", "--cluster", str(dump), "--config", str(config), *arguments])
        assert not exited.value.code
        return capsys.readouterr().out

    lines, about = why().splitlines(), json.loads(why("-o", "json"))["workload"]
    assert "job/default/asked does not start yet: too little is free; short of cpu" in lines
    assert "job/default/asked would start now with 1 pod instead of 2, on a" in lines
    assert about["notYet"] == {"job/default/asked": "too little is free; short of cpu"}
    assert about["wouldStartNow"] == {
        "job/default/asked": [{"change": "1 pod instead of 2", "nodes": {"a": 1}, "flavors": []}]
    }


@pytest.mark.parametrize("command", ["when", "why"])
def test_commands_answer_about_a_gang_in_no_queue(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")
    dump = tmp_path / "dump.json"
    objects = in_one_rack("a0x", "a1x", cpus="2", pods=4)
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    gates = ",".join(f"{name}=true" for name in GATES)

    with pytest.raises(SystemExit) as exited:
        main([command, "podgroup/asked", "--cluster", str(dump), "-n", "default", "--feature-gates", gates])

    assert not exited.value.code
    out = capsys.readouterr().out
    assert "2 pods instead of 4" in out
    assert "the topology level block instead of rack" in out
    assert "no placement exists: at most 2 pods of the 4 that are needed can be placed" in out
    assert ("forecast by the scheduler" in out) == (command == "when")
