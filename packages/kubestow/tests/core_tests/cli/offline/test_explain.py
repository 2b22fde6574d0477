"""explain and trace on a dump: forms of output, exit status, and what goes to standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from core_tests.engine.input.manifests import node, pod, write
from kubestow.cli import main


class Run(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    def run_command(*arguments: object) -> Run:
        with pytest.raises(SystemExit) as exited:
            main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Run(int(exited.value.code or 0), out, err)

    return run_command


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two nodes, a pod that fits neither, and one that is bound to the first."""
    return write(tmp_path, node("a", cpu="1"), node("b", cpu="2"), pod("big", cpu="3"), pod("small", nodeName="a"))


def test_explain_prints_the_groups_of_nodes_and_what_would_help(run: Callable[..., Run], dump: Path) -> None:
    result = run("explain", "default/big", "--cluster", dump)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("pod default/big, profile default-scheduler: fits on 0 of 2 nodes\n")
    assert "2  NodeResourcesFit: Insufficient cpu  a, b" in result.out
    assert "1  request 2 cpu instead of 3: fits on b" in result.out
    without = run("explain", "big", "--cluster", dump, "--no-counterfactuals").out
    assert "change" not in without


def test_explain_marks_the_own_node_of_a_bound_pod(run: Callable[..., Run], dump: Path) -> None:
    result = run("explain", "small", "--cluster", dump)
    assert "it is bound to a; evaluated as if it was not there, that node has rank 2 of 2" in result.out
    assert "a (its node)" in result.out


def test_explain_compares_two_nodes(run: Callable[..., Run], dump: Path) -> None:
    result = run("explain", "small", "--cluster", dump, "--node", "b", "--versus", "a")
    assert result.out.startswith("b (total ")
    assert "is preferred to a" in result.out
    own = run("explain", "small", "--cluster", dump, "--versus", "b", "-o", "json")
    assert json.loads(own.out)["comparison"]["nodes"] == ["a", "b"]


def test_explain_of_a_node_has_the_changes_for_that_node(run: Callable[..., Run], dump: Path) -> None:
    result = run("explain", "big", "--cluster", dump, "--node", "a")
    assert "the pod would fit on a with one of these changes" in result.out
    assert "request 900m cpu instead of 3: fits on a" in result.out


def test_json_and_yaml_have_the_same_fields(run: Callable[..., Run], dump: Path) -> None:
    for command in ("explain", "trace"):
        as_json = json.loads(run(command, "big", "--cluster", dump, "-o", "json").out)
        assert yaml.safe_load(run(command, "big", "--cluster", dump, "-o", "yaml").out) == as_json


def test_trace_prints_the_calls_in_order(run: Callable[..., Run], dump: Path) -> None:
    result = run("trace", "small", "--cluster", dump)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("pod default/small: Running on ")
    assert result.out.index("PreFilter") < result.out.index("NormalizeScore") < result.out.index("DefaultBinder")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("explain", "other"), "kubestow: pod default/other: no such pod in the cluster"),
        (
            ("trace", "default/bigg"),
            "kubestow: pod default/bigg: no such pod in the cluster, finished pods aside; similar",
        ),
        (("explain", "big", "--node", "c"), "kubestow: node c: no such node"),
        (("explain", "small", "--versus", "c"), "kubestow: node c: no such node"),
    ],
)
def test_bad_input_is_one_line_and_status_1(
    run: Callable[..., Run], dump: Path, arguments: tuple[str, ...], problem: str
) -> None:
    result = run(*arguments, "--cluster", dump)
    assert (result.status, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert result.err.startswith(problem)


def test_wrong_usage_is_status_2(run: Callable[..., Run], dump: Path) -> None:
    assert run("explain").status == 2
    assert run("explain", "big", "--cluster", dump, "--kubeconfig", "k").status == 2
    assert run("explain", "big", "--cluster", dump, "--versus", "a").status == 2
    assert run("trace", "big", "--cluster", dump, "-o", "csv").status == 2
