"""The commands about a live cluster: why, explain and snapshot against ``kubestow up``, without any set-up."""

from __future__ import annotations

import asyncio
import gzip
import json
import stat
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from core_tests.cli.ended_command import Ended, ended
from devcluster_tests.cli.test_up import create
from devcluster_tests.cli.up_process import Up, up
from kubestow.version import KUBERNETES_VERSION

CONFIDENTIAL = "hunter2"


async def start(kubeconfig: Path, *arguments: str) -> Process:
    """Start a command with the cluster of ``kubestow up`` in KUBECONFIG, and nothing else."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from kubestow.cli import main; main()", *arguments),
        stdout=PIPE,
        stderr=PIPE,
        env={"KUBECONFIG": str(kubeconfig), "PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"},
    )


async def run(kubeconfig: Path, *arguments: str) -> Ended:
    """The result of a command with the cluster of ``kubestow up`` in KUBECONFIG."""
    return await ended(*arguments, environment={"KUBECONFIG": str(kubeconfig), "HOME": "/nonexistent"})


async def create_pod(cluster: Up, name: str, cpu: str) -> None:
    container = {
        "name": "c",
        "image": "nginx",
        "args": [f"--password={CONFIDENTIAL}"],
        "env": [{"name": "PASSWORD", "value": CONFIDENTIAL}],
        "resources": {"requests": {"cpu": cpu}},
    }
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": CONFIDENTIAL})}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": [container]}}
    await create(cluster.url, "/api/v1/namespaces/default/pods", body)


async def attempted(cluster: Up, name: str) -> dict[str, Any]:
    """The pod once the scheduler has decided about it."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{cluster.url}/api/v1/pods?watch=true&fieldSelector=metadata.name%3D{name}") as watch,
    ):
        async for line in watch.content:
            pod: dict[str, Any] = json.loads(line)["object"]
            if any(condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions", ())):
                return pod
    raise AssertionError("the watch has ended")


async def test_why_explain_and_snapshot_work_with_kubestow_up(tmp_path: Path) -> None:
    async with up(tmp_path, "--nodes", "3") as cluster:
        await create_pod(cluster, "big", "1000")
        await create_pod(cluster, "small", "1")
        secret = {"metadata": {"name": "s"}, "stringData": {"password": CONFIDENTIAL}}
        await create(cluster.url, "/api/v1/namespaces/default/secrets", secret)
        pending, bound = await attempted(cluster, "big"), await attempted(cluster, "small")
        message = next(c["message"] for c in pending["status"]["conditions"] if c["type"] == "PodScheduled")

        short = await run(cluster.kubeconfig, "why", "big")
        assert short.status == 0
        assert short.out.startswith("default/big: attempt ")
        assert "pod default/big, profile default-scheduler: fits on 0 of 3 nodes" in short.out
        assert message in short.out.replace("\n", " ")
        assert "3 nodes: NodeResourcesFit: Insufficient cpu" in short.out
        assert "smallest change: request " in short.out
        assert short.err == "remark: reported by the scheduler\n"
        placed = await run(cluster.kubeconfig, "why", "default/small")
        assert f"it is bound to {bound['spec']['nodeName']}" in placed.out

        long = await run(cluster.kubeconfig, "explain", "big", "-o", "json")
        assert json.loads(long.out)["message"] == message

        dump = tmp_path / "dump.json"
        saved = await run(cluster.kubeconfig, "snapshot", "-o", str(dump))
        assert (saved.status, saved.out) == (0, "")
        assert stat.S_IMODE(dump.stat().st_mode) == 0o600
        assert CONFIDENTIAL not in dump.read_text()
        assert "managedFields" not in dump.read_text()
        compressed = tmp_path / "dump.json.gz"
        assert (await run(cluster.kubeconfig, "snapshot", "-o", str(compressed))).status == 0
        content = json.loads(gzip.decompress(compressed.read_bytes()))
        assert (content["kind"], content["serverVersion"]) == ("List", KUBERNETES_VERSION)
        offline = await run(cluster.kubeconfig, "explain", "big", "--cluster", str(compressed), "-o", "json")
        assert json.loads(offline.out)["message"] == message
        assert json.loads(offline.out)["emulatedVersion"] == "1.36"
        for reason in (long.err, offline.err):
            assert f"decides as Kubernetes 1.36: the version of its API server is {KUBERNETES_VERSION}" in reason

        for command in ("why", "explain"):
            unknown = await run(cluster.kubeconfig, command, "other")
            errors = [line for line in unknown.err.splitlines() if not line.startswith(("kubernetes: ", "remark: "))]
            assert (unknown.status, unknown.out, len(errors)) == (1, "", 1)


async def test_answers_are_those_of_the_configuration_of_the_running_scheduler(tmp_path: Path) -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}
    args = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": args}]}],
            }
        )
    )
    async with up(tmp_path, "--nodes", "2", "--config", str(configuration)) as cluster:
        await create_pod(cluster, "small", "1")
        await attempted(cluster, "small")
        causes = await run(cluster.kubeconfig, "why", "-A", "-o", "json")
        assert [cause["reason"] for cause in json.loads(causes.out)["causes"]] == [
            "2 nodes: the affinity that the profile adds does not match"
        ]
        assert "remark: decided with the configuration of the scheduler that runs there" in causes.err
        explained = await run(cluster.kubeconfig, "explain", "small", "-o", "json")
        assert json.loads(explained.out)["feasible"] == 0
        (tmp_path / "defaults.yaml").write_text(
            "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}"
        )
        other = await run(cluster.kubeconfig, "why", "-A", "--config", str(tmp_path / "defaults.yaml"))
        assert "2 nodes: the pod fits" in other.out
        assert "the scheduler's last message about 1 pod has other reasons" in other.err


