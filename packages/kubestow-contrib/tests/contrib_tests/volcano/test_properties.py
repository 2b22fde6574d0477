"""Properties of accounts and of shares in a running scheduler."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contrib_tests.volcano.objects import member, pod_group, profile, queue, single
from kubestow.api.core import Pod
from kubestow.cluster.cache import Cluster
from kubestow.testing import SchedulerHarness, in_virtual_time, node
from kubestow_contrib.volcano.accounts import Accounts, Shares, requests_of
from kubestow_contrib.volcano.pod_groups import VOLCANO, PodGroup
from kubestow_contrib.volcano.queues import Queue
from kubestow_contrib.volcano.volcano import Volcano

SINGLE = {"gang": {"enablePreemptable": False, "enableReclaimable": False}}


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[str, int]]:
    """The queues in which pods arrive, each with a number of them."""
    return draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=1, max_size=5))


@settings(max_examples=25, deadline=None)
@given(
    weights=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    capability=st.none() | st.integers(1, 6),
    nodes=st.integers(1, 3),
    waves=st.lists(arrivals(), min_size=1, max_size=2),
    leaving=st.integers(0, 4),
)
def test_no_queue_stays_above_its_share_while_another_starves_below_it(
    weights: list[int], capability: int | None, nodes: int, waves: list[list[tuple[str, int]]], leaving: int
) -> None:
    """Of pods of one size. Queues get their share whatever was there before, and nothing is left idle."""

    async def scenario(harness: SchedulerHarness) -> None:
        number = 0
        for wave in waves:
            for name, count in wave:
                for _ in range(count):
                    harness.cluster.put(single(f"{name}-{number}", name, cpu="1"))
                    number += 1
                await harness.settle()
            for each in sorted(harness.cluster.pods(), key=lambda p: p.metadata.uid)[:leaving]:
                harness.cluster.remove(each)
            await harness.advance(400)
            check(harness)

    def check(harness: SchedulerHarness) -> None:
        volcano = harness.scheduler.profiles["default-scheduler"].runtime.plugins.queue_sort
        assert isinstance(volcano, Volcano)
        accounts = volcano.accounts
        accounts.refresh()
        used, waiting = Counter[str](), set()
        for each in harness.cluster.pods():
            name = each.metadata.name[0]
            used[name] += 1000 * bool(each.spec.node_name)
            if not each.spec.node_name:
                waiting.add(name)
        deserved = {q.name: q.deserved["cpu"] for q in accounts.queues.accounts.values()}
        # All of one size, so whatever a queue lacks can be taken from those above their shares, or is idle.
        starving = [name for name in waiting if used[name] + 1000 <= deserved[name]]
        assert not starving, (used, deserved)

    objects: list[Any] = [node(f"n-{number}", cpu="3") for number in range(nodes)]
    objects += [queue(name, weight) for name, weight in zip("ab", weights, strict=False)]
    objects.append(queue("c", weights[2], capability={"cpu": str(capability)} if capability else {}))
    in_virtual_time(
        scenario,
        *objects,
        plugins=[Volcano],
        pod_group_apis=[VOLCANO],
        profiles=profile("allocate, reclaim", SINGLE),
    )


class Changes:
    """A cluster and its pods, changed at random, and accounts that follow."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.add_node(node("n", cpu="1000"))
        self.accounts = Accounts(self.cluster, Shares.FAIR)
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, str] = {}

    def put(self, pod: Pod) -> None:
        info = self.cluster.shapes.info(pod)
        self.pods[pod.metadata.name] = pod
        self.cluster.observe_pod(info)
        if pod.spec.node_name:
            self.cluster.put_pod(info)

    def remove(self, name: str) -> None:
        pod = self.pods.pop(name, None)
        if pod is not None:
            self.cluster.end_pod(pod.metadata.uid)
            self.cluster.remove_pod(pod.metadata.uid)

    def put_group(self, name: str, queue_name: str, least: str | None) -> None:
        minimum = {} if least is None else {"minResources": {"cpu": least}}
        self.groups[name] = queue_name
        self.cluster.catalog(PodGroup).put(pod_group(name, queue_name, **minimum))

    def expected(self) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
        """What the pods of each queue request and use, counted anew."""
        requested: dict[str, Counter[str]] = {}
        allocated: dict[str, Counter[str]] = {}
        for pod in self.pods.values():
            info = self.cluster.shapes.info(pod)
            annotations = pod.metadata.annotations
            name = annotations.get("scheduling.k8s.io/group-name")
            of = self.groups.get(name, "") if name else annotations["scheduling.volcano.sh/queue-name"]
            if not of or info.terminating:
                continue
            job = self.accounts.job(info)
            if job is not None and job.is_admitted:
                requested.setdefault(of, Counter()).update(requests_of(info))
            if pod.spec.node_name:
                allocated.setdefault(of, Counter()).update(requests_of(info))
        return requested, allocated


