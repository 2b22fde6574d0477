"""``kubestow up``: output, options, and clusters that run pods."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.cli.up_process import children_of, ended, is_running, started, up

NODES = """
apiVersion: v1
kind: Node
metadata: {name: only}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        },
    },
}


async def get(url: str, path: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        found: dict[str, Any] = await response.json()
        return found


async def placed(url: str, count: int) -> set[str]:
    """Wait until ``count`` pods are running; the nodes of the pods."""
    nodes: dict[str, str] = {}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/pods?watch=true") as watch:
        async for line in watch.content:
            pod = json.loads(line)["object"]
            if pod["status"]["phase"] == "Running":
                nodes[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
            if len(nodes) == count:
                break
    return set(nodes.values())


async def create(url: str, path: str, body: dict[str, Any]) -> None:
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as response:
        assert response.status == 201, await response.text()


async def test_it_prints_its_url_and_runs_a_deployment(tmp_path: Path) -> None:
    async with up(tmp_path, "--nodes", "3") as cluster:
        config = json.loads(cluster.kubeconfig.read_text())
        assert config["clusters"][0]["cluster"]["server"] == cluster.url
        assert "3 simulated nodes; scheduling for default-scheduler" in cluster.lines
        await create(cluster.url, "/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)
        assert await placed(cluster.url, 3) <= {"node-0", "node-1", "node-2"}


async def test_a_cluster_file_replaces_the_default_nodes(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    async with up(tmp_path, "--cluster", str(nodes)) as cluster:
        assert cluster.lines[0] == f"{nodes}: 1 Node"
        await create(cluster.url, "/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)
        assert await placed(cluster.url, 3) == {"only"}


async def test_the_scheduler_uses_the_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: mine}]\nclientConnection: {kubeconfig: /of/another/cluster}\n"
    )
    async with up(tmp_path, "--config", str(config)) as cluster:
        assert "5 simulated nodes; scheduling for mine" in cluster.lines


async def test_only_a_kubeconfig_of_kubestow_is_overwritten(tmp_path: Path) -> None:
    async with up(tmp_path) as cluster:
        kubeconfig = cluster.kubeconfig
    async with up(tmp_path):
        pass
    other = json.dumps({"clusters": [{"name": "production"}]})
    kubeconfig.write_text(other)
    status, error = await ended("--kubeconfig-out", str(kubeconfig))
    assert (status, kubeconfig.read_text()) == (1, other)
    assert error == (f"kubestow: {kubeconfig}: already exists and was not written by kubestow; choose another file\n")


async def test_the_file_that_is_written_gets_no_second_context(tmp_path: Path) -> None:
    file = tmp_path / "config"
    status, error = await ended("--kubeconfig-out", str(file), "--kubeconfig", f"{tmp_path}/../{tmp_path.name}/config")
    problem = "the file of --kubeconfig-out, which has the context already; expected another file, or none"
    assert (status, error) == (1, f"kubestow: --kubeconfig: {file} is {problem}\n")
    assert not file.exists()


async def test_an_invalid_file_is_one_error_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("kind: Node\napiVersion: v1\n")
    for option, file, expected in (
        ("--cluster", broken, 1),
        ("--cluster", tmp_path / "none", 1),
        ("--config", broken, 1),
    ):
        status, error = await ended(option, str(file), "--kubeconfig-out", str(tmp_path / "config"))
        assert (status, error.count("\n"), str(file) in error) == (expected, 1, True)


@pytest.mark.parametrize("option", ["--event-ttl", "--node-monitor-grace-period"])
async def test_a_duration_that_is_not_positive_is_one_error_line(tmp_path: Path, option: str) -> None:
    status, error = await ended(option, "0s", "--kubeconfig-out", str(tmp_path / "config"))
    assert (status, error) == (1, f"kubestow: {option}: expected a positive duration such as 50s, got '0s'\n")


async def test_a_pod_with_a_wait_for_first_consumer_claim_runs(tmp_path: Path) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pod = {
        "metadata": {"name": "db-0"},
        "spec": {"containers": [{"name": "c", "image": "postgres"}], "volumes": volumes},
    }
    async with up(tmp_path, "--nodes", "3") as cluster:
        await create(cluster.url, "/api/v1/namespaces/default/persistentvolumeclaims", claim)
        await create(cluster.url, "/api/v1/namespaces/default/pods", pod)
        node = await placed(cluster.url, 1)
        found = await get(cluster.url, "/api/v1/namespaces/default/persistentvolumeclaims/data")
        assert found["spec"]["storageClassName"] == "standard"
        assert {found["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]} == node
        assert found["status"]["phase"] == "Bound"


async def test_a_pod_with_a_resource_claim_template_runs(tmp_path: Path) -> None:
    devices = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpus"}}]}}
    slice_ = {
        "metadata": {"name": "node-1-gpus"},
        "spec": {
            "driver": "gpus.example.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }
    pod = {
        "metadata": {"name": "train"},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        },
    }
    resources = "/apis/resource.k8s.io/v1"
    template = {"metadata": {"name": "one-gpu"}, "spec": {"spec": devices}}
    async with up(tmp_path, "--nodes", "3") as cluster:
        await create(cluster.url, f"{resources}/deviceclasses", {"metadata": {"name": "gpus"}, "spec": {}})
        await create(cluster.url, f"{resources}/resourceslices", slice_)
        await create(cluster.url, f"{resources}/namespaces/default/resourceclaimtemplates", template)
        await create(cluster.url, "/api/v1/namespaces/default/pods", pod)
        assert await placed(cluster.url, 1) == {"node-1"}
        claims = await get(cluster.url, f"{resources}/namespaces/default/resourceclaims")
        assert claims["items"][0]["status"]["reservedFor"][0]["name"] == "train"


@pytest.mark.parametrize("own_process", ["true", "false"])
async def test_the_scheduler_is_a_process_of_its_own_or_not(tmp_path: Path, own_process: str) -> None:
    async with up(tmp_path, "--nodes", "2", "--tls", f"--scheduler-process={own_process}") as cluster:
        assert "2 simulated nodes; scheduling for default-scheduler" in cluster.lines
        children = children_of(cluster.pid)
        assert len(children) == (own_process == "true")
    assert not any(is_running(child) for child in children), "it ends with the cluster"


@pytest.mark.parametrize("own_process", ["true", "false"])
async def test_a_mistake_in_the_schedulers_options_is_reported_alike(tmp_path: Path, own_process: str) -> None:
    config, kubeconfig, data = tmp_path / "config.yaml", tmp_path / "kubeconfig", tmp_path / "data"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: -1\n")
    arguments = (f"--scheduler-process={own_process}", "--kubeconfig-out", str(kubeconfig), "--data-dir", str(data))
    status, error = await ended("--config", str(config), *arguments)
    assert (status, error.splitlines()[0].split(":")[:2]) == (1, ["kubestow", f" {config}"])
    assert "parallelism" in error and "Traceback" not in error
    assert await ended("--feature-gates", "Nothing=true", *arguments) == (
        1,
        "kubestow: --feature-gates: unrecognized feature gate: Nothing\n",
    )
    assert not kubeconfig.exists() and not data.exists()


async def test_the_death_of_the_scheduler_ends_the_cluster(tmp_path: Path) -> None:
    arguments = ("--scheduler-process=true", "--kubeconfig-out", str(tmp_path / "kubeconfig"))
    process = await started(*arguments)
    (scheduler,) = children_of(process.pid)
    os.kill(scheduler, signal.SIGKILL)
    _, error = await asyncio.wait_for(process.communicate(), HANG_LIMIT)
    assert process.returncode == 1
    assert "the scheduler's process ended unexpectedly with status -9" in error.decode()
    assert error.decode().endswith("kubestow: the scheduler's process ended with status -9\n")


async def test_the_scheduler_does_not_outlive_a_killed_cluster(tmp_path: Path) -> None:
    process = await started("--scheduler-process=true", "--kubeconfig-out", str(tmp_path / "kubeconfig"))
    (scheduler,) = children_of(process.pid)
    scheduler_ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(os.pidfd_open(scheduler), scheduler_ended.set)
    process.kill()
    await process.wait()
    async with asyncio.timeout(HANG_LIMIT):
        await scheduler_ended.wait()
