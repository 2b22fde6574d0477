"""``kubestow up --data-dir``: a persistent cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devcluster_tests.cli.test_up import DEPLOYMENT, NODES, create, get, placed
from devcluster_tests.cli.up_process import ended, up

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def identities(url: str, path: str) -> dict[str, str]:
    """The UIDs of objects by name."""
    items: list[dict[str, Any]] = (await get(url, path))["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


async def test_a_restart_resumes_the_pods_and_creates_only_missing_nodes(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    async with up(tmp_path, "--nodes", "2", *data) as cluster:
        await create(cluster.url, DEPLOYMENTS, DEPLOYMENT)
        await placed(cluster.url, 3)
        pods, nodes = [await identities(cluster.url, f"/api/v1/{kind}") for kind in ("pods", "nodes")]
    async with up(tmp_path, "--nodes", "4", *data) as cluster:
        assert await identities(cluster.url, "/api/v1/pods") == pods
        all_nodes = await identities(cluster.url, "/api/v1/nodes")
        assert len(all_nodes) == 4 and all_nodes.items() >= nodes.items()
    async with up(tmp_path, *data) as cluster:
        assert await identities(cluster.url, "/api/v1/nodes") == all_nodes, (
            "the default number of nodes is for new clusters"
        )


async def test_the_cluster_file_is_loaded_into_a_new_cluster_only(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    arguments = ("--cluster", str(nodes), "--data-dir", str(tmp_path / "data"))
    async with up(tmp_path, *arguments) as cluster:
        first = await identities(cluster.url, "/api/v1/nodes")
    async with up(tmp_path, *arguments) as cluster:
        assert await identities(cluster.url, "/api/v1/nodes") == first != {}


async def test_a_directory_in_use_is_one_error_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(tmp_path, "--data-dir", str(data)):
        status, error = await ended("--data-dir", str(data), "--kubeconfig-out", str(tmp_path / "other"))
    assert status == 1
    assert error == f"kubestow: {data / 'kubestow.db'}: is in use by another process; one cluster has one server\n"
