"""``kubestow explain podgroup/NAME``: what it prints, and bad usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from core_tests.engine.input.manifests import node, pod, write
from kubestow.cli import main

_GATES = "GenericWorkload=true,GangScheduling=true"


class Run(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Run]:
    """Explain the group ``train`` of pods with so many cores each, on two nodes with four cores."""

    def run_command(cores: list[str], *arguments: str, minimum: int = 2, name: str = "podgroup/train") -> Run:
        group = {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "default", "uid": "train"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
        }
        pods = [pod(f"train-{number}", cpu=each) for number, each in enumerate(cores)]
        for each in pods:
            each["spec"]["schedulingGroup"] = {"podGroupName": "train"}
        dump = write(tmp_path, node("a", cpu="4"), node("b", cpu="4"), group, *pods, name="dump.json")
        with pytest.raises(SystemExit) as exited:
            main(["explain", name, "--cluster", str(dump), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Run(int(exited.value.code or 0), out, err)

    return run_command


def test_a_placement_has_the_nodes(explain: Callable[..., Run]) -> None:
    result = explain(["4", "4"], "--feature-gates", _GATES)

    assert result.status == 0
    assert result.out.startswith("default/train: fits, 2 pods on 2 nodes\n")


def test_a_certificate_says_what_is_missing(explain: Callable[..., Run]) -> None:
    result = explain(["3", "3", "3"], "--feature-gates", _GATES, minimum=3)

    assert result.out.splitlines() == [
        "default/train: no placement exists: at most 2 pods of the 3 that are needed can be placed",
        "cpu: 9.0 cores needed, 8.0 cores free on nodes that pass the filters, 1.0 cores short",
    ]


def test_the_answer_as_data(explain: Callable[..., Run]) -> None:
    document = json.loads(explain(["2", "4", "2"], "--feature-gates", _GATES, "-o", "json", minimum=3).out)

    assert document["kind"] == "PodGroupExplanation"
    assert (document["result"], document["needed"], document["podsWithNode"]) == ("Placed", 3, 0)
    assert len(document["assignments"]) == 3


def test_too_few_pods(explain: Callable[..., Run]) -> None:
    result = explain(["1"], "--feature-gates", _GATES)

    assert result.out == "default/train: 2 of its pods still need a node, and 1 pod without a node exists\n"


def test_pods_that_no_node_takes_have_the_words_of_the_scheduler(explain: Callable[..., Run]) -> None:
    result = explain(["9", "9"], "--feature-gates", _GATES)

    assert result.out.splitlines() == [
        "default/train: no placement exists: at most 0 pods of the 2 that are needed can be placed",
        "no node passes the filters for default/train-0 and 1 more",
        "2 nodes: too little CPU is free",
    ]


def test_what_cannot_be_explained_is_said(explain: Callable[..., Run]) -> None:
    disabled = explain(["1"])
    unknown = explain(["1"], "--feature-gates", _GATES, name="podgroup/trian")
    node_given = explain(["1"], "--node", "a")

    assert disabled.status == 1
    assert "podgroup default/train: no profile schedules pod groups; enable GangScheduling" in disabled.err
    assert unknown.err.splitlines()[-1] == (
        "kubestow: podgroup default/trian: no pod of the cluster is in such a group; similar: default/train"
    )
    assert node_given.status == 2
    assert "are for pods, not for pod groups" in node_given.err
