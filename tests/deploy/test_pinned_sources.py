"""What the images and the workflows take from elsewhere is named by its content, not by a name that can move."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY

ROOT = DEPLOY.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_DIGEST = r"@sha256:[0-9a-f]{64}"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_commits_with_their_version_as_a_comment(workflow: Path) -> None:
    lines = [line.strip() for line in workflow.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.fullmatch(r"- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_one_action_has_one_version() -> None:
    used = re.findall(r"uses: (\S+)@(\S+)", "".join(workflow.read_text() for workflow in WORKFLOWS))
    assert len(set(used)) == len({name for name, _ in used})


def test_base_images_have_digests() -> None:
    text = (DEPLOY / "image" / "Dockerfile").read_text()
    (python,) = re.findall(r"^ARG PYTHON=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(rf"python:3\.11-slim{_DIGEST}", python)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON}"}


def test_node_images_have_digests_and_the_release_of_the_tests() -> None:
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "cluster.yml").read_text())["jobs"].values()
    assert re.fullmatch(rf"kindest/node:{re.escape(job['env']['KUBERNETES'])}{_DIGEST}", job["env"]["NODE_IMAGE"])


def test_downloads_are_checked() -> None:
    """A script or step that downloads also compares a checksum before it uses the file."""
    steps = [
        step["run"]
        for workflow in WORKFLOWS
        for job in yaml.safe_load(workflow.read_text())["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    files = [file for folder in (".ci", "tools/image") for file in sorted((ROOT / folder).iterdir())]
    # A run of the tests may keep bytecode beside the scripts.
    scripts = [file.read_text() for file in files if file.name != "__pycache__"]
    downloads = [text for text in (*steps, *scripts) if re.search(r"\b(?:curl|wget)\b", text)]
    assert downloads
    for text in downloads:
        assert re.search(r"sha\d+sum --check", text), text
