"""The offline commands: forms of output, exit status, and what goes to standard error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from core_tests.engine.input.manifests import Object, node, pod, workload, write
from kubestow.cli import main
from kubestow_lab.cli.capacity import cluster_capacity
from kubestow_lab.cli.genpod import genpod_script
from lab_tests.capacity.test_capacity import template_manifest
from lab_tests.what_if.test_node_removal import owned


class Run(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    def run_command(*arguments: object, script: Callable[..., None] = main) -> Run:
        with pytest.raises(SystemExit) as exited:
            script(list(map(str, arguments))) if script is main else script()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Run(int(exited.value.code or 0), out, err)

    return run_command


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A cluster of two nodes, a deployment of which one pod does not fit, and a pod template."""
    return {
        "dump": write(tmp_path, node("a", cpu="1"), node("b", cpu="1"), name="dump.json"),
        "deploy": write(tmp_path, workload("Deployment", "web", replicas=5, cpu="500m"), name="deploy.json"),
        "pod": write(tmp_path, template_manifest(), name="pod.json"),
        "folder": tmp_path / "out",
    }


def test_simulate_prints_a_table_by_default(run: Callable[..., Run], files: dict[str, Path]) -> None:
    result = run("simulate", "--cluster", files["dump"], "--workload", files["deploy"], "--seed", 1)
    assert result.status == 0
    assert "4 of 5 pods placed, 1 pending; 2 of 2 nodes in use" in result.out
    assert "2 Insufficient cpu" in result.out
    assert result.err.splitlines() == ["cluster: read 2 Node", "workload: read 1 Deployment"]


def test_simulate_writes_json_yaml_and_csv(run: Callable[..., Run], files: dict[str, Path]) -> None:
    arguments = ("simulate", "--cluster", files["dump"], "--workload", files["deploy"])
    report = json.loads(run(*arguments, "-o", "json").out)
    assert report["summary"]["pods"] == {"running": 4, "completed": 0, "pending": 1, "preempted": 0}
    assert {p["node"] for p in report["pods"]} == {"a", "b", ""}
    manifests = yaml.safe_load(run(*arguments, "-o", "yaml").out)
    assert [item["kind"] for item in manifests["items"]].count("Pod") == 5
    assert run(*arguments, "-o", f"csv={files['folder']}").status == 0
    with (files["folder"] / "pods.csv").open(newline="") as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["Running"] * 4 + ["Pending"]


def test_parquet_has_the_same_tables_as_csv(run: Callable[..., Run], files: dict[str, Path]) -> None:
    pl = pytest.importorskip("polars")
    arguments = ("simulate", "--cluster", files["dump"], "--workload", files["deploy"])
    assert run(*arguments, "-o", f"parquet={files['folder']}", "-o", f"csv={files['folder']}").status == 0
    for table in ("pods", "nodes", "timeline"):
        stored, text = (files["folder"] / f"{table}{suffix}" for suffix in (".parquet", ".csv"))
        found = pl.read_parquet(stored)
        with text.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert found.columns == list(rows[0])
        assert len(found) == len(rows)


def test_forms_can_be_written_to_files(run: Callable[..., Run], files: dict[str, Path], tmp_path: Path) -> None:
    arguments = ("simulate", "--cluster", files["dump"], "--workload", files["deploy"])
    targets = {form: tmp_path / f"out.{form}" for form in ("table", "json", "yaml", "html")}
    result = run(*arguments, *(option for form in targets for option in ("-o", f"{form}={targets[form]}")))
    assert (result.status, result.out) == (0, "")
    assert f"wrote {targets['html']}" in result.err
    assert targets["table"].read_text() == run(*arguments).out
    assert targets["json"].read_text() == run(*arguments, "-o", "json").out
    assert targets["yaml"].read_text() == run(*arguments, "-o", "yaml").out
    assert targets["html"].read_text().startswith("<!DOCTYPE html>")
    unwritable = run(*arguments, "-o", f"html={tmp_path / 'none' / 'out.html'}")
    assert (unwritable.status, "out.html: cannot be written: No such file" in unwritable.err) == (1, True)
    for wrong in ("html", "html=", "json=", "csv", "pdf=x"):
        assert run(*arguments, "-o", wrong).status == 2


