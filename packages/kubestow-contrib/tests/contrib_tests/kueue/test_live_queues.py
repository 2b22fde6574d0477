"""``kubestow why job/NAME`` in a live cluster with Kueue."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from contrib_tests.kueue.kueue_objects import (
    GPU,
    Manifest,
    cluster_queue,
    flavor,
    job,
    local_queue,
    workload,
)
from core_tests.cli.ended_command import Ended
from core_tests.cli.live.test_live_commands import run, serve, write_kubeconfig

_NODE: Manifest = {
    "metadata": {"name": "a", "labels": {"gpu": "h100"}},
    "status": {"allocatable": {"cpu": "8", "pods": "10", GPU: "8"}},
}
_KUEUE = "/apis/kueue.x-k8s.io"


async def why(folder: Path, versions: tuple[str, ...], forbidden: str = "") -> Ended:
    """What it says about a job that waits, in a cluster whose Kueue has some versions."""
    objects = {
        "resourceflavors": [flavor("h100", gpu="h100")],
        "clusterqueues": [cluster_queue("research", 8)],
        "localqueues": [local_queue("research")],
        "workloads": [workload("first", "research", 8, admitted="research"), workload("second", "research", 4)],
    }
    newest = f"{_KUEUE}/{versions[0]}" if versions else ""

    async def respond(request: web.Request) -> web.Response:
        root, _, plural = request.path.rpartition("/")
        if request.path == "/apis/batch/v1/namespaces/default/jobs/second":
            return web.json_response(job("second", "research", 4))
        if request.path == _KUEUE and versions:
            served = [{"groupVersion": f"kueue.x-k8s.io/{one}", "version": one} for one in versions]
            return web.json_response({"kind": "APIGroup", "versions": served})
        if request.path == forbidden:
            message = f"{plural} is forbidden"
            return web.json_response({"kind": "Status", "code": 403, "message": message}, status=403)
        if request.path.startswith(_KUEUE) and (root != newest or plural not in objects):
            return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
        items = objects.get(plural, [_NODE] if request.path == "/api/v1/nodes" else [])
        version, kind = (newest.removeprefix("/apis/"), "List") if root == newest else ("v1", "NodeList")
        kept = [{**one, "apiVersion": version} for one in items]
        return web.json_response({"apiVersion": version, "kind": kind, "items": kept, "metadata": {}})

    runner, server = await serve(respond)
    try:
        arguments = ("why", "job/second", "-n", "default", "--emulated-version", "1.36")
        return await run(write_kubeconfig(folder, server), *arguments)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("versions", [("v1beta2", "v1beta1"), ("v1beta1",)])
async def test_why_reads_the_queues_in_a_version_that_is_served(tmp_path: Path, versions: tuple[str, ...]) -> None:
    found = await why(tmp_path, versions)
    assert found.status == 0, found.err
    assert "suspended, so it creates no pods" in found.out
    assert f"ClusterQueue research is out of {GPU} in flavor h100 by 4" in found.out, found.out


async def test_a_cluster_without_kueue_has_no_queues(tmp_path: Path) -> None:
    found = await why(tmp_path, ())
    assert found.status == 0, found.err
    assert "suspended, so it creates no pods" in found.out
    assert "ClusterQueue" not in found.out + found.err


async def test_queues_that_may_not_be_listed_are_a_remark(tmp_path: Path) -> None:
    found = await why(tmp_path, ("v1beta2",), forbidden=f"{_KUEUE}/v1beta2/clusterqueues")
    assert found.status == 0, found.err
    assert "ClusterQueue" not in found.out
    assert "remark: what job/second waits for in a queue of kueue is not shown: " in found.err
    assert "clusterqueues is forbidden" in found.err
