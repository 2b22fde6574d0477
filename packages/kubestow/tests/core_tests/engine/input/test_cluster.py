"""Clusters are read from dumps; what cannot be used is named, counted and left out, or refused."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from core_tests.engine.input.manifests import node, pod, workload, write
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow_lab.simulation.arrivals import Arrivals


def problems(cluster: ClusterObjects) -> list[str]:
    return [f"{Path(p.subject).name}: {p.place}: {p.text}" for p in cluster.summary.problems]


def test_json_yaml_and_a_folder_of_manifests_give_the_same_cluster(tmp_path: Path) -> None:
    objects = [node("a"), node("b"), pod("p", nodeName="a"), pod("q")]
    as_json = write(tmp_path, *objects)
    as_yaml = tmp_path / "dump.yaml"
    as_yaml.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}))
    as_documents = tmp_path / "documents.yml"
    as_documents.write_text("# nodes\n---\n" + yaml.safe_dump_all(objects))
    folder = tmp_path / "folder"
    (folder / "pods").mkdir(parents=True)
    for number, obj in enumerate(objects):
        (folder / ("pods" if obj["kind"] == "Pod" else ".") / f"{number}.json").write_text(json.dumps(obj))
    (folder / "README.md").write_text("not read")
    clusters = [ClusterObjects.load(path) for path in (as_json, as_yaml, as_documents, folder)]
    assert clusters[0].nodes == clusters[1].nodes == clusters[2].nodes == clusters[3].nodes
    assert clusters[0].pods == clusters[1].pods == clusters[2].pods == clusters[3].pods
    assert repr(clusters[0]) == "<Cluster: 2 nodes, 1 placed and 1 pending pod>"


def test_items_of_typed_lists_concatenated_documents_and_arrays_are_read(tmp_path: Path) -> None:
    untyped = [{k: v for k, v in node(name).items() if k not in ("apiVersion", "kind")} for name in "ab"]
    nodes = json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": untyped})
    (tmp_path / "two.json").write_text(nodes + "\n" + json.dumps(pod("p")))
    (tmp_path / "array.json").write_text(json.dumps([node("a"), pod("p")]))
    assert repr(ClusterObjects.load(tmp_path / "two.json")) == "<Cluster: 2 nodes, 0 placed and 1 pending pod>"
    assert repr(ClusterObjects.load(tmp_path / "array.json")) == "<Cluster: 1 node, 0 placed and 1 pending pod>"


def test_compressed_dumps_are_read_whatever_their_names_are(tmp_path: Path) -> None:
    objects = [node("a"), pod("p", nodeName="a"), pod("q")]
    plain = write(tmp_path, *objects)
    as_json = tmp_path / "dump.json.gz"
    as_json.write_bytes(gzip.compress(plain.read_bytes()))
    as_yaml = tmp_path / "dump"
    as_yaml.write_bytes(gzip.compress(yaml.safe_dump_all(objects).encode()))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "nodes.yaml.gz").write_bytes(gzip.compress(yaml.safe_dump(objects[0]).encode()))
    (folder / "pods.JSON.GZ").write_bytes(gzip.compress(json.dumps(objects[1:]).encode()))
    (folder / "notes.gz").write_bytes(gzip.compress(b"not read"))
    expected = ClusterObjects.load(plain)
    for path in (as_json, as_yaml, folder):
        found = ClusterObjects.load(path)
        assert (found.nodes, found.pods) == (expected.nodes, expected.pods)
    as_json.write_bytes(as_json.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"dump\.json\.gz: the compressed data ends early: the file is truncated"):
        ClusterObjects.load(as_json)


def test_a_dump_that_powershell_has_redirected_is_read_as_json(tmp_path: Path) -> None:
    path = write(tmp_path, node("a"), node("a"))
    path.write_bytes(path.read_text().replace("\n", "\r\n").encode("utf-16"))
    assert problems(ClusterObjects.load(path)) == [f"dump.json: items[1]: duplicate Node a, first in {path} items[0]"]


def test_fields_that_are_null_are_as_if_absent(tmp_path: Path) -> None:
    empty = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "empty"}, "spec": None}
    nulls = pod("nulls", tolerations=[None], initContainers=None, nodeSelector=None)
    nulls["spec"]["containers"][0]["resources"]["limits"] = None
    cluster = ClusterObjects.load(write(tmp_path, node("a"), empty, nulls))
    assert problems(cluster) == ["dump.json: items[1]: invalid Pod default/empty: spec.containers: required value"]
    assert [each.metadata.name for each in cluster.pods] == ["nulls"]
    with pytest.raises(InputError, match=r"has no pods|spec.containers: required value"):
        Arrivals.load(write(tmp_path, empty, name="workload.json"), cluster=cluster, strict=True)


@pytest.mark.parametrize(
    ("limit_range", "text"),
    [
        ({"spec": {"limits": [{"type": "Container", "defaultRequest": [5]}]}}, "spec.limits[0].defaultRequest"),
        ({"spec": {"limits": 5}}, "spec.limits"),
    ],
)
def test_a_malformed_limit_range_is_a_problem_of_its_own(tmp_path: Path, limit_range: Any, text: str) -> None:
    malformed = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, **limit_range}
    cluster = ClusterObjects.load(write(tmp_path, node("a"), malformed, pod("p")))
    [problem] = problems(cluster)
    assert problem.startswith(f"dump.json: items[1]: invalid LimitRange: {text}: Expected")
    assert len(cluster.pods) == 1


@pytest.mark.parametrize("metadata", [5, {"name": ["x"]}, {"name": "x", "namespace": {"a": 1}}])
def test_a_malformed_controller_is_a_problem_of_its_own(tmp_path: Path, metadata: Any) -> None:
    cluster = ClusterObjects.load(write(tmp_path, node("a")))
    malformed = {**workload("Deployment", "x"), "metadata": metadata}
    path = write(tmp_path, malformed, workload("Deployment", "y", replicas=2), name="workload.json")
    arrivals = Arrivals.load(path, cluster=cluster)
    assert len(arrivals.pods) == 2
    [problem] = arrivals.summary.problems
    assert problem.place == "items[0]"
    assert problem.text.startswith("invalid Deployment: metadata")


def test_input_without_nodes_names_the_first_problem(tmp_path: Path) -> None:
    broken = {**node("a"), "status": {"allocatable": {"cpu": "x"}}, "spec": 5}
    with pytest.raises(InputError, match=r"has no nodes, .*; the first of 1 problem: .*items\[0\]: invalid Node"):
        ClusterObjects.load(write(tmp_path, broken))


def test_unusable_objects_are_left_out_with_file_and_index(tmp_path: Path) -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "1.5.2"}}}
    objects: list[Any] = [
        node("a"),
        node("a"),
        {**node("b"), "metadata": {}},
        {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}},
        pod("lost", nodeName="gone"),
        pod("odd", priority="high"),
        pod("unknown-class", priorityClassName="none"),
        pod("no-quantity", cpu="1.5.2"),
        {"metadata": {"name": "x"}},
        pod("no-limit", containers=[container], schedulerName="default-scheduler"),
    ]
    cluster = ClusterObjects.load(write(tmp_path, *objects))
    assert len(cluster.nodes) == 1
    assert not cluster.pods
    assert problems(cluster) == [
        "dump.json: items[1]: duplicate Node a, first in " + str(tmp_path / "dump.json") + " items[0]",
        "dump.json: items[2]: Node without metadata.name",
        "dump.json: items[3]: PodDisruptionBudget of version policy/v1beta1, expected policy/v1",
        "dump.json: items[5]: invalid Pod: spec.priority: Expected `int | null`, got `str`",
        "dump.json: items[8]: not a Kubernetes object: expected apiVersion and kind",
        "dump.json: items[9]: invalid Pod default/no-limit: spec.containers[0].resources.limits: "
        '"1.5.2" is not a resource quantity (expected a number such as "2", "500m" or "1.5Gi")',
        "dump.json: items[4]: Pod default/lost is on node gone, which is not in the input",
        "dump.json: items[6]: invalid Pod default/unknown-class: spec.priorityClassName: "
        'no PriorityClass with name "none" in the input, and no pod that uses it',
        "dump.json: items[7]: invalid Pod default/no-quantity: spec.containers[0].resources.requests[cpu]: "
        '"1.5.2" is not a resource quantity (expected a number such as "2", "500m" or "1.5Gi")',
    ]
    assert "left out 9 objects with problems" in list(cluster.summary.lines())


def test_heartbeats_that_are_not_text_do_not_count(tmp_path: Path) -> None:
    first, second = node("a"), node("b")
    first["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": 7}]
    second["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-01T12:30:00Z"}]
    moment = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert ClusterObjects.load(write(tmp_path, first, second)).time(moment + timedelta(days=1)) == moment


def test_places_in_yaml_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml"
    path.write_text(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n"
        "- apiVersion: v1\n  kind: Node\n  metadata: {}\n"
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
    )
    assert [p.place for p in ClusterObjects.load(path).summary.problems] == ["line 7", "line 11"]


def test_places_in_nested_lists_name_the_document(tmp_path: Path) -> None:
    unnamed = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}

    def listed(*items: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "List", "items": list(items)}

    one_by_one = tmp_path / "two.json"
    one_by_one.write_text(f"{json.dumps(node('a'))}\n{json.dumps(listed(unnamed, listed(unnamed)))}\n")
    array = tmp_path / "array.json"
    array.write_text(json.dumps([node("a"), listed(unnamed)]))
    nested = write(tmp_path, node("a"), listed(unnamed, listed(unnamed)))
    documents = tmp_path / "dump.yaml"
    documents.write_text(f"---\n{json.dumps(node('a'))}\n---\n{json.dumps(listed(listed(unnamed)))}\n")
    assert {
        path.name: [p.place for p in ClusterObjects.load(path).summary.problems] for path in tmp_path.iterdir()
    } == {
        "two.json": ["line 2: items[0]", "line 2: items[1].items[0]"],
        "array.json": ["[1].items[0]"],
        nested.name: ["items[1].items[0]", "items[1].items[1].items[0]"],
        "dump.yaml": ["line 4: items[0]"],
    }


def test_strict_refuses_the_first_problem(tmp_path: Path) -> None:
    path = write(tmp_path, node("a"), node("a"))
    with pytest.raises(InputError, match=r"dump.json: items\[1\]: duplicate Node a"):
        ClusterObjects.load(path, strict=True)


def test_yaml_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("apiVersion: v1\nkind: Node # é\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"latin\.yaml: line 2: not UTF-8 text"):
        ClusterObjects.load(path)
    path = tmp_path / "latin.json"
    path.write_bytes('{"apiVersion": "v1"}\n{"kind": "Node é"}'.encode("latin-1"))
    with pytest.raises(InputError, match=r"latin\.json: line 2: not UTF-8 text"):
        ClusterObjects.load(path)


def test_input_without_nodes_and_without_problems_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no nodes, expected the output of kubectl get nodes,pods -A -o json$"):
        ClusterObjects.load(write(tmp_path, pod("p")))


def test_a_node_with_an_invalid_amount_is_left_out_with_its_pods(tmp_path: Path) -> None:
    cluster = ClusterObjects.load(write(tmp_path, node("bad", cpu="4x"), node("a"), pod("p", nodeName="bad"), pod("q")))
    assert [n.metadata.name for n in cluster.nodes] == ["a"]
    assert problems(cluster) == [
        'dump.json: items[0]: invalid Node: status.allocatable[cpu]: "4x" is not a resource quantity (expected a number'
        ' such as "2", "500m" or "1.5Gi")',
        "dump.json: items[2]: Pod default/p is on node bad, which is not in the input",
    ]


def test_finished_pods_and_kinds_without_influence_are_counted(tmp_path: Path) -> None:
    finished = {**pod("done"), "status": {"phase": "Succeeded"}}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    cluster = ClusterObjects.load(write(tmp_path, node("a"), finished, config_map))
    assert not problems(cluster)
    assert list(cluster.summary.lines()) == [
        "read 1 Node",
        "left out 1 finished pod",
        "ignored 1 ConfigMap: scheduling does not depend on them",
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"kind": "List", "apiVersion": "v1",\n "items": [{"kind": "No', "line 2: the JSON ends early"),
        ('{"kind": "List",\n "apiVersion" "v1"}', "line 2: invalid JSON"),
        ("kind: Node\nmetadata: [a\n", "line 3: invalid YAML"),
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("just text", "has no nodes"),
    ],
)
def test_a_file_that_does_not_parse_is_refused_with_its_line(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        ClusterObjects.load(path)
    assert str(refused.value).startswith(str(path))
    assert problem in str(refused.value)


def test_a_missing_file_and_a_folder_without_manifests_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.json: cannot be read: No such file"):
        ClusterObjects.load(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"no manifests, expected files that end in .json"):
        ClusterObjects.load(tmp_path)


def test_a_priority_class_that_a_dump_lacks_is_learned_from_its_pods(tmp_path: Path) -> None:
    placed = pod("old", nodeName="a", schedulerName="default-scheduler", priorityClassName="gold", priority=7)
    cluster = ClusterObjects.load(write(tmp_path, node("a"), placed, pod("new", priorityClassName="gold")))
    assert [p.spec.priority for p in cluster.pods] == [7, 7]