def test_the_resulting_cluster_is_input_again(run: Callable[..., Run], files: dict[str, Path], tmp_path: Path) -> None:
    result = tmp_path / "after.yaml"
    run("simulate", "--cluster", files["dump"], "--workload", files["deploy"], "-o", f"yaml={result}")
    [waiting] = [
        item["metadata"]["name"]
        for item in yaml.safe_load(result.read_text())["items"]
        if item["kind"] == "Pod" and "nodeName" not in item["spec"]
    ]
    report = tmp_path / "explained.html"
    explained = run("explain", waiting, "--cluster", result, "-o", "table", "-o", f"html={report}")
    assert "fits on 0 of 2 nodes" in explained.out
    assert f"Pod default/{waiting}" in report.read_text()


# -- compare ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def configs(tmp_path: Path) -> dict[str, Path]:
    """The default configuration, and one whose only profile no pod has."""
    header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text(header)
    b.write_text(header + "profiles: [{schedulerName: another}]\n")
    return {"a": a, "b": b}


def test_compare_fails_if_a_threshold_is_crossed(
    run: Callable[..., Run], files: dict[str, Path], configs: dict[str, Path]
) -> None:
    arguments = ("compare", "--cluster", files["dump"], "--workload", files["deploy"])
    worse = (*arguments, "--config", configs["a"], "--config", configs["b"])
    crossed = run(*worse, "--fail-if", "pending > baseline", "-o", "markdown")
    assert crossed.status == 1
    assert "| `pending` | 1 | 5 | +4 | worse |" in crossed.out
    assert "kubestow: threshold crossed: pending > baseline: pending is 5, the limit 1" in crossed.err
    assert run(*worse).status == 0
    assert run(*worse, "--fail-if", "pending > baseline * 5", "--fail-if", "won > 0").status == 0
    better = run(*arguments, "--config", configs["b"], "--config", "", "--fail-if", "pending > baseline", "-o", "json")
    report = json.loads(better.out)
    assert better.status == 0
    assert (report["baseline"]["name"], report["candidate"]["name"]) == (str(configs["b"]), "default configuration")
    assert report["changes"]["won"] == 4


def test_compare_has_all_forms(
    run: Callable[..., Run], files: dict[str, Path], configs: dict[str, Path], tmp_path: Path
) -> None:
    inputs = ("--cluster", files["dump"], "--workload", files["deploy"])
    arguments = ("compare", *inputs, "--config", configs["a"], "--config", configs["b"], "--fail-if", "lost > 9")
    report = tmp_path / "report.html"
    table = run(*arguments, "-o", "table", "-o", f"html={report}", "-o", f"junit={tmp_path / 'junit.xml'}")
    assert "4 pods pending in the candidate only" in table.out
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert 'tests="1" failures="0"' in (tmp_path / "junit.xml").read_text()
    assert yaml.safe_load(run(*arguments, "-o", "yaml").out) == json.loads(run(*arguments, "-o", "json").out)


def test_compare_refuses_wrong_usage(
    run: Callable[..., Run], files: dict[str, Path], configs: dict[str, Path], tmp_path: Path
) -> None:
    arguments = ("compare", "--cluster", files["dump"], "--workload", files["deploy"])
    pair = ("--config", configs["a"], "--config", configs["b"])
    for usage, problem in (
        ((), "baseline and candidate are the same, expected --config"),
        ((*pair, "--baseline", configs["a"]), "expected --config at most once with --baseline"),
        ((*pair, *pair), "expected --config at most twice"),
        ((*pair, "--fail-if", "pendig > 1"), "no metric 'pendig', the metrics are: pending, placed"),
        ((*pair, "--fail-if", "utilisation.gpu > 1"), "utilisation.cpu, utilisation.memory"),
        ((*pair, "--fail-if", "pending > baseline baseline"), "column 20: expected an operator or the end"),
        ((*pair, "-o", "pdf"), "'pdf' is not one of table, json, yaml, markdown, junit, sarif, html=FILE"),
    ):
        refused = run(*arguments, *usage)
        assert (refused.status, refused.out) == (2, "")
        assert problem in refused.err
    configs["b"].write_text("kind: Other\n")
    assert run(*arguments, *pair).status == 1
    assert run(*arguments, "--config", configs["a"], "--config", tmp_path / "none.yaml").status == 1


