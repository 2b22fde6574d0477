"""Any interleaving of writes and watches over the API: every watcher is told exactly the history in its view.

The oracle knows nothing of cursors: it keeps every state there has been, and says from two states in a row what a
watcher with a given view should hear. Watches are read in pieces, broken off and resumed at random moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.devcluster.cluster import DevCluster
from kubestow.testing import virtual_time
from tests.devcluster.client import Client

Label = str | None
State = dict[tuple[str, str], Label]


class Put(NamedTuple):
    namespace: str
    name: str
    label: Label


class Delete(NamedTuple):
    namespace: str
    name: str


class Open(NamedTuple):
    namespace: str
    selector: str
    back: int


class Read(NamedTuple):
    watcher: int
    events: int
    resume: bool


NAMESPACES = st.sampled_from(["default", "kube-public"])
NAMES = st.sampled_from(["a", "b"])
LABELS = st.sampled_from(["1", "2", None])
STEPS = st.one_of(
    st.builds(Put, NAMESPACES, NAMES, LABELS),
    st.builds(Put, NAMESPACES, NAMES, LABELS),
    st.builds(Delete, NAMESPACES, NAMES),
    st.builds(Open, st.sampled_from(["", "default"]), st.sampled_from(["", "v=1", "v!=1", "v"]), st.integers(0, 9)),
    st.builds(Read, st.integers(0, 5), st.integers(1, 4), st.booleans()),
)


@dataclass
class Watcher:
    """What one client watches and has been told so far, as (type, place, version)."""

    client: Client
    view: Open
    version: int
    told: list[tuple[str, tuple[str, str], int]] = field(default_factory=list)
    events: AsyncIterator[dict[str, Any]] | None = None

    def open(self) -> AsyncIterator[dict[str, Any]]:
        namespace, selector, _ = self.view
        scope = f"/api/v1/namespaces/{namespace}/configmaps" if namespace else "/api/v1/configmaps"
        last = self.told[-1][2] if self.told else self.version
        query = f"watch=1&resourceVersion={last}&labelSelector={selector}&timeoutSeconds=300"
        return self.client.watch(f"{scope}?{query}")

    async def read(self, count: int | None) -> None:
        """So many events, or all until the watch ends."""
        if self.events is None:
            self.events = self.open()
        async for event in self.events:
            identity = event["object"]["metadata"]
            place = identity["namespace"], identity["name"]
            self.told.append((event["type"], place, int(identity["resourceVersion"])))
            if count is not None and (count := count - 1) == 0:
                return

    def sees(self, place: tuple[str, str], label: Label) -> bool:
        wanted = {"": True, "v=1": label == "1", "v!=1": label != "1", "v": label is not None}
        return self.view.namespace in ("", place[0]) and wanted[self.view.selector]

    def expected(self, states: dict[int, State]) -> Iterator[tuple[str, tuple[str, str], int]]:
        versions = sorted(states)
        for before, after in pairwise(versions):
            if after <= self.version:
                continue
            old, new = states[before], states[after]
            for place in {place for place in old.keys() | new.keys() if old.get(place, "-") != new.get(place, "-")}:
                was, now = [place in state and self.sees(place, state[place]) for state in (old, new)]
                if was or now:
                    yield "MODIFIED" if was and now else "ADDED" if now else "DELETED", place, after


async def play(steps: list[Any]) -> None:
    server = DevCluster(kubelets=False)
    client, watchers = Client(server), list[Watcher]()
    states: dict[int, State] = {server.store.resource_version: {}}
    for step in steps:
        now = states[max(states)]
        match step:
            case Put() | Delete():
                await change(client, step, now)
                states[server.store.resource_version] = changed(now, step)
            case Open(back=back):
                watchers.append(Watcher(client, step, max(server.store.resource_version - back, min(states))))
            case Read(watcher=number, events=count, resume=resume) if watchers:
                watcher = watchers[number % len(watchers)]
                left = len(list(watcher.expected(states))) - len(watcher.told)
                watcher.events = None if resume else watcher.events
                if left:
                    await watcher.read(min(count, left))
    await asyncio.gather(*(watcher.read(None) for watcher in watchers))
    for watcher in watchers:
        assert watcher.told == list(watcher.expected(states))


async def change(client: Client, step: Put | Delete, now: State) -> None:
    path = f"/api/v1/namespaces/{step.namespace}/configmaps"
    if isinstance(step, Delete):
        await client.delete(f"{path}/{step.name}")
        return
    labels = {} if step.label is None else {"v": step.label}
    body = {"metadata": {"name": step.name, "labels": labels}}
    if (step.namespace, step.name) in now:
        await client.put(f"{path}/{step.name}", body)
    else:
        await client.post(path, body)


def changed(now: State, step: Put | Delete) -> State:
    kept = {place: label for place, label in now.items() if place != (step.namespace, step.name)}
    return kept if isinstance(step, Delete) else {**kept, (step.namespace, step.name): step.label}


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_every_watcher_is_told_exactly_the_history_in_its_view(steps: list[Any]) -> None:
    virtual_time.run(play(steps))