@pytest.mark.parametrize("arguments", [("why", "p"), ("explain", "p"), ("snapshot",)])
async def test_an_unreachable_cluster_is_one_clear_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:1")
    result = await run(kubeconfig, *arguments)
    assert (result.status, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert "127.0.0.1:1" in line


def write_kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return path


async def serve(handler: Any) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    return runner, f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]


async def test_the_scheduler_reports_itself_where_the_proxy_reaches_it(tmp_path: Path) -> None:
    report = {
        "pod": "default/p",
        "summary": "attempt 3 failed: 0/5 nodes are available.",
        "queue": {"requeueEvents": {"NodeResourcesFit": ["NodeAdd"]}},
        "now": {"nodes": 5, "feasible": 0, "message": "0/5 nodes are available: 5 Insufficient cpu."},
    }

    async def respond(request: web.Request) -> web.Response:
        if request.path == "/api/v1/namespaces/default/pods/p":
            return web.json_response({"kind": "Pod"})
        if request.path == "/api/v1/pods":
            names = [{"metadata": {"namespace": "kube-system", "name": name}} for name in ("standby", "leader")]
            return web.json_response({"items": names})
        if request.path.endswith("/https:leader:10259/proxy/debug/pods/default/p"):
            return web.json_response(report)
        return web.json_response({"kind": "Status", "code": 503}, status=503)

    runner, server = await serve(respond)
    try:
        result = await run(write_kubeconfig(tmp_path, server), "why", "p")
    finally:
        await runner.cleanup()
    assert result.out.splitlines() == [
        "default/p: attempt 3 failed: 0/5 nodes are available.",
        "NodeResourcesFit waits for NodeAdd",
        "now it fits on 0 of 5 nodes",
        "now: 0/5 nodes are available: 5 Insufficient cpu.",
    ]
    assert result.err == "remark: reported by the scheduler\n"


