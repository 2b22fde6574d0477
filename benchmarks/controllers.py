"""The controllers and kubelets of a development cluster: pods per CPU second, by the size of a Deployment or Job.

    python benchmarks/controllers.py [--nodes 5000] [--pods 1000,20000] [--budget | --job]

Each size runs in a process of its own: a Deployment is created, its pods are bound to the nodes in turn, and the clock
stops when all are available. API server, controllers and kubelets share the process; there is no scheduler and no
network. ``--budget`` adds a PodDisruptionBudget of the pods. ``--job`` creates an indexed Job instead, half of whose
pods run in parallel for a second each, and stops when it is complete. CPU time is comparable between machines under
different load; that of creating the nodes is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import time
from typing import Any

from kubestow import gc_tuning
from kubestow_devcluster.apiserver.kinds.conditions import update_pod_condition
from kubestow_devcluster.cluster import ControllerManagerOptions, DevCluster
from kubestow_devcluster.component_base.stored_objects import node_name_of
from kubestow_devcluster.component_base.watch_loop import WatchLoop


class _Binder(WatchLoop):
    """Binds every pod to the next node."""

    name = "binder"

    def __init__(self, server: DevCluster) -> None:
        super().__init__(server.store)
        self._registry = server.registry
        self._nodes = itertools.cycle([node.name for node in server.store.collection("nodes").snapshot()])

    def relist(self) -> None:
        self.list_and_watch("pods")

    @property
    def next_deadline(self) -> float | None:
        return None

    def handle_event(self, resource: str, event: Any) -> None:
        if event.type == "DELETED" or node_name_of(event.object):
            return
        pods = self._registry.scheme["pods"]
        pod = pods.decode(event.object)
        pod["spec"]["nodeName"] = next(self._nodes)
        update_pod_condition(pod["status"], {"type": "PodScheduled", "status": "True"}, self._registry.now())
        self._registry.commit(pods, pod)

    def process_pending(self) -> None:
        pass


async def _run(nodes: int, pods: int, *, with_budget: bool, as_job: bool) -> float:
    """CPU seconds from the creation of the Deployment or Job until its pods are available or have succeeded."""
    async with DevCluster(nodes=nodes, controller_manager=ControllerManagerOptions()) as server:
        registry, labels = server.registry, {"app": "web"}
        binder = asyncio.create_task(_Binder(server).run())
        await asyncio.sleep(2)  # until the nodes are ready
        if with_budget:
            budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": "50%", "selector": {"matchLabels": labels}}}
            _create(registry, "poddisruptionbudgets.policy", budget)
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
        template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        if as_job:
            resource, count = "jobs.batch", "succeeded"
            template["spec"]["restartPolicy"] = "Never"
            parallel = {"completions": pods, "parallelism": max(1, pods // 2), "completionMode": "Indexed"}
            spec = {**parallel, "template": template}
        else:
            resource, count = "deployments.apps", "availableReplicas"
            spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
        began = time.process_time()
        _create(registry, resource, {"metadata": {"name": "web"}, "spec": spec})
        kind, collection = registry.scheme[resource], server.store.collection(resource)
        while True:
            await asyncio.sleep(0.1)
            stored = collection.get("default/web")
            if stored is not None and kind.decode(stored)["status"].get(count) == pods:
                binder.cancel()
                return time.process_time() - began


def _create(registry: Any, resource: str, new: dict[str, Any]) -> None:
    kind = registry.scheme[resource]
    registry.create(kind, "default", kind.struct.read(new, []))


def _measure(nodes: int, pods: int, with_budget: bool, as_job: bool) -> None:
    gc_tuning.raise_thresholds()
    seconds = asyncio.run(_run(nodes, pods, with_budget=with_budget, as_job=as_job))
    print(f"{nodes} nodes, {pods} pods: {pods / seconds:.0f} pods per CPU second ({seconds:.1f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", default="1000,20000")
    workload = parser.add_mutually_exclusive_group()
    workload.add_argument("--budget", action="store_true")
    workload.add_argument("--job", action="store_true")
    options = parser.parse_args()
    for pods in map(int, options.pods.split(",")):
        process = multiprocessing.get_context("spawn").Process(
            target=_measure, args=(options.nodes, pods, options.budget, options.job)
        )
        process.start()
        process.join()


if __name__ == "__main__":
    main()
