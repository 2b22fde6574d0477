"""Any interleaving of writes and watches: every watcher receives exactly the history that its selector matches.

The oracle keeps every state, and derives the expected events from consecutive states. Watches are read in parts,
cancelled and resumed at random times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from devcluster_tests.client import Client
from kubestow.testing import virtual_time
from kubestow_devcluster.cluster import DevCluster

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
    """A watch by one client, and the events it has received as (type, key, resourceVersion)."""

    client: Client
    options: Open
    resource_version: int
    received: list[tuple[str, tuple[str, str], int]] = field(default_factory=list)
    events: AsyncIterator[dict[str, Any]] | None = None

    def open(self) -> AsyncIterator[dict[str, Any]]:
        namespace, selector, _ = self.options
        scope = f"/api/v1/namespaces/{namespace}/configmaps" if namespace else "/api/v1/configmaps"
        last = self.received[-1][2] if self.received else self.resource_version
        query = f"watch=1&resourceVersion={last}&labelSelector={selector}&timeoutSeconds=300"
        return self.client.watch(f"{scope}?{query}")

    async def read(self, count: int | None) -> None:
        """Read ``count`` events, or all until the watch ends."""
        if self.events is None:
            self.events = self.open()
        async for event in self.events:
            metadata = event["object"]["metadata"]
            key = metadata["namespace"], metadata["name"]
            self.received.append((event["type"], key, int(metadata["resourceVersion"])))
            if count is not None and (count := count - 1) == 0:
                return

    def matches(self, key: tuple[str, str], label: Label) -> bool:
        by_selector = {"": True, "v=1": label == "1", "v!=1": label != "1", "v": label is not None}
        return self.options.namespace in ("", key[0]) and by_selector[self.options.selector]

    def expected(self, states: dict[int, State]) -> Iterator[tuple[str, tuple[str, str], int]]:
        versions = sorted(states)
        for before, after in pairwise(versions):
            if after <= self.resource_version:
                continue
            old, new = states[before], states[after]
            for key in {key for key in old.keys() | new.keys() if old.get(key, "-") != new.get(key, "-")}:
                matched, matches = [key in state and self.matches(key, state[key]) for state in (old, new)]
                if matched or matches:
                    yield "MODIFIED" if matched and matches else "ADDED" if matches else "DELETED", key, after


async def play(steps: list[Any]) -> None:
    server = DevCluster(kubelets=False)
    client, watchers = Client(server), list[Watcher]()
    states: dict[int, State] = {server.store.resource_version: {}}
    for step in steps:
        now = states[max(states)]
        match step:
            case Put() | Delete():
                await write(client, step, now)
                states[server.store.resource_version] = written(now, step)
            case Open(back=back):
                watchers.append(Watcher(client, step, max(server.store.resource_version - back, min(states))))
            case Read(watcher=number, events=count, resume=resume) if watchers:
                watcher = watchers[number % len(watchers)]
                left = len(list(watcher.expected(states))) - len(watcher.received)
                watcher.events = None if resume else watcher.events
                if left:
                    await watcher.read(min(count, left))
    await asyncio.gather(*(watcher.read(None) for watcher in watchers))
    for watcher in watchers:
        assert watcher.received == list(watcher.expected(states))


async def write(client: Client, step: Put | Delete, now: State) -> None:
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


def written(now: State, step: Put | Delete) -> State:
    others = {key: label for key, label in now.items() if key != (step.namespace, step.name)}
    return others if isinstance(step, Delete) else {**others, (step.namespace, step.name): step.label}


@settings(max_examples=50)
@given(steps=st.lists(STEPS, max_size=25))
def test_every_watcher_receives_exactly_the_matching_history(steps: list[Any]) -> None:
    virtual_time.run(play(steps))
