"""docs/experiments.md: its file, commands and Python example work, and its fields are those of the file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from kubestow_lab.cli.experiment import experiment as command
from kubestow_lab.experiments.experiment_file import Experiment, as_data
from kubestow_lab.traces.samples import SAMPLES

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
FILE = PAGE.partition("```yaml\n")[2].partition("```")[0]


def test_the_fields_are_those_of_the_file(tmp_path: Path) -> None:
    found = Experiment.of(yaml.safe_load(FILE), folder=tmp_path)
    rows = re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == as_data(found).keys()
    assert all(f"`{name}`" in PAGE for name in SAMPLES)


def test_the_commands_are_spelled_right() -> None:
    for line in re.findall(r"^\$ kubestow experiment (\w+) (.+?)(?: +#.*)?$", PAGE, re.MULTILINE):
        name, arguments = line
        command.commands[name].make_context(name, shlex.split(arguments))


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = yaml.safe_load(FILE)
    content |= {"traces": content["traces"][:1], "policies": content["policies"][:2], "seeds": 1}
    (tmp_path / "packed.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    names: dict[str, object] = {}
    exec(PAGE.partition("```python\n")[2].partition("```")[0], names)
    assert len(names["report"].comparisons[0].samples["pending"]["packed"]) == 1  # type: ignore[attr-defined]
