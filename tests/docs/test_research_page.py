"""docs/research.md: its figure is drawn, and its files and commands belong together."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kubestow_lab.cli.compare import compare
from kubestow_lab.cli.simulate import simulate
from kubestow_lab.experiments.experiment_file import Experiment
from tests.docs.page_examples import example

PAGE = (Path(__file__).parents[2] / "docs" / "research.md").read_text(encoding="utf-8")


def test_the_figure_has_both_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {}
    exec(PAGE.partition("```python\n")[2].partition("```")[0], names)
    assert list(names["share"].columns) == ["default", "packed"]  # type: ignore[attr-defined]


def test_the_commands_take_the_files_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mapping.yaml", "keep.py", "keep.yaml", "study.yaml"):
        Path(name).write_text(example(PAGE, name))
    Path("jobs.csv").write_text(PAGE.partition("```\njob_id")[2].partition("```")[0].join(("job_id", "")))
    for name, command in (("simulate", simulate), ("compare", compare)):
        [arguments] = re.findall(rf"^\$ kubestow {name} (.+)$", PAGE, re.MULTILINE)
        assert not command.main(shlex.split(arguments), standalone_mode=False)
    study = Experiment.load("study.yaml")
    assert list(study.policies) == ["default", "keep"]
