"""``--kubernetes-version``: the scheduler of a minor version on the API server of ``kubestow up`` and ``apiserver``."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.cli.up_process import COMMAND, ended
from devcluster_tests.kubectl import NEEDS_KUBECTL, Kubectl
from devcluster_tests.test_apiserver_command import running_server
from kubestow.api.conversion import DEVICES
from kubestow.rules.minors import NOT_COMPARED

pytestmark = NEEDS_KUBECTL

DEVICE_CLASS = {"kind": "DeviceClass", "metadata": {"name": "gpus"}, "spec": {}}
CLAIM = {
    "kind": "ResourceClaim",
    "metadata": {"name": "gpu"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpus"}}]}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "with-claim"},
    "spec": {
        "containers": [{"name": "c", "image": "nginx", "resources": {"claims": [{"name": "device"}]}}],
        "resourceClaims": [{"name": "device", "resourceClaimName": "gpu"}],
    },
}


def resource_slice(node: str) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": node, "driver": "gpus.example.com", "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"}, "spec": spec}


def in_version(version: str, obj: dict[str, Any]) -> str:
    """An object of resource.k8s.io/v1 in the version that is served."""
    converted = obj if version == "v1" else DEVICES.from_hub(version, obj)
    return yaml.safe_dump({"apiVersion": f"{DEVICES.name}/{version}", **converted})


@pytest.mark.parametrize(
    ("minor", "served", "gates"),
    [
        ("1.31", "v1alpha3", "DynamicResourceAllocation=true"),
        ("1.33", "v1beta1", "DynamicResourceAllocation=true"),
        ("1.34", "v1", ""),
    ],
)
async def test_the_scheduler_of_the_minor_version_binds_pods_and_allocates_claims(
    minor: str, served: str, gates: str, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("--kubernetes-version", minor, "--nodes", "1", "--feature-gates", gates),
        *("--kubeconfig-out", str(tmp_path / "kubeconfig")),
        stdout=PIPE,
        stderr=PIPE,
    )
    assert process.stdout is not None
    url = ""
    try:
        async with asyncio.timeout(HANG_LIMIT):
            while (line := (await process.stdout.readline()).decode().strip()) != "ready":
                assert line or not process.stdout.at_eof(), await process.communicate()
                url = line.split()[-1] if line.startswith("serving") else url
        kubectl = Kubectl(url, tmp_path)
        assert f"v{minor}." in await kubectl("get", "nodes")
        for obj in (DEVICE_CLASS, resource_slice("node-0"), CLAIM):
            await kubectl("create", "-f", "-", stdin=in_version(served, obj))
        await kubectl("create", "-f", "-", stdin=yaml.safe_dump(POD))
        await kubectl("run", "plain", "--image=nginx")
        for pod in ("plain", "with-claim"):
            await kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=600s")
        printed = await kubectl("get", "pods,resourceclaims,deviceclasses,resourceslices")
        assert "pod/with-claim" in printed and "resourceclaim.resource.k8s.io/gpu" in printed
        assert "allocated,reserved" in printed
        async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
            requests = [line for line in (await response.text()).splitlines() if line.startswith("apiserver_request")]
        watched = "".join(line for line in requests if 'verb="WATCH"' in line)
        assert f'group="{DEVICES.name}",resource="resourceclaims"' in watched and 'code="404"' not in watched
    finally:
        process.terminate()
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")


async def test_a_version_that_was_not_compared_is_served_with_a_warning(tmp_path: Path) -> None:
    options = ("apiserver", "--port", "0", "--kubernetes-version", "1.37")
    process = await asyncio.create_subprocess_exec(*COMMAND[:-3], *options, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(HANG_LIMIT):
        while (await process.stdout.readline()).strip() != b"ready":
            assert not process.stdout.at_eof(), await process.communicate()
        process.terminate()
        _, errors = await process.communicate()
    assert errors.decode() == f"kubernetes: {NOT_COMPARED}\n"


@pytest.mark.parametrize("minor", ["1.33", "1.34"])
async def test_run_is_the_scheduler_of_its_api_server(minor: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    server = ("--port", "0", "--nodes", "1", "--kubernetes-version", minor, "--kubeconfig-out", str(kubeconfig))
    async with running_server(*server) as lines:
        run = ("run", "--kubeconfig", str(kubeconfig), "--secure-port", "0", "--leader-elect=false")
        scheduler = await asyncio.create_subprocess_exec(*COMMAND[:-3], *run, stdout=DEVNULL, stderr=PIPE)
        try:
            kubectl = Kubectl(lines[0].split()[-1], tmp_path)
            await kubectl("run", "plain", "--image=nginx")
            await kubectl("wait", "--for=condition=Ready", "pod/plain", "--timeout=600s")
        finally:
            scheduler.terminate()
            _, log = await scheduler.communicate()
    assert f'emulated="{minor}"'.encode() in log
    assert not [line for line in log.splitlines() if line[:1] in (b"W", b"E")]


WORKLOAD = """
apiVersion: scheduling.k8s.io/v1alpha1
kind: Workload
metadata: {name: job}
spec:
  podGroups:
  - name: workers
    policy: {gang: {minCount: 2}}
"""


async def test_run_schedules_the_gangs_of_workloads_on_a_server_of_1_35(tmp_path: Path) -> None:
    def worker(number: int) -> str:
        spec = {"containers": [{"name": "c", "image": "nginx"}], "workloadRef": {"name": "job", "podGroup": "workers"}}
        metadata = {"name": f"worker-{number}"}
        return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    kubeconfig = tmp_path / "kubeconfig"
    server = ("--port", "0", "--nodes", "1", "--kubernetes-version", "1.35", "--kubeconfig-out", str(kubeconfig))
    async with running_server(*server) as lines:
        run = ("run", "--kubeconfig", str(kubeconfig), "--secure-port", "0", "--leader-elect=false")
        gates = "--feature-gates=GenericWorkload=true,GangScheduling=true"
        scheduler = await asyncio.create_subprocess_exec(*COMMAND[:-3], *run, gates, stdout=DEVNULL, stderr=PIPE)
        try:
            kubectl = Kubectl(lines[0].split()[-1], tmp_path)
            await kubectl("create", "-f", "-", stdin=WORKLOAD)
            printed = await kubectl("get", "workloads")
            assert [line.split()[0] for line in printed.splitlines()] == ["NAME", "job"]
            assert "podGroups" in await kubectl("explain", "workload.spec", "--api-version=scheduling.k8s.io/v1alpha1")
            await kubectl("create", "-f", "-", stdin=worker(0))
            waiting = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].status}=False"
            await kubectl("wait", f"--for={waiting}", "pod/worker-0", "--timeout=600s")
            await kubectl("create", "-f", "-", stdin=worker(1))
            await kubectl("wait", "--for=condition=Ready", "pod/worker-0", "pod/worker-1", "--timeout=600s")
        finally:
            scheduler.terminate()
            _, log = await scheduler.communicate()
    assert not [line for line in log.splitlines() if line[:1] in (b"W", b"E")]


async def test_a_version_that_cannot_be_served_is_an_error() -> None:
    status, err = await ended("--kubernetes-version", "1.29")
    assert status == 1
    assert err == "kubestow: --kubernetes-version: version 1.29 is not supported, expected 1.31 to 1.37\n"
