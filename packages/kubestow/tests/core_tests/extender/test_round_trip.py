"""``kubestow extend`` as a process, and a scheduler that uses it as an extender."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from core_tests.extender.example_plugins import Colour, labelled
from core_tests.extender.harness import api_server, running_scheduler
from core_tests.hang_limit import HANG_LIMIT
from kubestow.testing import PluginHarness, node, pod

_ROOT = Path(__file__).parents[5]
_PROFILE = "packages/kubestow/tests/core_tests/extender/profile.yaml"
_COMMAND = (sys.executable, "-c", "from kubestow.cli import main; main()", "extend")
PLUGIN = ("--plugin", "core_tests.extender.example_plugins:Colour")
NODES = {"a": labelled("red", 10), "b": labelled("red", 90), "c": labelled("blue", 100)}


@asynccontextmanager
async def extending(*arguments: str) -> AsyncIterator[dict[str, Any]]:
    """Run the command within the context and yield the printed extender configuration."""
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, "--port", "0", *arguments, stdout=asyncio.subprocess.PIPE, cwd=_ROOT
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(HANG_LIMIT):
            while not lines or lines[-1] != "ready\n":
                line = (await process.stdout.readline()).decode()
                assert line, lines
                lines.append(line)
        (extender,) = yaml.safe_load("".join(lines[1:-1]))["extenders"]
        yield extender
    finally:
        process.terminate()
        assert await process.wait() == 0


def in_process(**labels: str) -> str | None:
    nodes = [node(name, labels=labels) for name, labels in NODES.items()]
    return PluginHarness(nodes, plugins=[Colour], profile=_ENABLED).decide(pod("p", labels=labels)).node_name


_ENABLED = {"plugins": {"multiPoint": {"enabled": [{"name": "Colour", "weight": 5}]}}}


@pytest.mark.parametrize("colour", ["red", "blue"])
@pytest.mark.parametrize("cache", ["--cache", "--no-cache"])
async def test_the_decision_equals_that_of_the_plugin_in_process(cache: str, colour: str) -> None:
    async with api_server(**NODES) as server:
        master = () if cache == "--no-cache" else ("--master", server.url)
        async with (
            extending(*PLUGIN, cache, *master) as extender,
            running_scheduler(server, extender | {"weight": 5}) as harness,
        ):
            await harness.pod("p", labels={"colour": colour})
            assert await harness.bound("p") == in_process(colour=colour) == {"red": "b", "blue": "c"}[colour]


async def test_the_plugins_reason_is_in_the_pod_condition() -> None:
    async with (
        api_server(**NODES) as server,
        extending(*PLUGIN, "--no-cache") as extender,
        running_scheduler(server, extender) as harness,
    ):
        await harness.pod("p", labels={"colour": "green"})
        assert (await harness.unschedulable_message("p")).startswith(
            "0/3 nodes are available: 3 node(s) had another colour."
        )


async def test_a_profile_is_served_with_bind() -> None:
    async with (
        api_server("a") as server,
        extending("--config", str(_profile()), "--bind-pods", "--master", server.url) as extender,
        running_scheduler(server, extender) as harness,
    ):
        assert [extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")]
        await harness.pod("p", requests={"cpu": "500m"})
        assert await harness.bound("p") == "a"


def _profile() -> Path:
    return Path(__file__).parent / "profile.yaml"


async def run(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(*_COMMAND, *arguments, stderr=asyncio.subprocess.PIPE, cwd=_ROOT)
    _, err = await asyncio.wait_for(process.communicate(), HANG_LIMIT)
    return process.returncode, err.decode()


@pytest.mark.parametrize(
    ("arguments", "expected", "problem"),
    [
        ((), 2, "nothing to serve"),
        ((*PLUGIN, "--no-cache", "--bind-pods"), 2, "--bind-pods requires --cache"),
        (("--plugin", "core_tests.extender.example_plugins:Reserving"), 1, "nothing to serve"),
        (
            ("--config", "packages/kubestow/tests/core_tests/extender/profile.yaml", "--profile", "x"),
            1,
            "--profile: profile x not found",
        ),
        ((*PLUGIN, "--tls-cert-file", "/nowhere"), 1, "--tls-cert-file, --tls-private-key-file: must be set together"),
        ((*PLUGIN, "--kubeconfig", "/nowhere"), 1, "/nowhere"),
    ],
)
async def test_invalid_options_are_one_error_line(arguments: tuple[str, ...], expected: int, problem: str) -> None:
    status, err = await run(*arguments)
    assert status == expected
    assert problem in err
    assert "Traceback" not in err
