"""The real kubectl runs the plugins against an embedded API server, and completes their arguments."""

from __future__ import annotations

import asyncio
import json
import sys
import tomllib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.kubectl import KUBECTL, NEEDS_KUBECTL
from kubestow_devcluster.cluster import DevCluster

pytestmark = NEEDS_KUBECTL

ROOT = Path(__file__).parents[2]
#: The console scripts of all distributions that are about kubectl.
SCRIPTS: dict[str, str] = {
    name: target
    for file in ROOT.glob("packages/*/pyproject.toml")
    for name, target in tomllib.loads(file.read_text(encoding="utf-8"))["project"].get("scripts", {}).items()
    if name.startswith(("kubectl-", "kubectl_complete-"))
}
PLUGINS = sorted(name for name in SCRIPTS if name.startswith("kubectl-"))


def install(folder: Path) -> None:
    """Console scripts as pip writes them."""
    folder.mkdir()
    for name, target in SCRIPTS.items():
        module, _, function = target.partition(":")
        program = folder / name
        program.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        program.chmod(0o755)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with a kubeconfig, and plugins in its PATH."""

    folder: Path
    kubeconfig: Path

    async def __call__(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """Standard output and standard error."""
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            *(KUBECTL, *arguments),
            env={
                "HOME": str(self.folder),
                "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
                "KUBECONFIG": str(self.kubeconfig),
                "PYTHONPATH": ":".join(sys.path),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(HANG_LIMIT):
            out, err = await process.communicate()
        assert process.returncode == status, err.decode()
        return out.decode(), err.decode()


def pod(name: str, cpu: str, *, job: str = "", **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
    metadata = {"name": name, "labels": {"app": name.partition("-")[0]}} | ({"ownerReferences": [owner]} if job else {})
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


TEMPLATE = {"metadata": {"labels": {"app": "train"}}, "spec": {"restartPolicy": "Never", **pod("p", "64")["spec"]}}
JOB = {
    "metadata": {"name": "train-7"},
    "spec": {"parallelism": 3, "completions": 9, "suspend": True, "template": TEMPLATE},
}


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """Two nodes; a job, its pods and another one in the namespace of the context, and one in the default namespace."""
    install(tmp_path / "bin")
    async with DevCluster(nodes=2) as server, aiohttp.ClientSession(server.url) as session:

        async def create(path: str, body: dict[str, Any]) -> None:
            async with session.post(path, json=body) as response:
                assert response.status == 201, await response.text()

        await create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await create("/apis/batch/v1/namespaces/shop/jobs", JOB)
        for name in ("train-7-a", "train-7-b"):
            await create("/api/v1/namespaces/shop/pods", pod(name, "64", job="train-7"))
        await create("/api/v1/namespaces/shop/pods", pod("web-1", "1", nodeSelector={"disk": "ssd"}))
        await create("/api/v1/namespaces/default/pods", pod("db-1", "1", nodeSelector={"disk": "ssd"}))
        kubeconfig = tmp_path / "kubeconfig"
        contexts = [
            {"name": "shop", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
            {"name": "plain", "context": {"cluster": "c", "user": "u"}},
        ]
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "shop",
            "contexts": contexts,
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {}}],
        }
        kubeconfig.write_text(json.dumps(content))
        found = Kubectl(tmp_path, kubeconfig)
        await found("wait", "--for=condition=Ready", "node/node-0", "node/node-1", "--timeout=600s")
        yield found


async def test_kubectl_lists_the_plugins_and_runs_them_under_their_names(kubectl: Kubectl) -> None:
    listed, _ = await kubectl("plugin", "list")
    assert sorted(Path(line).name for line in listed.splitlines() if line.startswith("/")) == PLUGINS
    assert [f"kubectl-{name}" for name in ("capacity", "explain_pod", "simulate", "what_if", "why")] == PLUGINS
    assert [name for name in PLUGINS if name.replace("kubectl-", "kubectl_complete-") not in SCRIPTS] == []
    explained, _ = await kubectl("explain-pod", "pod/db-1", "--context", "plain")
    assert explained.startswith("pod default/db-1, profile default-scheduler: fits on 0 of 2 nodes\n")
    _, error = await kubectl("explain-pod", status=2)
    assert error == "kubestow: Missing argument 'POD'. See 'kubectl explain-pod --help'.\n"


async def test_why_answers_in_the_namespace_of_the_context(kubectl: Kubectl) -> None:
    out, err = await kubectl("why", "web-1")
    assert out.startswith("pod shop/web-1, profile default-scheduler: fits on 0 of 2 nodes\n")
    assert "smallest change: drop disk=ssd from the node selector" in out
    assert "remark: computed from the objects of the API server" in err
    _, error = await kubectl("why", "db-1", status=1)
    assert 'pods "db-1" not found' in error


async def test_why_of_a_job_has_its_own_state(kubectl: Kubectl) -> None:
    out, _ = await kubectl("why", "job/train-7", "--kubeconfig", str(kubectl.kubeconfig))
    lines = out.splitlines()
    assert lines[0] == "job/train-7 in namespace shop: 2 pods, 2 of them pending"
    assert lines[1].startswith("wants 9 completions with parallelism 3; 0 active, ")
    assert "suspended, so it creates no pods" in lines[1]
    assert "shop/train-7-a, shop/train-7-b" in out
    _, error = await kubectl("why", "job/other", status=1)
    assert error == "kubestow: job/other in namespace shop: not found\n"


async def test_simulate_places_a_manifest_on_the_cluster_of_kubectl(kubectl: Kubectl) -> None:
    manifest = kubectl.folder / "pod.yaml"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **pod("more", "8")}))
    out, _ = await kubectl("simulate", "-f", str(manifest), "-o", "json")
    states = {each["name"]: each["state"] for each in json.loads(out)["pods"]}
    assert states == {"train-7-a": "Pending", "train-7-b": "Pending", "web-1": "Pending", "db-1": "Pending"} | {
        "more": "Running"
    }


async def test_arguments_are_completed_by_the_cluster(kubectl: Kubectl) -> None:
    """The last line is the directive: 4 says not to propose the names of files."""
    pods, _ = await kubectl("__complete", "why", "pod/w")
    assert pods.splitlines() == ["pod/web-1", ":4"]
    namespaces, _ = await kubectl("__complete", "explain-pod", "-n", "sh")
    assert namespaces.splitlines() == ["shop", ":4"]
    options, _ = await kubectl("__complete", "what-if", "lose", "--zo")
    assert options.splitlines() == ["--zone\tAll nodes of this zone.", ":4"]
