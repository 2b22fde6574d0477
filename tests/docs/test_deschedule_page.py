"""The examples of docs/deschedule.md work."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from core_tests.descheduling.objects import node, pod
from devcluster_tests.cli.up_process import Up, up
from devcluster_tests.scheduled_cluster import wait_until_cordon_is_seen
from kubestow.cli.flags.descheduler import DESCHEDULE
from kubestow.descheduling import strategies
from tests.docs.page_examples import example

PAGE = (Path(__file__).parents[2] / "docs" / "deschedule.md").read_text(encoding="utf-8")
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 6,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "nginx", "image": "nginx"}], "terminationGracePeriodSeconds": 0},
        },
    },
}


def block(name: str) -> str:
    """The example that is called ``# name``."""
    return example(PAGE, name)


async def deschedule(directory: Path, *arguments: str, **environment: str) -> tuple[str, str]:
    """The output of the command, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from kubestow.cli import main; main()", "deschedule", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=directory,
        env={"PYTHONPATH": ":".join([str(directory), *sys.path]), "HOME": "/nonexistent", **environment},
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode(), err.decode()


async def cordon(cluster: Up, session: aiohttp.ClientSession, *, unschedulable: bool) -> None:
    for name in ("node-1", "node-2"):
        headers = {"Content-Type": "application/merge-patch+json"}
        body = json.dumps({"spec": {"unschedulable": unschedulable}})
        async with session.patch(f"{cluster.url}/api/v1/nodes/{name}", data=body, headers=headers) as response:
            assert response.status == 200


async def running(cluster: Up, session: aiohttp.ClientSession, *, besides: frozenset[str] = frozenset()) -> Any:
    """The pods once six run that are none of some others."""
    seen: dict[str, Any] = {}
    async with session.get(f"{cluster.url}{PODS}?watch=true") as watch:
        async for line in watch.content:
            event = json.loads(line)
            found = event["object"]
            name = found["metadata"]["name"]
            seen[name] = found
            if event["type"] == "DELETED":
                del seen[name]
            ready = [p for p in seen.values() if p["status"].get("phase") == "Running"]
            if len(ready) == len(seen) == 6 and not besides & set(seen):
                return ready
    raise AssertionError("the watch has ended")


async def test_the_example_spreads_a_deployment(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(block("policy.yaml"))
    async with up(tmp_path, "--nodes", "3") as cluster, aiohttp.ClientSession() as session:
        await cordon(cluster, session, unschedulable=True)
        await wait_until_cordon_is_seen(cluster.url, session, "node-2")
        path = f"{cluster.url}/apis/apps/v1/namespaces/default/deployments"
        async with session.post(path, json=DEPLOYMENT) as response:
            assert response.status == 201
        before = await running(cluster, session)
        assert {p["spec"]["nodeName"] for p in before} == {"node-0"}
        await cordon(cluster, session, unschedulable=False)
        arguments = ("--policy-config-file", "policy.yaml")
        environment = {"KUBECONFIG": str(cluster.kubeconfig)}

        out, _ = await deschedule(tmp_path, *arguments, "--dry-run", "-o", "json", **environment)
        report = json.loads(out)
        assert Counter(entry["comesBack"]["node"] for entry in report["evicted"]) == {"node-1": 2, "node-2": 2}
        assert {entry["metadata"]["name"] for entry in await running(cluster, session)} == {
            entry["metadata"]["name"] for entry in before
        }

        await deschedule(tmp_path, *arguments, "--secure-port", "0", **environment)
        gone = {entry["pod"].removeprefix("default/") for entry in report["evicted"]}
        after = await running(cluster, session, besides=frozenset(gone))
        assert Counter(p["spec"]["nodeName"] for p in after) == {"node-0": 2, "node-1": 2, "node-2": 2}


async def test_the_strategy_works(tmp_path: Path) -> None:
    for name in ("retired.py", "retired.yaml"):
        (tmp_path / name).write_text(block(name))
    old = [{"name": "c", "image": "old.example/app:1"}]
    objects = [
        *({"apiVersion": "v1", "kind": "Node", **node(name)} for name in ("n1", "n2")),
        *({"apiVersion": "v1", "kind": "Pod", **p} for p in (pod("kept", "n1"), pod("old", "n1"))),
    ]
    objects[-1]["spec"] = objects[-1]["spec"] | {"containers": old}
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    command = next(line for line in PAGE.splitlines() if line.startswith("$ PYTHONPATH=. kubestow deschedule"))
    arguments = command.partition("deschedule ")[2].split()
    out, err = await deschedule(tmp_path, *arguments, "-o", "json")
    assert err == ""
    assert [entry["pod"] for entry in json.loads(out)["evicted"]] == ["default/old"]


def test_every_strategy_is_listed() -> None:
    rows = set(re.findall(r"^\| (\w+) \| (?:balance|deschedule) \|", PAGE, re.MULTILINE))
    assert rows == set(strategies.__all__)


def test_the_flags_exist() -> None:
    named = set(re.findall(r"--([a-z][a-z0-9-]+[a-z0-9])", PAGE))
    others = {"nodes", "image", "replicas", "for"}  # of kubestow up, kubectl and kubestow what-if
    families = {"leader-elect", "tls", "otel"}  # written as --tls-…
    assert named - others - families - set(DESCHEDULE.by_name) == set()
