"""Queues in a file of their own: in the plugin's form, and as objects of Volcano, kube-batch and CapacityScheduling."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from contrib_tests.queues.jobs_of_pods import job, put, run
from kubestow.errors import InputError
from kubestow.testing import SchedulerHarness, node, pod
from kubestow_contrib.queues.configuration import JobQueuesArgs, read_queues
from kubestow_contrib.queues.job_queues import JobQueues
from kubestow_contrib.queues.queues_file import read_queues_file, with_queues_file

Object = dict[str, Any]


def volcano(name: str, api_version: str = "scheduling.volcano.sh/v1beta1", **spec: Any) -> Object:
    return {"apiVersion": api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def quota(namespace: str, name: str = "quota", **spec: Any) -> Object:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec}


def written(directory: Path, *documents: Object) -> Path:
    path = directory / "queues.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_queues_of_volcano_are_queues_with_guarantees_and_limits(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        volcano("root"),
        volcano("ml", weight=2, capability={"cpu": "8"}, deserved={"cpu": "4"}),
        volcano("vision", parent="ml", priority=3, guarantee={"resource": {"cpu": "1"}}),
        volcano("speech", parent="ml", reclaimable=False),
        {**volcano("closed"), "status": {"state": "Closed"}},
    )
    args = with_queues_file(JobQueuesArgs(queues_file=str(path)))
    queues = read_queues(args)
    assert list(queues) == ["ml", "vision", "speech", "default"]
    assert (queues["ml"].weight, queues["ml"].guaranteed, queues["ml"].most("cpu", ())) == (2, {"cpu": 4000}, 8000)
    assert (queues["vision"].lineage, queues["vision"].priority) == (("vision", "ml"), 3)
    differences = dict(each for each in read_queues_file(path).differences if each[0])
    assert set(differences) == {"Queue vision", "Queue speech", "Queue closed"}
    assert differences["Queue closed"] == "is Closed, and left out"


def test_queues_of_kube_batch_and_lists_are_read(tmp_path: Path) -> None:
    items = [volcano("batch", "scheduling.incubator.k8s.io/v1alpha1", weight=3)]
    path = written(tmp_path, {"apiVersion": "v1", "kind": "List", "items": items})
    assert [(each.name, each.weight) for each in read_queues_file(path).file.queues] == [("batch", 3), ("default", 1)]


def test_an_elastic_quota_is_the_queue_of_its_namespace(tmp_path: Path) -> None:
    quotas = [quota("b", min={"cpu": "2"}, max={"cpu": "6"}), quota("a", min={"cpu": "1"}), quota("a", "second")]
    path = written(tmp_path, *quotas)
    args = with_queues_file(JobQueuesArgs(queues_file=str(path)))
    queues = read_queues(args)
    assert (queues["b"].guaranteed, queues["b"].most("cpu", ())) == ({"cpu": 2000}, 6000)
    assert args.namespace_queues == {"a": "a", "b": "b"}
    assert ("ElasticQuota a/second", "is not the first of its namespace") in read_queues_file(path).differences


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([{"apiVersion": "v1", "kind": "ConfigMap"}], "expected queues, or Queue objects"),
        ([volcano("a"), quota("b")], "expected queues, or Queue objects"),
        ([volcano("a", weight="many")], "spec.weight"),
        ([volcano("a", deserved={"cpu": "4"}, capability={"cpu": "2"})], "guaranteed.cpu: is above limit.cpu"),
        ([{"queues": [{"name": "a", "size": 1}]}], "unknown field `size`"),
    ],
)
def test_mistakes_name_the_file_and_the_field(documents: list[Object], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem) as raised:
        with_queues_file(JobQueuesArgs(queues_file=str(written(tmp_path, *documents))))
    assert raised.value.subject.endswith("queues.yaml")


def test_the_module_prints_a_file_that_means_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, volcano("ml", capability={"cpu": "8"}))
    monkeypatch.setattr(sys, "argv", ["queues_file", str(path)])
    monkeypatch.delitem(sys.modules, "kubestow_contrib.queues.queues_file")
    runpy.run_module("kubestow_contrib.queues.queues_file", run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("# differs: ")
    (tmp_path / "printed.yaml").write_text(printed)
    assert msgspec.to_builtins(read_queues_file(tmp_path / "printed.yaml").file) == msgspec.to_builtins(
        read_queues_file(path).file
    )


def test_pods_are_in_the_queues_of_their_keys_and_namespaces() -> None:
    found: dict[str, str] = {}

    async def scenario(harness: SchedulerHarness) -> None:
        put(
            harness,
            job("own", "q"),
            [pod("volcano", labels={"volcano.sh/queue-name": "v"})],
            [pod("other", namespace="space")],
        )
        await harness.settle()
        (plugin,) = (p for p in harness.scheduler.profiles["default-scheduler"].plugins if p.name == "JobQueues")
        assert isinstance(plugin, JobQueues)
        found.update({each.example.name: each.queue for each in plugin.jobs.by_key.values()})

    run(
        scenario,
        node("n"),
        queues=("q", "v", "s"),
        queueKeys=["volcano.sh/queue-name"],
        namespaceQueues={"space": "s"},
    )
    assert found == {"own-0": "q", "volcano": "v", "other": "s"}
