"""An experiment runs every combination once, goes on after an interruption, and reports means with intervals."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from core_tests.engine.input.manifests import arrivals, cluster, node, pod, workload, write
from kubestow.errors import ConfigurationError, InputError
from kubestow_lab.cli.experiment import experiment as command
from kubestow_lab.experiments.experiment_file import Experiment, Run, shuffled
from kubestow_lab.experiments.report import ExperimentReport
from kubestow_lab.experiments.runs import METRICS, RUNS, run_experiment
from kubestow_lab.simulation.arrivals import Arrival

PACKED = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]}
    ],
}
#: Small pods that arrive before large ones, which fit only if the small ones are packed.
CONTENT: dict[str, Any] = {
    "clusters": [{"name": "three", "files": ["dump.json"]}],
    "traces": [{"name": "web", "workload": ["pods.json"]}],
    "policies": [{"name": "spread"}, {"name": "packed", "config": "packed.yaml"}],
    "seeds": 3,
    "metrics": ["pending", "utilisation.cpu", "meanPower"],
    "power": {"label": "kind", "values": {"": {"idle": 100, "busy": 200}}},
}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The folder of an experiment's input files."""
    write(tmp_path, *(node(name, cpu="4") for name in "abc"), name="dump.json")
    small, large = (
        workload("Deployment", "small", replicas=4, cpu="1"),
        workload("Deployment", "z", replicas=2, cpu="4"),
    )
    write(tmp_path, small, large, name="pods.json")
    (tmp_path / "packed.yaml").write_text(yaml.safe_dump(PACKED))
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(CONTENT))
    return tmp_path


def loaded(study: Path, **changes: Any) -> Experiment:
    return Experiment.of(CONTENT | changes, folder=study, subject="study.yaml")


def ran(study: Path, into: str = "out", **options: Any) -> Path:
    """The folder of an experiment that ran in this process."""
    run_experiment(loaded(study, **options.pop("changes", {})), study / into, **{"processes": 1, **options})
    return study / into


def test_every_combination_runs_once_and_is_reported(study: Path) -> None:
    report = ExperimentReport.read(ran(study))
    [comparison] = report.comparisons
    found = {(each.name, each.policy): each for each in comparison.estimates}
    assert len(found) == 3 * 2
    assert found["pending", "spread"].value.as_json() == {"mean": 2.0, "low": 2.0, "high": 2.0, "count": 3}
    packed = found["pending", "packed"]
    assert packed.difference is not None
    assert (packed.value.mean, packed.difference.mean, packed.verdict) == (0.0, -2.0, "better")
    assert found["utilisation.cpu", "packed"].value.mean == 1.0
    assert found["meanPower", "packed"].verdict == "worse"  # all nodes are full
    assert report.missing == {}


def test_an_interrupted_experiment_loses_only_what_was_under_way(study: Path) -> None:
    seen: list[str] = []

    def stop(record: Any, done: int, total: int) -> None:
        seen.append(record.run.name)
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(study, ended=stop)
    folder = study / "out" / RUNS
    (folder / "three.web.packed.1.partial").mkdir()  # what a killed process leaves
    before = {name: (folder / name / METRICS).stat().st_mtime_ns for name in seen}
    assert sorted(before) == ["three.web.packed.0", "three.web.spread.0"]  # one seed of each policy first
    ran(study, resume=True)
    assert {name: (folder / name / METRICS).stat().st_mtime_ns for name in seen} == before
    assert sorted(each.name for each in folder.iterdir()) == sorted(run.name for run in loaded(study).runs())
    shutil.rmtree(folder)
    again = ExperimentReport.read(ran(study, resume=True)).as_json()
    assert again == ExperimentReport.read(ran(study, "fresh")).as_json()


def test_processes_give_the_same_numbers(study: Path) -> None:
    together = run_experiment(loaded(study), study / "two", processes=2)
    assert together == run_experiment(loaded(study), study / "one", processes=1)
    assert all(record.digest and not record.error for record in together)


def test_a_run_that_fails_is_data_and_runs_again(study: Path) -> None:
    (study / "failing.py").write_text(
        "from kubestow.framework.interface import ScorePlugin\n"
        "class Failing(ScorePlugin):\n"
        "    name = 'Failing'\n"
        "    def score(self, state, pod, nodes):\n"
        "        raise RuntimeError('no luck')\n"
    )
    enabled = {"plugins": {"score": {"enabled": [{"name": "Failing"}]}}}
    policy = {"name": "failing", "config": PACKED | {"profiles": [enabled]}, "plugins": ["failing.py:Failing"]}
    changes = {"policies": [{"name": "spread"}, policy], "seeds": 1}
    report = ExperimentReport.read(ran(study, changes=changes))
    [(run, reason)] = report.missing.items()
    assert run == Run("three", "web", "failing", 0)
    assert "no luck" in reason
    records = run_experiment(loaded(study, **changes), study / "out", resume=True, processes=1)
    assert [bool(record.error) for record in records] == [False, True]


