"""Cases of requeueing: which changes of a cluster requeue an unschedulable pod (semantics 6.10, 11.5).

A case is a cluster, a pod that is unschedulable in it, and a change. Whether the change requeues the pod is known as
soon as the scheduler has observed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubestow.api.core import Pod
from kubestow.scheduling.queued_pod import Place
from tests.integration.fixture import ClusterFixture, Object, SchedulerProbe


@dataclass(frozen=True)
class Created:
    """Creates an object. A node keeps its not-ready taint unless it is ``ready``, because losing it is another
    event."""

    obj: Any
    ready: bool = False

    async def apply(self, cluster: ClusterFixture, probe: SchedulerProbe) -> None:
        await probe.observed(await cluster.create_one(self.obj, ready=self.ready))


@dataclass(frozen=True)
class Changed:
    """Patches an object."""

    obj: Any
    changes: Object
    subresource: str = ""

    async def apply(self, cluster: ClusterFixture, probe: SchedulerProbe) -> None:
        await probe.observed(await cluster.patch(self.obj, self.changes, subresource=self.subresource))


@dataclass(frozen=True)
class Deleted:
    """Deletes an object."""

    obj: Any

    async def apply(self, cluster: ClusterFixture, probe: SchedulerProbe) -> None:
        before = await cluster.read(self.obj)
        await cluster.delete(self.obj)
        await probe.observed_deletion(before)


@dataclass(frozen=True)
class Case:
    """In a cluster with the objects ``existing``, ``pod`` is unschedulable; ``requeues`` is the effect of ``change``.

    ``plugins`` restricts the enabled plugins where others would reject the pod first; all are enabled by default.
    """

    existing: Sequence[Any]
    pod: Pod | Object
    change: Created | Changed | Deleted
    requeues: bool
    plugins: Sequence[str] = ()
    gates: Mapping[str, bool] = field(default_factory=dict)

    async def run(self, cluster: ClusterFixture) -> None:
        """Run the case."""
        await cluster.create(*self.existing)
        async with cluster.scheduler(profiles=[{"plugins": self._plugins()}], gates=self.gates) as probe:
            name = (await cluster.create_one(self.pod))["metadata"]["name"]
            await probe.until(lambda: probe.place(name) in (Place.UNSCHEDULABLE, Place.GATED))
            if probe.place(name) is Place.UNSCHEDULABLE:
                await cluster.pending_messages(name)
                await probe.observed(await cluster.read(self.pod))
            before = probe.queued(name)
            assert before is not None
            attempts, place = before.attempts, before.place
            await self.change.apply(cluster, probe)
            after = probe.queued(name)
            was_requeued = after is None or (after.attempts, after.place) != (attempts, place)
            assert was_requeued is self.requeues

    def _plugins(self) -> Object:
        # Preemption would requeue some of the pods by itself.
        if not self.plugins:
            return {"postFilter": {"disabled": [{"name": "*"}]}}
        names = ("PrioritySort", *self.plugins, "DefaultBinder")
        return {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}


def labelled(**marks: str) -> Object:
    return {"metadata": {"labels": marks}}


def allocatable(**given: str) -> Object:
    amounts = {"cpu": "1", "memory": "16Gi", "pods": "110", **given}
    return {"status": {"allocatable": amounts, "capacity": amounts}}