def test_compare_loads_two_versions_of_a_plugin_from_files(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path
) -> None:
    versions = []
    for version, rejected in (("old", "none"), ("new", "a")):
        path = tmp_path / version / "zones.py"
        path.parent.mkdir()
        path.write_text(
            "from kubestow.framework.interface import NodeFilterPlugin\n"
            "from kubestow.framework.status import Status\n"
            "class Zones(NodeFilterPlugin):\n"
            "    name = 'Zones'\n"
            "    def filter_node(self, state, pod, node_info):\n"
            f"        wrong = node_info.node.metadata.name == {rejected!r}\n"
            "        return Status.unschedulable('wrong zone') if wrong else None\n"
        )
        versions.append(f"{path}:Zones")
    config = tmp_path / "sched.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {multiPoint: {enabled: [{name: Zones}]}}}]\n"
    )
    arguments = ("compare", "--cluster", files["dump"], "--workload", files["deploy"])
    plugins = ("--baseline-plugin", versions[0], "--candidate-plugin", versions[1])
    result = run(*arguments, "--config", config, *plugins, "-o", "json", "--ties", "name")
    report = json.loads(result.out)
    assert report["metrics"]["lost"]["candidate"] == 2
    assert report["candidate"]["name"] == versions[1]
    missing = run(*arguments, "--candidate-plugin", f"{tmp_path / 'none.py'}:Zones")
    assert (missing.status, "none.py:Zones: cannot be imported: FileNotFoundError" in missing.err) == (1, True)


def test_simulate_exits_with_1_if_more_pods_are_pending_than_allowed(
    run: Callable[..., Run], files: dict[str, Path]
) -> None:
    arguments = ("simulate", "--cluster", files["dump"], "--workload", files["deploy"])
    assert run(*arguments, "--max-pending", 1).status == 0
    crossed = run(*arguments, "--max-pending", 0)
    assert (crossed.status, "1 pod is pending, more than --max-pending=0" in crossed.err) == (1, True)


_FAILING_PLUGIN = """
from kubestow.framework.interface import ScorePlugin

class Failing(ScorePlugin):
    name = "Failing"
    def score(self, state, pod, nodes):
        raise ValueError(f"broken for {pod.key}")
"""


@pytest.fixture
def failing(tmp_path: Path, files: dict[str, Path]) -> tuple[object, ...]:
    """Options that have a plugin fail for every pod."""
    (tmp_path / "failing.py").write_text(_FAILING_PLUGIN)
    profile = {"plugins": {"score": {"enabled": [{"name": "Failing"}]}}}
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "failing.yaml").write_text(yaml.dump({**header, "profiles": [profile]}))
    return (
        *("--cluster", files["dump"], "--config", tmp_path / "failing.yaml"),
        *("--plugin", f"{tmp_path / 'failing.py'}:Failing"),
    )


def test_a_plugin_that_fails_is_reported_once_with_a_count_and_exits_with_1(
    run: Callable[..., Run], files: dict[str, Path], failing: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    result = run("simulate", *failing, "--workload", files["deploy"], "-o", "json")
    assert result.status == 1
    assert [record.exc_info is not None for record in caplog.records] == [True]
    (line,) = [line for line in result.err.splitlines() if line.startswith("kubestow: ")]
    (failure,) = json.loads(result.out)["pluginFailures"]
    assert (failure["plugin"], failure["count"] > 5) == ("Failing", True)
    assert line == f"kubestow: {failure['message']} ({failure['count']:,} such failures)"
    config = failing[failing.index("--config") + 1]
    others = tuple(each for each in failing if each not in ("--config", config))
    compared = run("compare", *others, "--workload", files["deploy"], "--config", "", "--config", config)
    assert (compared.status, compared.err.count("ValueError: broken")) == (1, 1)


def test_a_plugin_that_fails_while_nodes_are_drained_exits_with_1(
    run: Callable[..., Run], tmp_path: Path, failing: tuple[object, ...]
) -> None:
    dump = write(tmp_path, *(node(name) for name in "abc"), owned("web", "a"), name="drained.json")
    options = [dump if each == failing[1] else each for each in failing]
    result = run("what-if", "drain", "a", *options)
    assert (result.status, result.err.count("kubestow: pod default/")) == (1, 1)


def test_pods_that_are_invalid_or_that_admission_refuses_count_as_pending(
    run: Callable[..., Run], tmp_path: Path, files: dict[str, Path]
) -> None:
    limits: Object = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}}
    limits["spec"] = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    quota: Object = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    quota |= {"spec": {"hard": {"requests.cpu": "700m"}}, "status": {"used": {"requests.cpu": "100m"}}}
    objects = [workload("Deployment", "web", replicas=3, cpu="200m"), pod("big", cpu="2"), pod("odd", cpu="1 core")]
    arguments = ("simulate", "--cluster", write(tmp_path, node("a"), quota, name="c.json"), "--max-pending")
    path = write(tmp_path, limits, *objects, name="w.json")
    result = run(*arguments, 1, "--workload", path)
    assert result.status == 1
    assert result.out.startswith("3 of 5 pods placed, 2 refused; ")
    assert 'pods "big" is forbidden: maximum cpu usage per Container is 1, but request is 2' in result.err
    assert "0 pods are pending and 2 refused, more than --max-pending=1" in result.err
    assert run(*arguments, 2, "--workload", path).status == 0
    result = run(*arguments, 3, "--workload", write(tmp_path, *objects[:1], pod("p"), name="more.json"))
    assert (
        'pods "p" is forbidden: exceeded quota: few, requested: requests.cpu=100m, used: requests.cpu=700m'
        in result.err
    )
    result = run("compare", *arguments[1:3], "--workload", path, "--config", "", "--fail-if", "pending > 1",
                 "--config", write_default(tmp_path))  # fmt: skip
    assert result.status == 1