async def test_pages_of_a_list_are_read_anew_when_their_version_is_gone(tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []

    async def respond(request: web.Request) -> web.Response:
        if request.path != "/api/v1/nodes":
            return web.json_response({"apiVersion": "v1", "kind": "List", "items": [], "metadata": {}})
        asked.append(dict(request.query))
        if "continue" in request.query:
            return web.json_response({"kind": "Status", "code": 410, "reason": "Expired"}, status=410)
        node = {"metadata": {"name": "a"}}
        metadata = {"resourceVersion": "7" if "limit" in request.query else "9"}
        if "limit" in request.query:
            metadata["continue"] = "next"
        return web.json_response({"apiVersion": "v1", "kind": "NodeList", "items": [node], "metadata": metadata})

    runner, server = await serve(respond)
    try:
        result = await run(write_kubeconfig(tmp_path, server), "snapshot")
    finally:
        await runner.cleanup()
    document = json.loads(result.out)
    assert document["resourceVersions"]["/api/v1/nodes"] == "9"
    assert [item["metadata"]["name"] for item in document["items"]] == ["a"]
    assert [sorted(query) for query in asked] == [["limit"], ["continue", "limit"], []]


QUOTA_PLUGIN = """
from kubestow.api.custom import CustomObject
from kubestow.framework.interface import PreFilterPlugin
from kubestow.framework.status import Status

class Quota(CustomObject, frozen=True):
    resource = "quotas.v1.example.com"

class Quotas(PreFilterPlugin):
    name = "Quotas"
    kinds = (Quota,)

    def pre_filter(self, state, pod, nodes):
        return Status.unresolvable("a quota is used up") if list(self.handle.cluster.catalog(Quota)) else None
"""


async def run_with_quotas(folder: Path, quotas: web.Response | None, *commands: tuple[str, ...]) -> list[Ended]:
    """The results of commands in a cluster that answers a list of quotas like this; None: with one quota."""
    plugin, configuration = folder / "plugin.py", folder / "config.json"
    plugin.write_text(QUOTA_PLUGIN)
    plugins = {"multiPoint": {"enabled": [{"name": "Quotas"}]}}
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
            }
        )
    )
    resources = {"cpu": "4", "pods": "10"}
    node = {"metadata": {"name": "a"}, "status": {"allocatable": resources, "capacity": resources}}
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"schedulerName": "default-scheduler"}}
    quota = {"metadata": {"name": "q"}}
    items = {
        "/api/v1/nodes": ("v1", "NodeList", node),
        "/api/v1/pods": ("v1", "PodList", pod),
        "/apis/example.com/v1/quotas": ("example.com/v1", "QuotaList", quota),
    }

    async def respond(request: web.Request) -> web.Response:
        if request.path.endswith("/quotas") and quotas is not None:
            return quotas
        if request.path == "/api/v1/namespaces/default/pods/p":
            return web.json_response(pod)
        version, kind, *objects = items.get(request.path, ("v1", "List"))
        listed = [] if "labelSelector" in request.query else objects
        metadata = {"resourceVersion": "7"}
        return web.json_response({"apiVersion": version, "kind": kind, "items": listed, "metadata": metadata})

    runner, server = await serve(respond)
    try:
        kubeconfig = write_kubeconfig(folder, server)
        common = ("--config", str(configuration), "--plugin", f"{plugin}:Quotas", "--emulated-version", "1.36")
        return [await run(kubeconfig, *command, *common) for command in commands]
    finally:
        await runner.cleanup()


async def test_live_commands_read_the_custom_resources_of_the_configured_plugins(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    why, explain, snapshot, offline = await run_with_quotas(
        *(tmp_path, None, ("why", "pod/p"), ("explain", "p", "-n", "default"), ("snapshot", "-o", str(dump))),
        ("explain", "p", "--cluster", str(dump)),
    )
    assert "1 Quota" in snapshot.err
    for found in (why, explain, offline):
        assert "fits on 0 of 1 node" in found.out, found.err
        assert "a quota is used up" in found.out


async def test_a_custom_resource_that_cannot_be_listed_is_a_refusal_with_its_plugin(tmp_path: Path) -> None:
    status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "quotas is forbidden"}
    for command in ("why", "explain"):
        (found,) = await run_with_quotas(tmp_path, web.json_response(status, status=403), (command, "p"))
        assert (found.status, found.out) == (1, "")
        assert "/apis/example.com/v1/quotas: Quotas reads it: " in found.err
        assert "quotas is forbidden" in found.err


