"""A shadow beside a scheduler over HTTP: does it agree, and what does it cost? Results: benchmarks/RESULTS.md."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal

import msgspec

from benchmarks.end_to_end import drain, embedded_server, kubestow_scheduler
from benchmarks.harness import Row
from benchmarks.measurement import cpu_seconds, peak_mb, resident_mb
from benchmarks.shadow_traffic import initial_objects, mixed_pod
from kubestow.api.core import Node, Pod
from kubestow.api.policy import PodDisruptionBudget
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.client.watch_decoding import LineSplitter
from kubestow.errors import APIError
from kubestow.process import WallClock
from kubestow.scheduling.events.resources import resource_of

_CONCURRENCY = 16
#: Pods that are created before anything is measured.
_WARM_UP = 300
#: So long nothing has been compared any more: all decisions have been. A preemption is looked at after ten seconds.
_QUIET_SECONDS = 15.0
#: The sizes of a workload's pods: so many templates are there of each kind.
_SIZES = 10
_NODES, _PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
_MERGE_PATCH = "application/merge-patch+json"


async def shadow_end_to_end(
    nodes: int = 5000,
    pods: int = 3000,
    rate: float = 200.0,
    traffic: Literal["workloads", "mixed"] = "workloads",
    kubeconfig: str = "",
    scheduler_pid: int = 0,
    seed: int = 0,
    decisions: str = "",
    flags: tuple[str, ...] = (),
) -> AsyncIterator[Row]:
    """A shadow beside a scheduler over HTTP: its verdicts, and the CPU time and the memory of both.

    Pods of 20 kinds are created at a constant rate, or with ``--rate 0`` one at a time; one of 33 preempts, one of ten
    is deleted and a node changes for each 40. With the traffic ``workloads`` each kind has ten sizes, so that pods are
    copies of 200 templates as those of Deployments are; with ``mixed`` each pod has requests of its own, so that hardly
    two are alike. The CPU time is that spent from the first creation until all decisions have been compared.

    ``--decisions`` is a file for the lines of the shadow.

    Without ``--kubeconfig`` an embedded API server and ``kubestow run`` are started, with the flags that follow ``--``.
    With it the pods are created on that cluster, supposed to be empty, with a scheduler (``--scheduler-pid`` is
    its process) but no other controllers, and without the admission of priorities.
    """
    async with AsyncExitStack() as stack:
        if kubeconfig:
            credentials = await load_credentials(kubeconfig)
            transport = await stack.enter_async_context(Transport(credentials, clock=WallClock()))
            shadow_flags = (f"--kubeconfig={kubeconfig}",)
        else:
            url, transport = await stack.enter_async_context(embedded_server())
            shadow_flags = (f"--kubeconfig={await _kubeconfig(stack, url)}",)
        users = _Users(transport, Random(seed), traffic == "workloads", is_priority_given=bool(kubeconfig))
        await users.create_cluster(nodes)
        if not kubeconfig:
            scheduler = await kubestow_scheduler(url, "--leader-elect=false", *flags)
            stack.push_async_callback(_stop, scheduler)
            stack.callback(asyncio.create_task(drain(scheduler.stderr)).cancel)
            scheduler_pid = scheduler.pid
        folder = Path(stack.enter_context(TemporaryDirectory()))
        output = Path(decisions) if decisions else folder / "decisions.json"
        shadow = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubestow", "shadow", *shadow_flags, f"--output=json={output}"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(_stop, shadow)
        kubelets = asyncio.create_task(users.remove_terminated())
        stack.callback(kubelets.cancel)
        while not _decisions(output):  # it does not compare what was decided before its lists
            await users.create_pod()
            await asyncio.sleep(0.2)
        await users.act(_WARM_UP, rate)
        await _all_compared(output, shadow.pid)
        processes = {"the shadow": shadow.pid, **({"the scheduler": scheduler_pid} if scheduler_pid else {})}
        before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        compared, began = len(_decisions(output)), perf_counter()
        await users.act(pods, rate)
        seconds = perf_counter() - began
        await _all_compared(output, shadow.pid)
        found = [msgspec.json.decode(line) for line in _decisions(output)[compared:]]
        for name, pid in processes.items():
            spent = cpu_seconds(pid) - before[name]
            yield (
                name,
                {
                    "ms of CPU per decision": spent / len(found) * 1e3,
                    "% of a core at 200 decisions/s": spent / len(found) * 200 * 100,
                    "MB": resident_mb(pid),
                    "MB at most": peak_mb(pid),
                },
            )
        verdicts = Counter("explained by a race" if each.get("race") else each["verdict"] for each in found)
        text = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        yield f"{pods / seconds:,.0f} pods/s on {nodes:,} nodes", {"": text}


async def _kubeconfig(stack: AsyncExitStack, url: str) -> Path:
    """A kubeconfig of a server without authentication, in a file that goes with the stack."""
    path = Path(stack.enter_context(TemporaryDirectory())) / "kubeconfig"
    context = {"name": "server", "context": {"cluster": "server", "user": ""}}
    clusters = [{"name": "server", "cluster": {"server": url}}]
    path.write_bytes(msgspec.json.encode({"clusters": clusters, "contexts": [context], "current-context": "server"}))
    return path


async def _stop(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    await process.wait()


def _decisions(output: Path) -> list[bytes]:
    lines = output.read_bytes().splitlines() if output.exists() else []
    return [line for line in lines if b'"verdict"' in line]


async def _all_compared(output: Path, shadow: int) -> None:
    """Wait until a shadow compares nothing any more, and does not search for anything either."""
    state, since = (-1, 0.0), perf_counter()
    while perf_counter() - since < _QUIET_SECONDS:
        await asyncio.sleep(0.5)
        count, cpu = len(_decisions(output)), cpu_seconds(shadow)
        if count != state[0] or cpu - state[1] > 0.25:
            state, since = (count, cpu), perf_counter()


class _Users:
    """Users that create and delete pods and change nodes, and kubelets, which remove terminating pods."""

    def __init__(self, transport: Transport, random: Random, is_of_templates: bool, is_priority_given: bool) -> None:
        self._transport, self._random = transport, random
        self._is_priority_given = is_priority_given
        self._numbers = itertools.count()
        self._nodes: list[Node] = []
        self._pods: list[str] = []
        self._templates = [mixed_pod(random, number) for number in range(20 * _SIZES)] if is_of_templates else []

    async def create_cluster(self, nodes: int) -> None:
        """Create nodes with pods, volumes, and what else there is before the pods."""
        for resource, group in itertools.groupby(initial_objects(nodes), lambda obj: resource_of(type(obj))):
            path = f"{resource.prefix}/{'namespaces/default/' if resource.namespaced else ''}{resource.plural}"
            objects = iter(group)

            async def create(objects: Iterator[Any] = objects, path: str = path) -> None:
                for obj in objects:
                    await self._request("POST", path, self._document(obj))
                    if isinstance(obj, Node):
                        self._nodes.append(obj)
                    if isinstance(obj, PodDisruptionBudget) or (isinstance(obj, Pod) and obj.status.start_time):
                        status = f"{path}/{obj.metadata.name}/status"
                        await self._request("PATCH", status, {"status": msgspec.to_builtins(obj.status)})

            await asyncio.gather(*(create() for _ in range(_CONCURRENCY)))

    async def act(self, pods: int, rate: float) -> None:
        """Create so many pods, per second if given or else each when the one before has been decided about."""
        began = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(pods):
                if rate:
                    await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
                    tasks.create_task(self.create_pod())
                else:
                    await self._is_decided(await self.create_pod())
                if number % 10 == 9:
                    tasks.create_task(self._delete_pod())
                if number % 40 == 39:
                    tasks.create_task(self._change_node(number))

    async def create_pod(self) -> str:
        """Create the next pod; its name."""
        number = next(self._numbers)
        pod = self._random.choice(self._templates) if self._templates else mixed_pod(self._random, number)
        document = self._document(pod)
        name = document["metadata"]["name"] = f"{pod.metadata.name}-{number}"
        await self._request("POST", _PODS, document)
        self._pods.append(name)
        return name

    async def _is_decided(self, name: str) -> None:
        while True:
            document = await self._request("GET", f"{_PODS}/{name}")
            if document["spec"].get("nodeName") or document.get("status", {}).get("conditions"):
                return
            await asyncio.sleep(0.005)

    async def _delete_pod(self) -> None:
        name = self._pods.pop(self._random.randrange(len(self._pods)))
        await self._request("DELETE", f"{_PODS}/{name}", {"gracePeriodSeconds": 0})

    async def _change_node(self, number: int) -> None:
        """Change the labels, the capacity or the schedulability of a node, or delete it and create it again."""
        node = self._random.choice(self._nodes)
        path = f"{_NODES}/{node.metadata.name}"
        match self._random.randrange(4):
            case 0:
                await self._request("PATCH", path, {"metadata": {"labels": {"revision": str(number)}}})
            case 1:
                amounts = {"allocatable": {"cpu": str(3 + number % 3)}}
                await self._request("PATCH", f"{path}/status", {"status": amounts})
            case 2:
                await self._request("PATCH", path, {"spec": {"unschedulable": self._random.random() < 0.5}})
            case 3:
                await self._request("DELETE", path)
                await self._request("POST", _NODES, self._document(node))

    async def remove_terminated(self) -> None:
        """Remove pods at once that are to terminate, as kubelets do."""
        splitter = LineSplitter()
        path = f"{_PODS}?watch=true&timeoutSeconds=36000"
        async with self._transport.stream(path, idle_timeout=3600.0) as chunks:
            async for chunk in chunks:
                for line in splitter.feed(chunk):
                    if b"deletionTimestamp" in line and b'"DELETED"' not in line[:30]:
                        name = msgspec.json.decode(line)["object"]["metadata"]["name"]
                        await self._request("DELETE", f"{_PODS}/{name}", {"gracePeriodSeconds": 0})

    def _document(self, obj: Any) -> dict[str, Any]:
        """An object as it is created; where priority is not given, a server computes it from no class."""
        document = msgspec.to_builtins(obj)
        for name in ("resourceVersion", "uid", "creationTimestamp"):
            document["metadata"].pop(name, None)
        if isinstance(obj, Pod):
            if not self._is_priority_given:
                document["spec"].pop("priority", None)
            for container in document["spec"]["containers"]:
                for port in container.get("ports", ()):
                    port["containerPort"] = port["hostPort"]
                requests = container["resources"]["requests"]
                container["resources"]["limits"] = {name: requests[name] for name in requests if "/" in name}
        return document

    async def _request(self, method: str, path: str, document: Any = None) -> Any:
        """Send a request; an object that is not there any more, or changes, is left alone."""
        body = None if document is None else msgspec.json.encode(document)
        kind = _MERGE_PATCH if method == "PATCH" else "application/json"
        try:
            return msgspec.json.decode(await self._transport.request(method, path, body, content_type=kind))
        except APIError as error:
            if error.code in (404, 409):
                return {"spec": {"nodeName": "gone"}}
            raise
