"""A program passes its plugins to ``kubestow.run``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

import kubestow
from core_tests.cli.scheduler.test_run import free_port
from core_tests.client.scripted_server import ScriptedServer, response, scripted_server
from core_tests.hang_limit import HANG_LIMIT
from core_tests.thirdparty.test_plugins_at_work import Slow
from kubestow.errors import ConfigurationError, InputError
from kubestow.plugins.node_name import NodeName
from kubestow.scheduling.events.resources import NODES, WATCHED

CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "profiles": [{"plugins": {"score": {"enabled": [{"name": "Slow"}]}}}],
}

PROGRAM = """
import os, signal, sys
import kubestow
from core_tests.thirdparty.test_run import CONFIG
from core_tests.hang_limit import HANG_LIMIT
from core_tests.thirdparty.test_plugins_at_work import Slow

def ready(scheduler):
    plugins = scheduler.profiles["default-scheduler"].plugins
    print(len(scheduler.cluster.nodes), any(isinstance(plugin, Slow) for plugin in plugins))
    os.kill(os.getpid(), signal.SIGTERM)

kubestow.run(plugins={"Slow": Slow}, config=CONFIG, master=sys.argv[1], flags=sys.argv[2:], on_ready=ready)
print("stopped")
"""


def serve_one_node(server: ScriptedServer) -> None:
    """Serve one node and nothing else; watches send no events."""
    version = response(body={"gitVersion": "v1.36.2"})
    server.respond("GET", "/version", version, version)
    served = {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
    server.respond("GET", "/apis/resource.k8s.io", response(body={"kind": "APIGroup", "versions": [served]}))
    complete = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
    for resource in WATCHED:
        lines: list[Any] = [{"type": "BOOKMARK", "object": {"metadata": complete}}]
        if resource is NODES:
            lines.insert(0, {"type": "ADDED", "object": {"metadata": {"name": "n", "uid": "n"}}})
        server.respond("GET", f"{resource.prefix}/{resource.plural}", server.watch(*lines))


async def test_a_plugin_passed_in_code_is_called() -> None:
    async with scripted_server() as server:
        serve_one_node(server)
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, server.url, "--secure-port", str(free_port()), "--bind-address=127.0.0.1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(HANG_LIMIT):
            out, err = await program.communicate()
    assert (out.decode().split("\n")[:2], program.returncode) == (["1 True", "stopped"], 0)
    log = err.decode()
    assert '"Serving securely"' in log and '"Scheduling" nodes=1' in log and "Traceback" not in log


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        ({"Quick": Slow}, "plugins['Quick']: class Slow has the name 'Slow'; give it under that name"),
        ({"NodeName": NodeName}, "the name 'NodeName' is taken by kubestow.plugins.node_name.NodeName"),
        ({"Slow": 42}, "plugins['Slow']: is not a class derived from"),
    ],
)
def test_an_unusable_plugin_is_named(plugins: Any, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        kubestow.run(plugins=plugins)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--secure-port=many"], "--secure-port"),
        (["--no-such-flag"], "--no-such-flag"),
        (["extra"], "does not take any arguments"),
        (["--config=other.yaml"], "cannot be used with a configuration in the program"),
    ],
)
def test_an_invalid_flag_of_a_program_is_named(flags: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        kubestow.run(config=CONFIG, flags=flags)


def test_a_configuration_with_an_unknown_plugin_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match='"Slow"'):
        kubestow.run(config=CONFIG)


def test_importing_the_package_loads_nothing_else() -> None:
    program = (
        "import sys, json, kubestow; print(json.dumps([m for m in sys.modules if m.startswith(('kubestow', 'numpy'))]))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    assert json.loads(out) == ["kubestow"]
