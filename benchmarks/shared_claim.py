"""Many pods that share one ResourceClaim, over HTTP: every binding cycle adds its pod to the claim's status.

    .venv/bin/python benchmarks/shared_claim.py [--pods 256]

API server and scheduler run in separate processes. The first pod allocates the claim, the others reserve it; the API
allows 256 reservations. Prints the time from the first creation to the last binding, the CPU time of the scheduler
process, and the writes of claims that failed. Results: docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

import msgspec

from end_to_end import all_bound, cpu_seconds, create, node
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.process import WallClock
from kubestow_lab.demo.apiserver_process import apiserver_process

RESOURCE = "/apis/resource.k8s.io/v1"
NODES = 8


def encoded(name: str, spec: dict[str, Any]) -> bytes:
    """An object of any kind."""
    return msgspec.json.encode({"metadata": {"name": name}, "spec": spec})


def pod(number: int) -> bytes:
    """A pod that uses the shared claim."""
    containers = [{"name": "main", "image": "i", "resources": {"claims": [{"name": "shared"}]}}]
    claims = [{"name": "shared", "resourceClaimName": "shared"}]
    return encoded(f"pod-{number}", {"containers": containers, "resourceClaims": claims})


async def create_claim(transport: Transport) -> None:
    """A device that all nodes can access, and a claim for it."""
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    devices = {"driver": "example.com", "pool": pool, "allNodes": True, "devices": [{"name": "d0"}]}
    request = {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}}
    await transport.request("POST", f"{RESOURCE}/deviceclasses", encoded("any", {}))
    await transport.request("POST", f"{RESOURCE}/resourceslices", encoded("slice", devices))
    await transport.request(
        "POST",
        f"{RESOURCE}/namespaces/default/resourceclaims",
        encoded("shared", {"devices": {"requests": [request]}}),
    )


async def measure(pods: int) -> None:
    """Run the measurement and print the results."""
    async with (
        apiserver_process() as url,
        Transport(await load_credentials(master=url), clock=WallClock()) as transport,
    ):
        await create(transport, "/api/v1/nodes", [node(number) for number in range(NODES)])
        await create_claim(transport)
        scheduler = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubestow", "run", "--master", url, "--leader-elect=false", "--secure-port=0"),
            stderr=asyncio.subprocess.PIPE,
        )
        assert scheduler.stderr is not None
        await scheduler.stderr.readuntil(b'"Scheduling"')
        draining = asyncio.create_task(scheduler.stderr.read())
        cpu, began = cpu_seconds(scheduler.pid), time.perf_counter()
        await create(transport, "/api/v1/namespaces/default/pods", [pod(number) for number in range(pods)])
        seconds = await all_bound(transport) - began
        print(f"{pods} pods share a claim: all bound in {seconds:.2f} s,", end=" ")
        print(f"{cpu_seconds(scheduler.pid) - cpu:.2f} s CPU of the scheduler,", end=" ")
        scheduler.terminate()
        await scheduler.wait()
        print(f"{(await draining).count(b'the object has been modified')} lines about conflicts in its log")


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pods", type=int, default=256)
    asyncio.run(measure(arguments.parse_args().pods))


if __name__ == "__main__":
    main()