def test_workloads_of_kinds_without_a_known_controller_are_named(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path
) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    rollout: Object = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web"}}
    rollout["spec"] = {"replicas": 3, "template": template}
    other: Object = {"apiVersion": "example.com/v1", "kind": "Theme", "metadata": {"name": "t"}, "spec": {"a": 1}}
    arguments = ("--cluster", files["dump"], "--workload")
    remark = "remark: 1 workload was not expanded into pods: Rollout default/web"
    path = write(tmp_path, rollout, other, pod("p"), name="rollout.json")
    assert remark in run("simulate", *arguments, path).err
    assert remark in run("what-if", "add-nodes", *arguments, path, "--like", "a").err
    rollout["spec"] = {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    alone = run("simulate", *arguments, write(tmp_path, rollout, name="alone.json"))
    assert (alone.status, "; 1 workload was not expanded into pods" in alone.err) == (1, True)


def test_a_plugin_that_is_no_module_is_perhaps_in_a_file(run: Callable[..., Run], files: dict[str, Path]) -> None:
    result = run("simulate", "--cluster", files["dump"], "--plugin", "zones_of_mine:ZoneCost")
    assert result.status == 1
    expected = "No module named 'zones_of_mine'; a class in a file is named as zones_of_mine.py:ZoneCost"
    assert result.err.rstrip().endswith(expected)


def write_default(tmp_path: Path) -> Path:
    path = tmp_path / "default.yaml"
    path.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    return path


def test_bad_input_exits_with_1_and_wrong_usage_with_2(run: Callable[..., Run], tmp_path: Path) -> None:
    missing = run("simulate", "--cluster", tmp_path / "none.json")
    assert (missing.status, "none.json: cannot be read" in missing.err) == (1, True)
    duplicates = write(tmp_path, node("a"), node("a"))
    strict = run("simulate", "--cluster", duplicates, "--strict")
    assert (strict.status, "items[1]: duplicate Node a" in strict.err) == (1, True)
    invalid = tmp_path / "config.yaml"
    invalid.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nfoo: 1\n")
    assert run("simulate", "--cluster", duplicates, "--config", invalid).status == 1
    assert run("simulate").status == 2
    assert run("simulate", "--cluster", duplicates, "-o", "pdf").status == 2
    assert run("simulate", "--cluster", duplicates, "--trace", tmp_path).status == 2


def test_problems_are_listed_on_standard_error(run: Callable[..., Run], tmp_path: Path) -> None:
    result = run("simulate", "--cluster", write(tmp_path, node("a"), node("a"), pod("p", nodeName="gone")))
    assert result.status == 0
    assert "cluster: left out 2 objects with problems" in result.err
    assert "items[2]: Pod default/p is on node gone, which is not in the input" in result.err


def test_capacity_has_the_forms_of_cluster_capacity(run: Callable[..., Run], files: dict[str, Path]) -> None:
    arguments = ("capacity", "--cluster", files["dump"], "--podspec", files["pod"])
    assert run(*arguments).out == "4\n"
    assert "The cluster can schedule 4 instance(s) of the pod small." in run(*arguments, "--verbose").out
    report = json.loads(run(*arguments, "-o", "json", "--max-limit=3").out)
    assert report["status"]["failReason"]["failType"] == "LimitReached"
    assert report["status"]["pods"][0]["failSummary"] is None
    assert yaml.safe_load(run(*arguments, "-o", "yaml").out)["status"]["replicas"] == 4
    unknown = run(*arguments, "-o", "table")
    assert (unknown.status, 'output format "table" not recognized' in unknown.err) == (1, True)
    assert run(*arguments, "--exclude-nodes", "a,b").out == "0\n"
    assert run("capacity", "--cluster", files["dump"]).status == 2


def test_the_script_cluster_capacity_follows_the_conventions_of_that_program(
    run: Callable[..., Run], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def script(*arguments: object) -> Run:
        monkeypatch.setattr("sys.argv", ["cluster-capacity", *map(str, arguments)])
        return run(script=cluster_capacity)

    placed = script("--cluster", files["dump"], "--podspec", files["pod"])
    version, count = placed.out.splitlines()
    assert (version.startswith("Cluster capacity version {"), count, placed.status) == (True, "4", 0)
    bare = write(tmp_path, pod("bare"), name="bare.json")
    refused = script("--cluster", files["dump"], "--podspec", bare)
    assert (refused.status, refused.out.splitlines()[1]) == (
        0,
        'Failed to parse pod spec file: Invalid pod: "Required value: spec.terminationGracePeriodSeconds, '
        'Required value: spec.containers[0].imagePullPolicy"',
    )
    missing = script("--cluster", files["dump"])
    assert (missing.status, missing.out.splitlines()[1]) == (0, "Pod spec file is missing")


def test_capacity_completes_an_ordinary_pod_and_the_script_refuses_it(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = pod("web")
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "300m"}}
    path = write(tmp_path, manifest, name="ordinary.json")
    arguments = ("--podspec", path, "--cluster", files["dump"])
    report = json.loads(run("capacity", *arguments, "-o", "json").out)
    (template,) = report["spec"]["templates"]
    assert report["status"]["replicas"] == 6, "limits become requests, as in the API server"
    assert template["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    monkeypatch.setattr(sys, "argv", ["cluster-capacity", *map(str, arguments)])
    strict = run(script=cluster_capacity)
    assert "Required value: spec.terminationGracePeriodSeconds" in strict.out


def test_what_genpod_prints_is_a_template_for_capacity(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path
) -> None:
    limits: Object = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}}
    limits["spec"] = {"limits": [{"type": "Pod", "max": {"cpu": "500m"}}]}
    path = tmp_path / "generated.yaml"
    path.write_text(run("genpod", "--cluster", write(tmp_path, limits, name="limits.json")).out)
    assert run("capacity", "--podspec", path, "--cluster", files["dump"]).out == "4\n"
    refused = run("capacity", "--podspec", files["pod"], "--cluster", write(tmp_path, node("a"), {**limits, "spec": {
        "limits": [{"type": "Container", "max": {"cpu": "10m"}}]}}, name="limited.json"))  # fmt: skip
    assert (refused.status, "is forbidden: maximum cpu usage per Container is 10m" in refused.err) == (1, True)


