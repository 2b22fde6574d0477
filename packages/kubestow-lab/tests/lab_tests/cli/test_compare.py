"""``kubestow compare`` of what people change: one configuration, records, other installations; and its exit status."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from core_tests.engine.input.manifests import Object, node, pod, workload, write
from core_tests.flight_record.records import small_record
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow_lab.simulation.arrivals import rescheduled
from kubestow_lab.simulation.other_installation import Installation, read_result
from lab_tests.cli.test_offline import Run, run
from lab_tests.what_if.test_node_removal import owned

__all__ = ["run"]

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PACKING = (
    "profiles: [{schedulerName: NAME, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
    "{type: MostAllocated, resources: [{name: cpu, weight: 1}]}}}], plugins: {score: {disabled: "
    "[{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}]}}}]\n"
)


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[object, ...]:
    """A cluster of two nodes with a pod on each, and a deployment of three small pods."""
    objects: list[Object] = [node("a"), node("b"), owned("web", "a"), owned("store", "b")]
    dump = write(tmp_path, *objects, name="dump.json")
    deploy = write(tmp_path, workload("Deployment", "web", replicas=3, cpu="500m"), name="deploy.json")
    return ("compare", "--cluster", dump, "--workload", deploy, "--ties", "name")


@pytest.fixture
def packing(tmp_path: Path) -> Path:
    path = tmp_path / "packing.yaml"
    path.write_text(HEADER + PACKING.replace("NAME", "default-scheduler"))
    return path


# -- the baseline ----------------------------------------------------------------------------------------------------


def test_a_single_configuration_is_compared_with_the_default(
    run: Callable[..., Run], inputs: tuple[object, ...], packing: Path
) -> None:
    report = json.loads(run(*inputs, "--config", packing, "-o", "json").out)
    assert [report[side]["name"] for side in ("baseline", "candidate")] == ["default configuration", str(packing)]
    assert report["changes"]["moved"] > 0
    against_itself = json.loads(run(*inputs, "--baseline", packing, "--config", packing, "-o", "json").out)
    assert against_itself["metrics"]["changed"]["candidate"] == 0
    back = json.loads(run(*inputs, "--baseline", packing, "-o", "json").out)
    assert [back[side]["name"] for side in ("baseline", "candidate")] == [str(packing), "default configuration"]


def test_the_default_baseline_has_the_scheduler_names_of_the_candidate(
    run: Callable[..., Run], inputs: tuple[object, ...], tmp_path: Path
) -> None:
    manifest = workload("Deployment", "batch", replicas=3, cpu="500m")
    manifest["spec"]["template"]["spec"]["schedulerName"] = "packing"
    batch = write(tmp_path, manifest, name="batch.json")
    config = tmp_path / "packing.yaml"
    config.write_text(HEADER + PACKING.replace("NAME", "packing"))
    arguments = (*inputs[:3], "--workload", batch, "--ties", "name", "--config")
    report = json.loads(run(*arguments, config, "-o", "json").out)
    assert (report["changes"]["won"], report["changes"]["moved"] > 0) == (0, True)
    explicit = json.loads(run(*arguments, "", "--config", config, "-o", "json").out)
    assert explicit["changes"]["won"] == 3  # the default configuration has no such profile


def test_the_running_pods_are_compared_if_asked_for(
    run: Callable[..., Run], inputs: tuple[object, ...], packing: Path
) -> None:
    arguments = (*inputs[:3], "--config", packing, "-o", "json")
    assert json.loads(run(*arguments).out)["metrics"]["placed"]["candidate"] == 0
    report = json.loads(run(*arguments, "--reschedule").out)
    assert report["metrics"]["placed"]["candidate"] == 2
    assert report["metrics"]["nodesUsed"]["candidate"] == 1
    simulated = run("simulate", *inputs[1:3], "--config", packing, "--reschedule", "-o", "json")
    assert json.loads(simulated.out)["summary"]["nodesUsed"] == 1


def test_the_running_pods_of_other_schedulers_stay(tmp_path: Path) -> None:
    """And those that nothing would create elsewhere, or that cannot leave their nodes."""
    objects = [owned("web", "a"), owned("other", "a"), owned("agent", "a", kind="DaemonSet"), pod("bare", nodeName="a")]
    objects += [owned("leaving", "a"), owned("devices", "a"), owned("waiting", "")]
    objects[1]["spec"]["schedulerName"] = "other"
    objects[4]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    objects[5]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    dump = ClusterObjects.load(write(tmp_path, node("a"), *objects, name="dump.json"))
    found = rescheduled(dump, {"default-scheduler"})
    assert {each.metadata.name for each in dump.pods if each.spec.node_name} >= {"web", "other", "bare"}
    pending = {each.metadata.name for each in found.pods if not each.spec.node_name}
    assert pending == {"web", "waiting"}


def test_what_a_service_does_not_document_is_in_the_report(
    run: Callable[..., Run], inputs: tuple[object, ...], tmp_path: Path
) -> None:
    config = tmp_path / "gke.json"
    config.write_text('{"autoscaling": {"autoscalingProfile": "OPTIMIZE_UTILIZATION"}}')
    text = run(*inputs, "--config", config, "-o", "markdown").out
    assert text.count("GKE documents the preference") == 1
    assert "not its weights" in text


# -- exit status -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "status"), [(("any",), 1), (("moved", "lost"), 1), (("lost",), 0), (("pending", "preempted"), 0)]
)
def test_named_changes_fail_the_command(
    run: Callable[..., Run], inputs: tuple[object, ...], packing: Path, changes: tuple[str, ...], status: int
) -> None:
    options = [option for change in changes for option in ("--fail-on", change)]
    found = run(*inputs, "--config", packing, *options, "-o", "markdown")
    assert (found.status, found.out.count("crossed**") == status) == (status, True)


def test_what_must_be_edited_first_is_one_table_in_every_form(
    run: Callable[..., Run], inputs: tuple[object, ...], tmp_path: Path
) -> None:
    config = tmp_path / "eks.yaml"
    config.write_text(
        "kubeSchedulerConfig:\n  nodeResourcesFit:\n    scoringStrategy:\n      type: Densest\n"
        "      resources: [{name: cpu, weight: 500}]\n"
    )
    forms = {form: tmp_path / form for form in ("markdown", "junit", "sarif", "json", "table")}
    outputs = [option for form, path in forms.items() for option in ("-o", f"{form}={path}")]
    versions = ("--emulated-version", "1.34", "--emulated-version", "1.36")
    found = run(*inputs, "--config", config, *versions, *outputs, "--fail-if", "lost > 0")
    assert found.status == 1
    assert f"edit the configuration first: {config} (baseline, Kubernetes 1.34) has 2 problems; " in found.err
    markdown = forms["markdown"].read_text()
    rows = [line for line in markdown.splitlines() if str(config) + ":" in line]
    assert len(rows) == 2  # of both minor versions
    assert f"`{config}:4:7`" in rows[0] and "EKS accepts LeastAllocated and MostAllocated" in rows[0]
    assert rows[0].endswith("| baseline (1.34), candidate (1.36) |")
    assert "must be edited" in forms["table"].read_text()
    assert ET.parse(forms["junit"]).getroot().get("failures") == "2"
    (sarif,) = json.loads(forms["sarif"].read_text())["runs"]
    places = [result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in sarif["results"]]
    assert places == [4, 5, 4, 5]
    sides = json.loads(forms["json"].read_text())["configurations"]
    assert [(side["role"], len(side["errors"])) for side in sides] == [("baseline", 2), ("candidate", 2)]
    checked = run("config", "check", config, "--emulated-version", "1.36")
    assert [line.split(": ")[0] for line in checked.out.splitlines()] == [f"{config}:4:7", f"{config}:5:31"]


# -- records ---------------------------------------------------------------------------------------------------------


def test_a_record_is_decided_by_both(run: Callable[..., Run], packing: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.bin"
    record.write_bytes(small_record().content())
    arguments = ("compare", "--record", record, "--config", packing)
    found = run(*arguments, "-o", "json", "--fail-on", "moved")
    report = json.loads(found.out)
    assert (found.status, report["baseline"]["name"]) == (1, "recorded configuration")
    assert report["changes"]["moved"] > 0
    assert report["metrics"].keys() == {"pending", "placed", "lost", "won", "moved", "changed", "preempted"}
    assert "pods on another node" in run(*arguments).out
    same = json.loads(run(*arguments, "--baseline", packing, "-o", "json").out)
    assert same["metrics"]["changed"]["candidate"] == 0
    page = run(*arguments, "-o", f"html={tmp_path / 'page.html'}")
    assert (page.status, "a comparison of a record has no page" in page.err) == (1, True)
    for option in ("--cluster", "--workload", "--candidate-path"):
        assert run(*arguments, option, tmp_path / "dump.json").status == 2
    assert run(*arguments, "--reschedule").status == 2
    assert run(*arguments, "--fail-if", "nodesUsed > 1").status == 2


# -- other installations ---------------------------------------------------------------------------------------------


def plugin_files(folder: Path, rejected: str) -> dict[str, str]:
    """A package of two modules, so that another version of it cannot be loaded as one file."""
    return {
        "zoning/__init__.py": "",
        "zoning/nodes.py": f"REJECTED = {rejected!r}\n",
        "zoning/plugin.py": (
            "from kubestow.framework.interface import NodeFilterPlugin\n"
            "from kubestow.framework.status import Status\n"
            "from zoning.nodes import REJECTED\n"
            "class Zoning(NodeFilterPlugin):\n"
            "    name = 'Zoning'\n"
            "    def filter_node(self, state, pod, node_info):\n"
            "        wrong = node_info.node.metadata.name == REJECTED\n"
            "        return Status.unschedulable('wrong zone') if wrong else None\n"
        ),
    }


def test_two_versions_of_a_package_are_compared_from_a_folder_and_a_wheel(
    run: Callable[..., Run], inputs: tuple[object, ...], tmp_path: Path
) -> None:
    folder, wheel = tmp_path / "released", tmp_path / "zoning-2.0-py3-none-any.whl"
    (folder / "zoning").mkdir(parents=True)
    for name, text in plugin_files(folder, "none").items():
        (folder / name).write_text(text)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in plugin_files(folder, "a").items():
            archive.writestr(name, text)
    config = tmp_path / "sched.yaml"
    config.write_text(HEADER + "profiles: [{plugins: {multiPoint: {enabled: [{name: Zoning}]}}}]\n")
    paths = ("--baseline-path", folder, "--candidate-path", wheel)
    found = run(*inputs, "--config", config, "--plugin", "zoning.plugin:Zoning", *paths, "-o", "json")
    report = json.loads(found.out)
    assert [report[side]["name"] for side in ("baseline", "candidate")] == [str(folder), str(wheel)]
    nodes = {pod["candidate"]["node"] for pod in report["pods"]}
    assert (report["metrics"]["placed"]["candidate"], nodes) == (3, {"b"})


def test_another_interpreter_simulates_its_side(
    run: Callable[..., Run], inputs: tuple[object, ...], packing: Path, tmp_path: Path
) -> None:
    environment = Path(sys.executable).parent.parent
    arguments = (*inputs, "--candidate-python", environment)
    report = json.loads(run(*arguments, "--config", packing, "-o", "json").out)
    assert [report[side]["name"] for side in ("baseline", "candidate")] == ["baseline", str(environment)]
    assert report["metrics"]["changed"]["candidate"] == 0
    assert report["metrics"].keys() > {"zoneSkew", "utilisation.cpu", "meanWait"}
    missing = run(*inputs, "--candidate-python", tmp_path / "none")
    assert (missing.status, f"{tmp_path / 'none'}: cannot be run: No such file" in missing.err) == (1, True)
    stdin = run("compare", "--cluster", "-", "--candidate-python", environment)
    assert stdin.status > 0


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"run": {}, "summary": {"resources": {}}, "pods": [{}]}'])
def test_what_is_no_result_is_an_error_with_the_last_line_of_the_log(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    (tmp_path / "out").write_bytes(content)
    script.write_text(f"#!/bin/sh\necho first >&2; echo 'no such command' >&2; cat {tmp_path / 'out'}\n")
    script.chmod(0o755)
    with pytest.raises(InputError, match=f"{script}: kubestow simulate gave no result: no such"):
        Installation(str(script)).simulate([], ClusterObjects())


def test_the_result_of_another_installation_is_the_same_as_here(
    run: Callable[..., Run], inputs: tuple[object, ...]
) -> None:
    document = run("simulate", *inputs[1:], "-o", "json").out
    read = read_result(document.encode(), ClusterObjects.load(str(inputs[2])))
    assert read.as_json() == json.loads(document)
    assert yaml.safe_load(document)["pods"]
