"""What brings a refused pod back to the queue: the shape of such a case, and how one is played (semantics 6.10, 11.5).

A case is a cluster, a pod that is refused in it, and something that happens then. Whether it was worth another try is
known as soon as the scheduler has seen it happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubestow.api.core import Pod
from kubestow.scheduling.queued_pod import Place
from tests.integration.fixture import Object, Stage, Troupe

__all__ = ["Case", "Changed", "Created", "Deleted", "allocatable", "labelled"]


@dataclass(frozen=True)
class Created:
    """An object comes. A node has its taint of new nodes still, unless it is ``ready``: losing that would be another
    event."""

    obj: Any
    ready: bool = False

    async def happen(self, stage: Stage, troupe: Troupe) -> None:
        await troupe.has_seen(await stage.create_one(self.obj, ready=self.ready))


@dataclass(frozen=True)
class Changed:
    obj: Any
    changes: Object
    subresource: str = ""

    async def happen(self, stage: Stage, troupe: Troupe) -> None:
        await troupe.has_seen(await stage.change(self.obj, self.changes, subresource=self.subresource))


@dataclass(frozen=True)
class Deleted:
    obj: Any

    async def happen(self, stage: Stage, troupe: Troupe) -> None:
        before = await stage.read(self.obj)
        await stage.delete(self.obj)
        await troupe.has_lost(before)


@dataclass(frozen=True)
class Case:
    """``there`` is the cluster in which ``refused`` finds no node.

    ``only`` names the plugins that have a say, where others would refuse the pod first; it is all of them by default.
    """

    there: Sequence[Any]
    refused: Pod | Object
    event: Created | Changed | Deleted
    helps: bool
    only: Sequence[str] = ()
    gates: Mapping[str, bool] = field(default_factory=dict)

    async def happens(self, stage: Stage) -> None:
        """Play it."""
        await stage.create(*self.there)
        async with stage.scheduler(profiles=[{"plugins": self._plugins()}], gates=self.gates) as troupe:
            name = (await stage.create_one(self.refused))["metadata"]["name"]
            await troupe.until(lambda: troupe.place(name) in (Place.UNSCHEDULABLE, Place.GATED))
            if troupe.place(name) is Place.UNSCHEDULABLE:
                await stage.refused(name)
                await troupe.has_seen(await stage.read(self.refused))
            before = troupe.queued(name)
            assert before is not None
            attempts, place = before.attempts, before.place
            await self.event.happen(stage, troupe)
            after = troupe.queued(name)
            came_back = after is None or (after.attempts, after.place) != (attempts, place)
            assert came_back is self.helps

    def _plugins(self) -> Object:
        # Preemption would make room for some, and bring them back in its own way.
        if not self.only:
            return {"postFilter": {"disabled": [{"name": "*"}]}}
        names = ("PrioritySort", *self.only, "DefaultBinder")
        return {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}


def labelled(**marks: str) -> Object:
    return {"metadata": {"labels": marks}}


def allocatable(**amounts: str) -> Object:
    room = {"cpu": "1", "memory": "16Gi", "pods": "110", **amounts}
    return {"status": {"allocatable": room, "capacity": room}}
