"""docs/energy.md: its example gives the table, and its fields are those of the args."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from kubestow_contrib.energy import CarbonArgs, CostArgs, PowerArgs
from kubestow_lab.experiments.experiment_file import Experiment
from kubestow_lab.experiments.report import ExperimentReport
from kubestow_lab.experiments.runs import run_experiment

PAGE = (Path(__file__).parents[2] / "docs" / "energy.md").read_text(encoding="utf-8")


def test_the_example_gives_the_table(tmp_path: Path) -> None:
    for name in ("cluster.yaml", "jobs.yaml", "study.yaml"):
        content = re.search(rf"```yaml\n# {name}\n(.*?)```", PAGE, re.DOTALL)
        assert content is not None
        (tmp_path / name).write_text(content[1])
    run_experiment(Experiment.load(tmp_path / "study.yaml"), tmp_path / "study", processes=1)
    [comparison] = ExperimentReport.read(tmp_path / "study").comparisons
    metrics = re.findall(r"`(\w+)`", re.findall(r"^\| Policy \|.+$", PAGE, re.MULTILINE)[0])
    for policy in ("default", "power", "carbon", "cost"):
        [row] = re.findall(rf"^\| {policy} \|(.+)\|$", PAGE, re.MULTILINE)
        for metric, cell in zip(metrics, row.split("|"), strict=True):
            shown = cell.split()[0]
            digits = len(shown.partition(".")[2])
            [value] = comparison.samples[metric][policy]
            assert f"{value:.{digits}f}" == shown, (policy, metric)


def test_the_fields_are_those_of_the_args() -> None:
    tables = {}
    for name in ("PowerAware and CarbonAware", "CarbonAware", "CostAware"):
        rows = PAGE.partition(f"rgs of {name} | Default |")[2].partition("\n\n")[0]
        tables[name] = {field for row in rows.splitlines()[2:] for field in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert tables["PowerAware and CarbonAware"] == set(_fields(PowerArgs))
    assert tables["CarbonAware"] == set(_fields(CarbonArgs)) - set(_fields(PowerArgs))
    assert tables["CostAware"] == set(_fields(CostArgs))


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]
