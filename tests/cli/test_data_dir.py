"""A cluster that ``kubestow up`` keeps on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.clusters import ended, up
from tests.cli.test_up import DEPLOYMENT, NODES, create, get, placed

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def identities(url: str, path: str) -> dict[str, str]:
    """Names and uids."""
    items: list[dict[str, Any]] = (await get(url, path))["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in items}


async def test_a_second_start_goes_on_with_the_pods_and_makes_only_missing_nodes(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    async with up(tmp_path, "--nodes", "2", *data) as cluster:
        await create(cluster.url, DEPLOYMENTS, DEPLOYMENT)
        await placed(cluster.url, 3)
        pods, nodes = [await identities(cluster.url, f"/api/v1/{kind}") for kind in ("pods", "nodes")]
    async with up(tmp_path, "--nodes", "4", *data) as cluster:
        assert await identities(cluster.url, "/api/v1/pods") == pods
        then = await identities(cluster.url, "/api/v1/nodes")
        assert len(then) == 4 and then.items() >= nodes.items()
    async with up(tmp_path, *data) as cluster:
        assert await identities(cluster.url, "/api/v1/nodes") == then, "the usual number is for new clusters"


async def test_a_file_is_read_into_a_new_cluster_only(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    arguments = ("--cluster", str(nodes), "--data-dir", str(tmp_path / "data"))
    async with up(tmp_path, *arguments) as cluster:
        first = await identities(cluster.url, "/api/v1/nodes")
    async with up(tmp_path, *arguments) as cluster:
        assert await identities(cluster.url, "/api/v1/nodes") == first != {}


async def test_a_directory_in_use_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(tmp_path, "--data-dir", str(data)):
        status, said = await ended("--data-dir", str(data), "--kubeconfig-out", str(tmp_path / "other"))
    assert status == 2
    assert said == f"kubestow: {data / 'kubestow.db'}: is in use by another process; one cluster has one server\n"
