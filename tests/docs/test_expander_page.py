"""The commands of docs/expander.md work, with the wire format of cluster-autoscaler's expander.proto."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

grpc = pytest.importorskip("grpc")

from core_tests.client.kubeconfigs import kubeconfig, save  # noqa: E402
from core_tests.hang_limit import HANG_LIMIT  # noqa: E402
from kubestow.http.certificates import CertificateAuthority  # noqa: E402
from kubestow_devcluster.apiserver.schema import descriptors  # noqa: E402
from kubestow_devcluster.apiserver.schema.type_table import type_entry  # noqa: E402
from kubestow_devcluster.apiserver.serialization import protobuf  # noqa: E402
from kubestow_devcluster.cluster import DevCluster  # noqa: E402
from kubestow_lab.expander.messages import message_class, pool  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "expander.md").read_text(encoding="utf-8")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web", "creationTimestamp": "2026-11-01T00:00:00Z"},
    "spec": {
        "priority": 5,
        "nodeSelector": {"pool": "web"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 30}],
        "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
        "volumes": [{"name": "home", "emptyDir": {}}],
    },
}


def node(cpu: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"template-{cpu}", "labels": labels},
        "spec": {"taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }


# -- the wire format, by the field numbers of expander.proto -------------------------------------------------------


def field(number: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return bytes((number << 3, content))
    return protobuf.delimited(number, content.encode() if isinstance(content, str) else content)


def message(obj: dict[str, Any]) -> bytes:
    """An object as a Go client encodes it, without the envelope."""
    envelope: Any = descriptors.message_class(descriptors.ENVELOPE)()
    envelope.ParseFromString(protobuf.encode(obj).removeprefix(protobuf.MAGIC))
    return bytes(envelope.raw)


def best_options_request(nodes: Mapping[str, dict[str, Any]], *, as_bytes: bool) -> bytes:
    """One option for each node group, of two nodes; ``as_bytes`` as since Kubernetes 1.35."""
    pod_field, map_field = (5, 3) if as_bytes else (4, 2)
    options = [
        field(1, field(1, group) + field(2, 2) + field(3, "debug") + field(pod_field, message(POD))) for group in nodes
    ]
    entries = [field(map_field, field(1, group) + field(2, message(each))) for group, each in nodes.items()]
    return b"".join((*options, *entries))


@asynccontextmanager
async def expander(directory: Path, *more: str) -> AsyncIterator[tuple[int, int]]:
    """The command of the page on a cluster with a small node, and the ports of gRPC and HTTP."""
    line = re.findall(r"^kubestow expander .*$", PAGE, re.MULTILINE)[0]
    async with DevCluster(nodes=1) as api:
        given = {"~/.kube/config": save(directory, kubeconfig(api.url)), "8086": "0", "8087": "0"}
        arguments = [given.get(word, word) for word in shlex.split(line)[1:]]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubestow", *arguments, *more), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(HANG_LIMIT):
                listening = (await process.stdout.readline()).decode()
                assert (await process.stdout.readline()).decode() == "ready\n"
            ports = re.findall(r":(\d+), HTTP on port (\d+)", listening)
            yield int(ports[0][0]), int(ports[0][1])
            process.terminate()
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()


async def test_cluster_autoscaler_gets_the_best_option_and_simulations_their_placements(tmp_path: Path) -> None:
    nodes = {"web-4": node("4", pool="web"), "batch-64": node("64", pool="batch"), "web-3": node("3", pool="web")}
    async with expander(tmp_path) as (port, http_port), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary("/grpcplugin.Expander/BestOptions")
        for as_bytes in (True, False):
            answer = await ask(best_options_request(nodes, as_bytes=as_bytes), timeout=HANG_LIMIT)
            response = message_class("grpcplugin.BestOptionsResponse").FromString(answer)
            [best] = response.options  # type: ignore[attr-defined]
            assert (best.nodeGroupId, best.nodeCount) == ("web-4", 2)
            assert best.debug.startswith("kubestow: 1 of 1 pods fit with 2 nodes more")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(field(1, field(1, "unknown")), timeout=HANG_LIMIT)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refused.value.details() == "option unknown: the request has no node of this group"
        assert await ask(b"", timeout=HANG_LIMIT) == b""

        simulate = channel.unary_unary("/kubestow.simulation.v1.Simulator/Simulate")
        request = message_class("kubestow.simulation.v1.SimulateRequest")(pods=[message(POD), json.dumps(POD).encode()])
        request.nodes.add(node=message(nodes["web-3"]), count=1)  # type: ignore[attr-defined]
        answer = await simulate(request.SerializeToString(), timeout=HANG_LIMIT)
        simulated: Any = message_class("kubestow.simulation.v1.SimulateResponse").FromString(answer)
        assert simulated.fits
        assert [(each.name, each.node) for each in simulated.placements] == [("web", "template-3-simulated-1")] * 2

        await _check_http(f"http://127.0.0.1:{http_port}", nodes)


async def _check_http(url: str, nodes: Mapping[str, dict[str, Any]]) -> None:
    question = {"pods": [POD, {**POD, "metadata": {"name": "second"}}], "nodes": [{"node": nodes["web-3"], "count": 1}]}
    async with aiohttp.ClientSession() as session:

        async def post(body: Any) -> tuple[int, str]:
            data = body if isinstance(body, bytes) else json.dumps(body)
            async with session.post(f"{url}/v1/simulate", data=data) as response:
                return response.status, await response.text()

        status, text = await post(question)
        found = json.loads(text)
        assert (status, found["fits"]) == (200, False)
        assert [each["node"] for each in found["placements"]] == ["template-3-simulated-1", ""]
        assert "Insufficient cpu" in found["placements"][1]["reason"]
        assert await post(b"{") == (400, "invalid request: Input data was truncated\n")
        assert (await post({"pods": [{"spec": 1}]}))[1].startswith("invalid request: pods[0]: ")
        assert await post({"pods": [], "nodes": [{"node": nodes["web-3"], "count": -1}]}) == (
            400,
            "invalid request: count: expected a number of nodes, not a negative one\n",
        )
        status, text = await post({"pods": [], "nodes": [{"node": nodes["web-3"], "count": 5000}]})
        assert (status, text) == (400, "invalid request: 5,000 added nodes, expected at most 1,000\n")
        # The example of the page.
        [body] = re.findall(r"--data @- <<'EOF'\n(.*?)\nEOF", PAGE, re.DOTALL)
        status, text = await post(body.encode())
        assert status == 200
        assert json.loads(text)["fits"]


async def test_clients_authenticate_the_server_and_themselves(tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("expander-ca")
    server, client = authority.issue_server_certificate(["127.0.0.1"]), authority.issue_client_certificate("autoscaler")
    files = {"ca.crt": authority.certificate, "tls.crt": server.certificate, "tls.key": server.key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    flags = (f"--tls-cert-file={tmp_path}/tls.crt", f"--tls-private-key-file={tmp_path}/tls.key")
    async with expander(tmp_path, *flags, f"--client-ca-file={tmp_path}/ca.crt") as (port, http_port):
        trusted = grpc.ssl_channel_credentials(authority.certificate, client.key, client.certificate)
        anonymous = grpc.ssl_channel_credentials(authority.certificate)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted) as channel:
            assert await channel.unary_unary("/grpcplugin.Expander/BestOptions")(b"", timeout=HANG_LIMIT) == b""
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", anonymous) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary("/grpcplugin.Expander/BestOptions")(b"", timeout=HANG_LIMIT)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"https://127.0.0.1:{http_port}/readyz", ssl=context)


# -- the definitions -----------------------------------------------------------------------------------------------


def test_nodes_and_pods_have_the_field_numbers_of_kubernetes() -> None:
    """Compared with the table of types, which is generated from Kubernetes' own definitions."""
    file = pool().FindFileByName("k8s.io/api/core/v1/generated.proto")
    compared = 0
    for name, descriptor in file.message_types_by_name.items():
        if name in ("Quantity", "Time", "VolumeSource"):
            continue
        numbers = {each.name: tuple(each.number) for each in type_entry(f"V1{name}").fields if each.number}
        for each in descriptor.fields:
            if each.name == "volumeSource":
                assert each.message_type is not None
                for inner in each.message_type.fields:
                    assert numbers[inner.name] == (each.number, inner.number)
                continue
            assert numbers[each.name] == (each.number,), f"{name}.{each.name}"
            compared += 1
    assert compared > 150
