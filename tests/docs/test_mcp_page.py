"""docs/mcp.md and HolmesGPT's toolset: the example prints what the page shows, over stdio with the SDK's client."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kubestow_lab.assistant.cluster_source import ClusterSource
from kubestow_lab.assistant.questions import ClusterQuestions
from kubestow_lab.cli.mcp import mcp as command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
HOLMES = yaml.safe_load((ROOT / "deploy" / "holmesgpt" / "config.yaml").read_text(encoding="utf-8"))


def block(language: str) -> str:
    """The only block of a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def tools() -> list[str]:
    def read() -> None:
        raise AssertionError("no question is asked")

    source = ClusterSource(read, [], lambda: 0.0)  # type: ignore[arg-type]
    return [tool.__name__ for tool in ClusterQuestions(source).tools()]


def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the MCP SDK is not installed")
    (tmp_path / "cluster.yaml").write_text(block("yaml"))
    program = tmp_path / "kubestow"
    path = shlex.quote(":".join(sys.path))
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} -m kubestow "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, block("text")), done.stderr


def test_all_tools_are_listed() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == tools()


def test_all_commands_are_spelled_right() -> None:
    (server,) = json.loads(block("json"))["mcpServers"].values()
    lines = [line.partition("#")[0] for line in re.findall(r"\$ kubestow mcp(.*)", PAGE)]
    for arguments in (server["args"][1:], *map(shlex.split, lines)):
        command.make_context("mcp", list(arguments))


def test_the_toolset_of_holmesgpt_starts_the_server_and_names_its_tools() -> None:
    (server,) = HOLMES["mcp_servers"].values()
    config = server["config"]
    assert (config["mode"], config["command"], config["args"]) == ("stdio", "kubestow", ["mcp"])
    named = set(re.findall(r"\b[a-z]+(?:_[a-z]+){2,}\b", server["llm_instructions"]))
    assert named == set(tools())
    text = (ROOT / "deploy" / "holmesgpt" / "config.yaml").read_text(encoding="utf-8")
    over_http = yaml.safe_load(
        re.sub(r"\n +(mode|command|args): .*", "", text).replace("# mode", "mode").replace("# url", "url")
    )
    (remote,) = over_http["mcp_servers"].values()
    assert remote["config"]["mode"] == "streamable-http" and remote["config"]["url"].endswith(":8000/mcp")
    assert re.search(r"# health_check_tool: (\w+)", text)[1] in tools()  # type: ignore[index]
