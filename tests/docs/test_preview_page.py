"""docs/preview.md: its commands print what it shows, and its tables are those of the action and of the services."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import yaml
from tools.first_steps.transcript import same

from kubestow_lab.cli.compare import compare
from tests.deploy.test_preview import ACTION, TEMPLATE
from tests.docs.page_replay import replayed

PAGE = (Path(__file__).parents[2] / "docs" / "preview.md").read_text(encoding="utf-8")


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    now = replayed(PAGE, tmp_path, variables={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert same(PAGE, now), now


def section(heading: str) -> str:
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> set[str]:
    """The code in the first cells of tables."""
    return {name for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)}


def test_all_inputs_and_outputs_of_the_action_are_listed() -> None:
    assert first_column(section("In GitHub Actions")) == ACTION["inputs"].keys() | ACTION["outputs"].keys()


def test_the_examples_have_inputs_that_exist() -> None:
    (workflow,) = re.findall(r"```yaml\n(# \.github.+?)```", PAGE, re.DOTALL)
    steps = yaml.safe_load(workflow)["jobs"]["preview"]["steps"]
    (used,) = [step["with"] for step in steps if "kubestow" in step.get("uses", "")]
    assert used.keys() <= ACTION["inputs"].keys()
    (included,) = re.findall(r"```yaml\n(# \.gitlab.+?)```", PAGE, re.DOTALL)
    header, _ = yaml.safe_load_all(TEMPLATE.read_text())
    for include in yaml.safe_load(included)["include"]:
        assert include["inputs"].keys() <= header["spec"]["inputs"].keys()
        assert TEMPLATE.match(include["file"])
    for pinned in re.findall(r"uses: actions/\S+", workflow):
        assert re.search(r"@[0-9a-f]{40}$", pinned)


def test_all_options_exist() -> None:
    known = {option for parameter in compare.params for option in parameter.opts}
    used = set(re.findall(r"--[a-z][\w-]*", section("What can be compared")))
    assert {"--record", "--candidate-path"} <= used <= known