def test_more_seeds_can_be_added_but_nothing_else_may_change(study: Path) -> None:
    ran(study, changes={"seeds": 1})
    with pytest.raises(InputError, match="is not empty; --resume goes on"):
        ran(study)
    ran(study, resume=True)
    assert len(ExperimentReport.read(study / "out").as_json()["seeds"]) == 3
    with pytest.raises(InputError, match=r"manifest.json: experiment.policies: the experiment has other policies now"):
        ran(study, resume=True, changes={"policies": [{"name": "spread"}]})
    (study / "packed.yaml").write_text(yaml.safe_dump(PACKED) + "# changed\n")
    with pytest.raises(InputError, match=r"inputs\[packed.yaml\]: this file has changed since"):
        ran(study, resume=True)


def test_the_manifest_has_what_reproduction_needs(study: Path) -> None:
    manifest = json.loads((ran(study) / "manifest.json").read_text())
    assert sorted(manifest["inputs"]) == ["dump.json", "packed.yaml", "pods.json"]
    assert manifest["versions"].keys() >= {"kubestow", "python", "numpy", "polars"}
    assert Experiment.of(manifest["experiment"], folder=study).document == loaded(study).document


def test_the_commands(study: Path) -> None:
    runner = CliRunner()
    found = runner.invoke(command, ["run", str(study / "study.yaml"), "--processes", "1"])
    assert (found.exit_code, found.stdout) == (0, f"6 runs in {study / 'study'}\n")
    outputs = [f"{form}={study}/report.{form}" for form in ("html", "svg", "pdf", "json")]
    arguments = [part for output in (*outputs, "markdown") for part in ("-o", output)]
    found = runner.invoke(command, ["report", str(study / "study"), *arguments])
    assert found.exit_code == 0, found.output
    assert "|  | packed | 0.0 | 0.0 to 0.0 | -2.0 | -2.0 to -2.0 | better |" in found.stdout
    assert "better" in (study / "report.html").read_text()
    assert "three: pending" in (study / "report.svg").read_text()
    first = (study / "report.svg").read_bytes()
    runner.invoke(command, ["report", str(study / "study"), *arguments])
    assert (study / "report.svg").read_bytes() == first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"traces": []}, "study.yaml: traces: is empty"),
        ({"policies": [{"name": "a b"}]}, "study.yaml: policies[0].name: expected letters, digits, dashes and"),
        ({"policies": [{"name": "a"}, {"name": "a"}]}, "study.yaml: policies[1].name: 'a' is there twice"),
        ({"policies": [{"name": "a", "confg": 1}]}, "study.yaml: policies[0]: object contains unknown field `confg`"),
        ({"traces": [{"name": "a"}]}, "study.yaml: traces[0]: expected one of trace, workload and sample"),
        ({"traces": [{"name": "a", "sample": "b"}]}, "study.yaml: traces[0].sample: no sample 'b', expected one of"),
        ({"clusters": []}, "study.yaml: traces[0]: a workload needs clusters"),
        ({"metrics": ["waits"]}, "study.yaml: metrics[0]: no metric 'waits', the metrics are: pending"),
        ({"seeds": [1, 1]}, "study.yaml: seeds: a seed is there twice"),
        ({"seeds": 0}, "study.yaml: seeds: there are none"),
        ({"level": 2}, "study.yaml: level: expected a number between 0 and 1, got 2"),
    ],
)
def test_mistakes_are_named_with_their_place(study: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        loaded(study, **changes)
    assert str(raised.value).startswith(message)


def test_mistakes_in_what_the_file_refers_to(study: Path) -> None:
    with pytest.raises(InputError, match=r"study.yaml: policies\[0\]: .*absent.yaml: cannot be read"):
        ran(study, changes={"policies": [{"name": "a", "config": "absent.yaml"}]})
    with pytest.raises(InputError, match=r"study.yaml: policies\[0\]: --plugin .*x.py:X: "):
        ran(study, changes={"policies": [{"name": "a", "plugins": ["x.py:X"]}]})
    (study / "packed.yaml").write_text(yaml.safe_dump(PACKED | {"parallelism": -1}))
    with pytest.raises(ConfigurationError, match=r"packed.yaml: parallelism"):
        ran(study)
    with pytest.raises(InputError, match=r"out/manifest.json: cannot be read: No such file"):
        ExperimentReport.read(study / "out")


def test_shuffled_pods_reach_the_load_and_have_names_of_their_own(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"))
    pods: list[Arrival] = arrivals(
        tmp_path, pod("a", cpu="1"), pod("b", cpu="2"), pod("c", cpu="0"), within=within
    ).pods
    drawn = shuffled(pods, Random(1), "cpu", 60_000)
    names = Counter(each.pod.metadata.name.rpartition("-")[0] for each in drawn)
    assert len({each.pod.metadata.uid for each in drawn}) == len(drawn)
    assert 58 <= names["a"] + 2 * names["b"] <= 60
    assert [each.pod.metadata.name for each in drawn] == [
        each.pod.metadata.name for each in shuffled(pods, Random(1), "cpu", 60_000)
    ]
    fewer = shuffled(pods, Random(1), "cpu", 1_000)
    assert {each.pod.metadata.name.rpartition("-")[0] for each in fewer} <= {"a", "c"}
    with pytest.raises(InputError, match="no pod requests memory"):
        shuffled(pods, Random(1), "memory", 1.0)