async def test_a_custom_resource_that_is_not_served_is_a_remark(tmp_path: Path) -> None:
    status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
    (found,) = await run_with_quotas(tmp_path, web.json_response(status, status=404), ("explain", "p"))
    assert found.status == 0
    assert (
        "remark: the API server does not serve quotas.v1.example.com: Quotas decides as if there was none" in found.err
    )


async def test_a_snapshot_without_the_custom_resources_of_a_plugin_is_refused(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    spec = {"schedulerName": "default-scheduler"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    versions = {"/api/v1/nodes": "7", "/api/v1/pods": "7"}
    dump.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "resourceVersions": versions, "items": [node, pod]})
    )
    (found,) = await run_with_quotas(tmp_path, None, ("explain", "p", "--cluster", str(dump)))
    assert found.status == 1
    assert "quotas.v1.example.com: left out, but Quotas decides by them" in found.err


async def test_the_shadow_of_the_scheduler_of_kubestow_up_agrees_with_it(tmp_path: Path) -> None:
    page, record = tmp_path / "shadow.html", tmp_path / "record.bin"
    async with up(tmp_path, "--nodes", "5") as cluster:
        recording = await start(cluster.kubeconfig, "record", "-o", str(record))
        shadow = await start(
            cluster.kubeconfig,
            *("shadow", "--fail-below", "99.9", "-o", "json", "-o", f"html={page}", "--secure-port", "0"),
        )
        assert shadow.stdout is not None and shadow.stderr is not None
        metrics = ""
        while "/metrics" not in metrics:
            metrics = (await shadow.stderr.readline()).decode()
        # The first decision that it prints says that it has listed everything.
        decided, number = asyncio.create_task(shadow.stdout.readline()), 0
        while not decided.done():
            await create_pod(cluster, f"early-{number}", "100m")
            await asyncio.wait((decided,), timeout=0.5)
            number += 1
        for burst in range(5):
            cpus = ["1000" if position == 19 else "100m" for position in range(20)]
            await asyncio.gather(*(create_pod(cluster, f"pod-{burst}-{n}", cpu) for n, cpu in enumerate(cpus)))
        results = [json.loads(decided.result())]
        pods = {f"default/pod-{burst}-{n}" for burst in range(5) for n in range(20)}
        while pods - {result["pod"] for result in results}:
            results.append(json.loads(await shadow.stdout.readline()))
        async with (
            aiohttp.ClientSession() as session,
            session.get(metrics.split()[-1], ssl=False) as response,
        ):
            exposed = await response.text()
        shadow.terminate()
        out, err = await shadow.communicate()
        recording.terminate()
        await recording.communicate()
        replayed = await run(
            cluster.kubeconfig, "shadow", "--record", str(record), "--fail-below", "99.9", "-o", "json"
        )
    assert (shadow.returncode, "Traceback" in err.decode()) == (0, False)
    assert [result for result in results if result["differs"]] == []
    assert json.loads(out.splitlines()[-1])["agreement"] == 100
    assert "kubestow_shadow_decisions_total{" in exposed
    assert "kubestow_shadow_differences_total 0.0" in exposed
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert replayed.status == 0
    assert json.loads(replayed.out.splitlines()[-1])["compared"] >= 100


async def test_shadow_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    unknown = await run(tmp_path / "none", "shadow", "--scheduler-name", "other", "--duration", "1s")
    assert (unknown.status, unknown.err) == (
        1,
        "kubestow: --scheduler-name: no profile other, the configuration has default-scheduler\n",
    )
    both = await run(tmp_path / "none", "shadow", "--record", "record.bin", "--duration", "1s")
    assert both.status == 2
    assert "--record excludes --duration" in both.err
    missing = await run(tmp_path / "none", "shadow", "--record", str(tmp_path / "record.bin"))
    assert missing.status == 1
    assert "record.bin" in missing.err