steps = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 5), st.integers(1, 3), st.booleans(), st.booleans()),
    st.tuples(st.just("remove"), st.integers(0, 5)),
    st.tuples(st.just("group"), st.sampled_from("gh"), st.sampled_from("ab"), st.sampled_from([None, "1", "9"])),
    st.tuples(st.just("ungroup"), st.sampled_from("gh")),
    st.tuples(st.just("simulate"), st.integers(0, 5)),
    st.tuples(st.just("admit"), st.sampled_from("gh")),
)


@settings(deadline=None)
@given(st.lists(steps, max_size=30))
def test_accounts_follow_every_change(taken: list[tuple[Any, ...]]) -> None:
    changes = Changes()
    cluster, accounts = changes.cluster, changes.accounts
    for name in "ab":
        cluster.catalog(Queue).put(queue(name))
    for step in taken:
        match step:
            case ("pod", int(number), cpu, placed, deleting):
                name = f"p{number}"
                old = changes.pods.get(name)
                fields = {"cpu": str(cpu), "deleting": deleting, "node": "n" if placed else ""}
                if old is not None and old.spec.node_name:
                    fields["node"] = "n"
                owner = single(name, "b", **fields) if number % 3 == 0 else member(name, "gh"[number % 2], **fields)
                changes.put(owner)
            case ("remove", number):
                changes.remove(f"p{number}")
            case ("group", name, of, least):
                changes.put_group(name, of, least)
            case ("ungroup", name):
                changes.groups.pop(name, None)
                cluster.catalog(PodGroup).remove("default", name)
            case ("admit", name):
                job = next((job for key, job in accounts.jobs.items() if key.name == name), None)
                if job is not None and not job.is_admitted:
                    accounts.queues.admit(job)
            case ("simulate", number):
                pod = changes.pods.get(f"p{number}")
                if pod is not None and cluster.placed_pod(pod.metadata.uid) is not None:
                    with cluster.simulate() as simulation:
                        simulation.remove_pod(pod.metadata.uid)
    accounts.refresh()
    requested, allocated = changes.expected()
    assert {q.name: q.requested for q in accounts.queues.accounts.values() if q.requested} == requested
    assert {q.name: q.allocated for q in accounts.queues.accounts.values() if q.allocated} == allocated
    admitted = [job for job in accounts.jobs.values() if job.is_admitted and job.min_resources and job.queue]
    unused, minimum = Counter[str](), Counter[str]()
    for job in admitted:
        unused.update(job.unused_minimum)
        minimum.update(job.min_resources or {})
    assert accounts.queues.unused_minimum == unused
    assert sum((q.admitted_minimum for q in accounts.queues.accounts.values()), Counter[str]()) == minimum
    for name in list(changes.pods):
        changes.remove(name)
    for name in changes.groups:
        cluster.catalog(PodGroup).remove("default", name)
    assert not accounts.jobs
    assert not accounts.queues.accounts
    assert not accounts.queues.unused_minimum
