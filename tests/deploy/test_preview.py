"""The GitHub Action and the GitLab template: their steps, run as a runner runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from core_tests.engine.input.manifests import node, workload, write
from tests.deploy.manifests import DEPLOY

ROOT = DEPLOY.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
TEMPLATE = DEPLOY / "gitlab" / "kubestow.gitlab-ci.yml"
#: The shell of `shell: bash` in an action.
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
EKS = "kubeSchedulerConfig: {nodeResourcesFit: {scoringStrategy: {type: MostAllocated}}}\n"


@dataclass(slots=True)
class Job:
    """What a run of the steps leaves: status, log, outputs and summary."""

    status: int
    log: str
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a dump of two nodes, a workload that fits, one that does not, and configurations."""
    folder = tmp_path / "check out"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write(folder, node("a", cpu="2"), node("b", cpu="2"), name="dump.json")
    write(folder, workload("Deployment", "web", replicas=3, cpu="500m"), name="web.json")
    write(folder, workload("Deployment", "large", replicas=2, cpu="1800m"), name="large.json")
    (folder / "eks.yaml").write_text(EKS)
    return folder


def environment(**variables: str) -> dict[str, str]:
    """That of a step after the installation: the commands of this environment are on the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path} | variables


def run_action(tmp_path: Path, **inputs: str) -> Job:
    """Run the step that previews, with the inputs as the runner passes them."""
    known = {name: given["default"] for name, given in ACTION["inputs"].items()}
    given = known | {name.replace("_", "-"): value for name, value in inputs.items()}
    assert given.keys() == known.keys()
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "preview"]
    variables = {}
    for name, expression in step["env"].items():
        (referenced,) = re.findall(r"^\$\{\{ inputs\.([\w-]+) \}\}$", expression)
        variables[name] = given[referenced]
    files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    script = tmp_path / "step.sh"
    script.write_text(step["run"])
    env = environment(**variables, **{name: str(file) for name, file in files.items()})
    done = subprocess.run((*BASH, str(script)), env=env, capture_output=True, text=True, check=False)
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    referenced = re.findall(r"steps\.preview\.outputs\.(\w+)", json.dumps(ACTION["outputs"]))
    assert outputs.keys() <= set(referenced)
    return Job(done.returncode, done.stdout + done.stderr, outputs, files["GITHUB_STEP_SUMMARY"].read_text())


def test_the_action_reports_what_fits_and_what_changes(checkout: Path, tmp_path: Path) -> None:
    job = run_action(tmp_path, cluster="dump.json", workload="web.json", config="eks.yaml", fail_if=" moved > 9 \n")
    assert job.status == 0, job.log
    assert (job.outputs["fits"], job.outputs["changes"]) == ("true", "false")
    assert ":white_check_mark: 3 of 3 pods placed." in job.summary
    assert "### Scheduling: `default configuration` (baseline) and `eks.yaml` (candidate)" in job.summary
    assert "| `moved > 9` |" in job.summary and "| `lost > 0` |" in job.summary
    assert Path(job.outputs["markdown"]).read_text() == job.summary
    names = [case.get("name") for case in ET.parse(Path(job.outputs["junit"]) / "compare.xml").iter("testcase")]
    assert names == ["moved > 9", "lost > 0"]
    (run,) = json.loads(Path(job.outputs["sarif"]).read_text())["runs"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "eks.yaml"


def test_the_action_fails_if_it_does_not_fit_or_changes_too_much(checkout: Path, tmp_path: Path) -> None:
    inputs = {"workload": "web.json\nlarge.json", "config": "eks.yaml", "fail_on": "any"}
    job = run_action(tmp_path, cluster="dump.json", **inputs)
    assert (job.status, job.outputs["changes"], job.outputs["fits"]) == (1, "true", "false")
    assert "::error title=kubestow::the workload does not fit" in job.log
    assert ":x: 4 of 5 pods placed." in job.summary
    assert "| `changed > 0` |" in job.summary


def test_input_that_cannot_be_read_fails_the_action_without_a_verdict(checkout: Path, tmp_path: Path) -> None:
    job = run_action(tmp_path, cluster="no.json", workload="web.json")
    assert (job.status, job.outputs, job.summary) == (1, {}, "")
    assert "no.json: cannot be read" in job.log
    assert "::error title=kubestow::the workload cannot be tried" in job.log


def test_the_action_needs_something_to_preview(checkout: Path, tmp_path: Path) -> None:
    job = run_action(tmp_path, cluster="dump.json")
    assert (job.status, job.outputs) == (1, {})
    assert "expected one of the inputs workload, config and baseline" in job.log


def test_the_action_takes_all_from_its_commit_and_needs_no_secrets() -> None:
    text = (ROOT / "action.yml").read_text()
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    for line in re.findall(r"uses: .*", text):
        assert re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
        assert line in workflow  # one action has one version
    assert "secrets" not in text and "github.token" not in text
    (install,) = [step for step in ACTION["runs"]["steps"] if step.get("name") == "Install kubestow"]
    assert install["env"] == {"SOURCE": "${{ github.action_path }}"}
    for path in re.findall(r"\$SOURCE/([\w./-]+)", install["run"]):
        assert (ROOT / path).exists(), path
    for step in ACTION["runs"]["steps"]:  # an input in a script would be code
        assert "${{" not in step.get("run", "")


# -- GitLab ----------------------------------------------------------------------------------------------------------


def interpolated(value: Any, inputs: Mapping[str, str]) -> Any:
    """A part of the template with its inputs, as GitLab includes it."""
    if isinstance(value, dict):
        return {name: interpolated(each, inputs) for name, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each, inputs) for each in value]
    return re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda found: inputs[found[1]], value)


def test_the_template_for_gitlab_reports_what_fits_and_what_changes(checkout: Path, tmp_path: Path) -> None:
    header, document = yaml.safe_load_all(TEMPLATE.read_text())
    inputs = {name: given["default"] for name, given in header["spec"]["inputs"].items()}
    inputs |= {"cluster": "dump.json", "workload": "web.json", "config": "eks.yaml", "fail-on": "any"}
    (job,) = [interpolated(part, inputs) for part in document.values()]
    script = tmp_path / "job.sh"
    script.write_text("\n".join(job["script"]))
    env = environment(**job["variables"])
    done = subprocess.run((*BASH, str(script)), env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "threshold crossed: changed > 0" in done.stderr) == (1, True), done.stderr
    assert "3 of 3 pods placed" in done.stdout
    reports = {path.name for path in Path(job["artifacts"]["paths"][0]).iterdir()}
    assert reports == {"fit.md", "fit.xml", "compare.md", "compare.xml"}
    assert set(Path().glob(job["artifacts"]["reports"]["junit"])) == {
        Path("kubestow-report", name) for name in reports if name.endswith(".xml")
    }


def test_both_have_the_same_inputs() -> None:
    header, document = yaml.safe_load_all(TEMPLATE.read_text())
    inputs = header["spec"]["inputs"]
    assert inputs.keys() - ACTION["inputs"].keys() == {"stage", "version"}
    assert ACTION["inputs"].keys() - inputs.keys() == {"python-version"}
    for name in inputs.keys() & ACTION["inputs"].keys():
        assert inputs[name]["default"] == ACTION["inputs"][name]["default"], name
    dockerfile = (DEPLOY / "image" / "Dockerfile").read_text()
    assert f"ARG PYTHON={document['kubestow-preview']['image']}\n" in dockerfile
