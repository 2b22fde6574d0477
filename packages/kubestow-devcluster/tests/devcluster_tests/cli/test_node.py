"""``kubestow node``: stop and start nodes of a running cluster."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.cli.up_process import Up, up

_COMMAND = (sys.executable, "-c", "from kubestow.cli import main; main()", "node")


async def node(*arguments: str) -> tuple[int | None, str]:
    """The exit status and output of the command."""
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), HANG_LIMIT)
    return process.returncode, out.decode()


async def follow(cluster: Up, path: str, until: Any) -> dict[str, Any]:
    """Watch until an object satisfies a predicate."""
    async with (
        asyncio.timeout(HANG_LIMIT),
        aiohttp.ClientSession() as session,
        session.get(f"{cluster.url}{path}?watch=true") as watch,
    ):
        async for line in watch.content:
            found: dict[str, Any] = json.loads(line)["object"]
            if until(found):
                return found
    raise AssertionError("the watch ended")


def ready_is(status: str, name: str) -> Any:
    def found(node: dict[str, Any]) -> bool:
        conditions = node["status"].get("conditions", ())
        return node["metadata"]["name"] == name and any(
            condition["type"] == "Ready" and condition["status"] == status for condition in conditions
        )

    return found


def pod(name: str) -> dict[str, Any]:
    tolerations = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    ]
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}], "tolerations": tolerations},
    }


async def test_pods_of_a_stopped_node_are_moved_until_it_is_started(tmp_path: Path) -> None:
    template = {"metadata": pod("x")["metadata"], "spec": pod("x")["spec"]}
    labels = {"matchLabels": {"app": "web"}}
    replica_set = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": labels, "template": template}}
    async with (
        up(tmp_path, "--nodes", "2", "--node-monitor-grace-period", "2s") as cluster,
        aiohttp.ClientSession(cluster.url) as session,
    ):
        await session.post("/apis/apps/v1/namespaces/default/replicasets", json=replica_set)
        first = await follow(cluster, "/api/v1/pods", lambda pod: pod["status"]["phase"] == "Running")
        lost = first["spec"]["nodeName"]
        config = str(cluster.kubeconfig)
        assert await node("stop", lost, "--kubeconfig", config) == (0, f"node/{lost} stopped\n")
        await follow(cluster, "/api/v1/nodes", ready_is("Unknown", lost))

        def elsewhere(pod: dict[str, Any]) -> bool:
            return bool(pod["status"]["phase"] == "Running" and pod["spec"]["nodeName"] != lost)

        await follow(cluster, "/api/v1/pods", elsewhere)
        assert await node("start", lost, "--kubeconfig", config) == (0, f"node/{lost} started\n")
        await follow(cluster, "/api/v1/nodes", ready_is("True", lost))
        status, output = await node("stop", "missing", "--kubeconfig", config)
        assert (status, 'nodes "missing" not found' in output) == (1, True)