def test_genpod_prints_the_pod_of_a_namespace(
    run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "t"},
        "spec": limits,
    }
    path = write(tmp_path, limit_range)
    found = yaml.safe_load(run("genpod", "--cluster", path, "--namespace", "t").out)
    assert found["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}
    monkeypatch.setattr("sys.argv", ["genpod", "--cluster", str(path), "--namespace", "t", "-o", "json"])
    assert json.loads(run(script=genpod_script).out) == found
    assert run("genpod", "--cluster", path).status == 1


def test_several_templates_have_an_entry_each(run: Callable[..., Run], files: dict[str, Path], tmp_path: Path) -> None:
    large = write(tmp_path, template_manifest("large", cpu="1"), name="large.json")
    arguments = (
        "capacity",
        "--podspec",
        files["pod"],
        "--podspec",
        large,
        "--cluster",
        files["dump"],
        "--ties",
        "name",
    )
    assert run(*arguments).out.splitlines() == ["small: 2", "large: 1"]
    report = json.loads(run(*arguments, "--order", "sequence", "-o", "json").out)
    assert [(entry["podName"], bool(entry["replicasOnNodes"])) for entry in report["status"]["pods"]] == [
        ("small", True),
        ("large", False),
    ]
    assert (report["spec"]["order"], report["status"]["replicas"]) == ("sequence", 4)
    twice = run("capacity", "--podspec", large, "--podspec", large, "--cluster", files["dump"])
    assert (twice.status, "two templates have the name default/large" in twice.err) == (1, True)
    assert run("capacity", "--podspec", large, "--gang-size", "2", "--cluster", files["dump"]).out == "large: 2\n"


def test_what_if_a_node_is_drained_or_lost(run: Callable[..., Run], tmp_path: Path) -> None:
    zones = [{"topology.kubernetes.io/zone": zone} for zone in ("east", "west")]
    nodes = [node(name, cpu="2", labels=labels) for name, labels in zip("ab", zones, strict=True)]
    dump = write(tmp_path, *nodes, owned("web", "a", cpu="1"), owned("large", "a", cpu="2", app="large"))
    drained = run("what-if", "drain", "a", "--cluster", dump)
    assert drained.status == 0
    assert drained.out.startswith("draining a: 1 come back on other nodes, 1 stay pending\n")
    lost = run("what-if", "lose", "--zone", "east", "--cluster", dump, "-o", "json", "--max-pending", "0")
    assert (lost.status, json.loads(lost.out)["summary"]["Pending"]) == (1, 1)
    assert lost.err == "kubestow: 1 pod does not come back, more than --max-pending=0\n"
    assert run("what-if", "lose", "--cluster", dump).status == 2
    unknown = run("what-if", "drain", "c", "--cluster", dump)
    assert (unknown.status, unknown.err) == (1, "kubestow: node c: no such node in the cluster\n")


def test_what_if_nodes_are_added(run: Callable[..., Run], files: dict[str, Path], tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "nodePools:\n- {name: large, price: 3, allocatable: {cpu: 4, memory: 8Gi}}\n"
        "- {name: small, price: 1, allocatable: {cpu: 1, memory: 2Gi}}\n"
    )
    arguments = ("what-if", "add-nodes", "--cluster", files["dump"], "--workload", files["deploy"])
    found = run(*arguments, "--node-pool", prices)
    expected = (
        "4 of 5 pods fit without further nodes; with 1 small all do, at a price of 1 (no less than 0.375 is possible)"
    )
    assert (found.status, found.out.splitlines()[0]) == (0, expected)
    document = yaml.safe_load(run(*arguments, "--like", "a", "-o", "yaml").out)
    assert (document["mix"], document["price"]) == ({"like-a": 1}, None)
    tiny = tmp_path / "tiny.yaml"
    tiny.write_text("nodePools: [{name: tiny, allocatable: {cpu: 100m}}]")
    never = run(*arguments, "--node-pool", tiny)
    assert (never.status, "; 1 fit with no number of nodes" in never.out) == (1, True)


def test_tune_prints_the_front_and_writes_the_best(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path
) -> None:
    space, best = tmp_path / "space.yaml", tmp_path / "best.yaml"
    space.write_text("args: {NodeResourcesFit: {scoringStrategy.type: [LeastAllocated, MostAllocated]}}")
    arguments = ("tune", "--space", space, "--cluster", files["dump"], "--workload", files["deploy"], "--processes", 1)
    found = run(*arguments, "--objective", "pending", "--write-config", best)
    assert found.status == 0
    assert found.out.startswith("2 of 2 configurations tried; no trial beats the base configuration\n")
    assert f"wrote {best}" in found.err
    assert run("config", "check", best).status == 0
    assert run("simulate", "--cluster", files["dump"], "--config", best).status == 0
    report = json.loads(run(*arguments, "-o", "json").out)
    assert [trial["objectives"]["pending"] for trial in report["trials"]] == [1, 1, 1]
    space.write_text("weights: {NodeResourcesFit: [x]}")
    refused = run(*arguments)
    assert (refused.status, refused.err) == (
        1,
        f"kubestow: {space}: weights.NodeResourcesFit[0]: expected `int`, got `str`\n",
    )


def test_tune_on_dask_workers_finds_the_same(run: Callable[..., Run], files: dict[str, Path], tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    space = tmp_path / "space.yaml"
    space.write_text("weights: {NodeResourcesFit: [0, 1, 5]}")
    arguments = ("tune", "--space", space, "--cluster", files["dump"], "--workload", files["deploy"], "-o", "json")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, protocol="inproc"
    ) as cluster:
        found = run(*arguments, "--dask", cluster.scheduler_address)
    assert (found.status, found.out) == (0, run(*arguments, "--processes", 1).out)


def test_tune_says_why_there_are_no_dask_workers(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("weights: {NodeResourcesFit: [0, 1]}")
    arguments = ("tune", "--space", space, "--cluster", files["dump"], "--dask")
    both = run(*arguments, "127.0.0.1:1", "--processes", 1)
    assert (both.status, "--dask and --processes exclude each other" in both.err) == (2, True)
    monkeypatch.setitem(sys.modules, "distributed", None)
    missing = run(*arguments, "127.0.0.1:1")
    assert (missing.status, missing.err.splitlines()[-1]) == (
        1,
        "kubestow: --dask: needs Dask, install kubestow-lab[dask]",
    )


def test_tune_runs_plugins_of_files(run: Callable[..., Run], files: dict[str, Path], tmp_path: Path) -> None:
    plugin, space = tmp_path / "zones.py", tmp_path / "space.yaml"
    plugin.write_text(
        "import numpy as np\n"
        "from kubestow.framework.interface import ScorePlugin\n"
        "class Even(ScorePlugin):\n"
        "    name = 'Even'\n"
        "    def score(self, state, pod, nodes):\n"
        "        return np.full(len(nodes), 50, np.int64)\n"
    )
    space.write_text("weights: {Even: [0, 3]}")
    arguments = ("--space", space, "--cluster", files["dump"], "--workload", files["deploy"], "--processes", 2)
    found = run("tune", *arguments, "--plugin", f"{plugin}:Even")
    assert (found.status, found.out.partition("\n")[0]) == (
        0,
        "2 of 2 configurations tried; no trial beats the base configuration",
    )


def test_the_version_of_the_cluster_decides_unless_another_one_is_given(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    manifest = node("a", cpu="1")
    manifest["status"]["nodeInfo"] = {"kubeletVersion": "v1.33.4"}
    dump = write(tmp_path, manifest, node("b", cpu="1"), pod("p"), name="dump.json")
    result = run("simulate", "--cluster", dump, "-o", "json")
    assert json.loads(result.out)["run"]["emulatedVersion"] == "1.33"
    assert "kubernetes: decides as Kubernetes 1.33: its newest kubelet is v1.33.4\n" in result.err
    for command in (["explain", "p"], ["trace", "p"], ["what-if", "drain", "b"]):
        assert json.loads(run(*command, "--cluster", dump, "-o", "json").out)["emulatedVersion"] == "1.33"
        given = run(*command, "--cluster", dump, "-o", "json", "--emulated-version", "kube=1.34")
        assert (json.loads(given.out)["emulatedVersion"], "kubernetes: " in given.err) == ("1.34", False)


@pytest.mark.parametrize("command", [["simulate"], ["explain", "p"], ["trace", "p"], ["what-if", "drain", "a"]])
def test_gates_without_effect_are_named_once(run: Callable[..., Run], tmp_path: Path, command: list[str]) -> None:
    dump = write(tmp_path, node("a", cpu="1"), node("b", cpu="1"), pod("p"), name="dump.json")
    gates = ("--emulated-version", "1.37", "--feature-gates", "DRADerivedAttributes=true,GenericWorkload=true")
    err = run(*command, "--cluster", dump, *gates).err.splitlines()
    warning = "--feature-gates: warning: enabled but not implemented, so they have no effect: DRADerivedAttributes"
    assert [line for line in err if "gates" in line] == [warning]


def test_every_report_names_the_version_of_the_api_server_that_a_snapshot_has(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path
) -> None:
    snapshot = {
        "kind": "List",
        "apiVersion": "v1",
        "serverVersion": "v1.34.2",
        "items": [node("a", cpu="1"), pod("p")],
    }
    dump, policy = tmp_path / "snapshot.json", tmp_path / "policy.json"
    dump.write_text(json.dumps(snapshot))
    policy.write_text(json.dumps({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": []}))
    template = write(tmp_path, pod("t"), name="template.json")
    for command in (
        ["explain", "p"],
        ["trace", "p"],
        ["what-if", "drain", "a"],
        ["capacity", "--podspec", template],
        ["deschedule", "--dry-run", "--policy-config-file", policy],
    ):
        found = json.loads(run(*command, "--cluster", dump, "-o", "json").out)
        assert (found["emulatedVersion"], found["serverVersion"]) == ("1.34", "v1.34.2"), command
    reports = [tmp_path / name for name in ("simulation.html", "explanation.html", "comparison.html", "comparison.md")]
    run("simulate", "--cluster", dump, "-o", f"html={reports[0]}")
    run("explain", "p", "--cluster", dump, "-o", f"html={reports[1]}")
    versions = ("--emulated-version", "1.33", "--emulated-version", "1.34")
    run("compare", "--cluster", dump, *versions, "-o", f"html={reports[2]}", "-o", f"markdown={reports[3]}")
    for report in reports:
        assert "1.34 (API server v1.34.2)" in report.read_text(), report.name
    published = "1.37 follows the published sources and was not compared with the binary"
    newest = run("explain", "p", "--cluster", dump, "-o", f"html={reports[1]}", "--emulated-version", "1.37")
    assert newest.err.splitlines()[0] == f"kubernetes: {published}"
    assert f"Kubernetes 1.37 (API server v1.34.2; {published})" in reports[1].read_text()
    compared = json.loads(run("compare", "--cluster", dump, *versions, "-o", "json").out)
    assert [compared[side]["run"]["serverVersion"] for side in ("baseline", "candidate")] == ["v1.34.2"] * 2


def test_two_versions_are_compared(run: Callable[..., Run], files: dict[str, Path]) -> None:
    versions = ("--emulated-version", "1.34", "--emulated-version", "1.36")
    compared = run("compare", "--cluster", files["dump"], "--workload", files["deploy"], *versions, "-o", "json")
    sides = [json.loads(compared.out)[side] for side in ("baseline", "candidate")]
    assert [side["run"]["emulatedVersion"] for side in sides] == ["1.34", "1.36"]
    assert [side["name"] for side in sides] == ["Kubernetes 1.34", "Kubernetes 1.36"]


def test_the_version_that_rejects_a_configuration_is_named(
    run: Callable[..., Run], files: dict[str, Path], tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    plugins = "{placementScore: {enabled: [{name: PodGroupPodsCount}]}}"
    header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    config.write_text(f"{header}profiles: [{{plugins: {plugins}}}]\n")
    versions = ("--emulated-version", "1.36", "--emulated-version", "1.35")
    refused = run("compare", "--cluster", files["dump"], "--config", config, *versions)
    assert refused.status == 1
    assert "edit the configuration first" in refused.err
    assert "1.35" in refused.out
    assert "profiles[0].plugins.placementScore" in refused.out


def test_a_gate_that_the_version_does_not_have_is_refused(run: Callable[..., Run], files: dict[str, Path]) -> None:
    gates = ("--feature-gates", "GenericWorkload=true", "--emulated-version", "1.33")
    refused = run("simulate", "--cluster", files["dump"], *gates)
    assert refused.status == 1
    assert "unrecognized feature gate: GenericWorkload" in refused.err


def test_a_defragmentation_plan_and_its_absence(run: Callable[..., Run], tmp_path: Path) -> None:
    """Without the uids that the dump does not have, so that the plan is one for a live cluster too."""
    moving = pod("web", cpu="1", nodeName="a")
    moving["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    ]
    dump = write(tmp_path, node("a", cpu="4"), node("b", cpu="2"), moving, name="fragmented.json")
    gang, larger = (write(tmp_path, pod("gang", cpu=cpu), name=f"gang-{cpu}.json") for cpu in ("4", "5"))

    found = json.loads(run("what-if", "defragment", "--cluster", dump, "--for", gang, "-o", "json").out)
    none = run("what-if", "defragment", "--cluster", dump, "--for", larger)

    [move] = found["moves"]
    expected = {"pod": "default/web", "uid": "", "controller": "ReplicaSet/web", "from": "a", "to": "b", "step": 1}
    assert move == expected
    assert (found["cordon"], found["fewestMoves"]) == (["a"], 1)
    assert (none.status, none.out) == (1, "the workload: no plan: none with at most 20 moves\n")
