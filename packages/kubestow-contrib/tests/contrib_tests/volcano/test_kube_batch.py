"""kube-batch: its API, the name of its scheduler, and its rule of which pods may be evicted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from contrib_tests.volcano import objects
from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.plugins.configuration_file import read_configuration
from kubestow.plugins.registry import find_plugins
from kubestow.testing import SchedulerHarness, in_virtual_time, node, pod
from kubestow_contrib.volcano.conversion import to_scheduler_configuration
from kubestow_contrib.volcano.kube_batch import KUBE_BATCH, PodGroup, Queue
from kubestow_contrib.volcano.pod_groups import VOLCANO
from kubestow_contrib.volcano.volcano import Volcano

#: As its examples have it, with the name of the scheduler.
CONFIGURATION = """
schedulerName: kube-batch
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


def group(name: str, minimum: int, queue: str = "q") -> PodGroup:
    metadata = {"name": name, "namespace": "default", "uid": f"group-{name}"}
    return convert(PodGroup, {"metadata": metadata, "spec": {"minMember": minimum, "queue": queue}})


def queue(name: str, weight: int = 1) -> Queue:
    return convert(Queue, {"metadata": {"name": name, "uid": f"queue-{name}"}, "spec": {"weight": weight}})


def member(name: str, of: str, **fields: Any) -> Pod:
    return pod(name, metadata={"annotations": {objects.GROUP: of}}, scheduler="kube-batch", **fields)


def run(scenario: Any, *given: Any, text: str = CONFIGURATION) -> None:
    in_virtual_time(
        scenario,
        *given,
        plugins=[Volcano, *(find_plugins()[name] for name in ("VolcanoBinpack",))],
        pod_group_apis=[KUBE_BATCH, VOLCANO],
        profiles=to_scheduler_configuration(yaml.safe_load(text))["profiles"],
    )


def running(harness: SchedulerHarness) -> Counter[str]:
    return Counter(p.metadata.name.split("-")[0] for p in harness.cluster.pods() if p.spec.node_name)


def test_the_configuration_names_the_scheduler(tmp_path: Path) -> None:
    (tmp_path / "kube-batch.conf").write_text(CONFIGURATION)
    found = read_configuration(tmp_path / "kube-batch.conf", config.FeatureGates(), find_plugins())
    assert [profile.scheduler_name for profile in found.profiles] == ["kube-batch"]


def test_groups_and_queues_of_its_api_group_count() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(2):
            harness.cluster.put(member(f"gang-{number}", "gang", cpu="1"))
        harness.cluster.put(member("none-0", "none", cpu="1"))
        await harness.advance(10)
        assert running(harness) == {}
        harness.cluster.put(member("gang-2", "gang", cpu="1"))
        await harness.advance(10)
        assert running(harness) == {"gang": 3}
        found = harness.scheduler.cluster.catalog(PodGroup).get("default", "gang")
        assert found is not None and found.status.phase == "Running"

    run(scenario, node("n", cpu="8"), queue("q"), group("gang", 3), group("none", 1, "missing"))


def evicted(given: list[Any], newcomers: list[Pod], text: str = CONFIGURATION) -> set[str]:
    """The pods that are evicted when further pods come."""
    gone: set[str] = set()

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(5)
        before = {p.metadata.name for p in harness.cluster.pods()}
        for each in newcomers:
            harness.cluster.put(each)
        await harness.advance(60)
        gone.update(before - {p.metadata.name for p in harness.cluster.pods()})

    run(scenario, *given, text=text)
    return gone


def placed(count: int, of: str, **fields: Any) -> list[Pod]:
    return [member(f"{of}-{number}", of, cpu="1", node="n", **fields) for number in range(count)]


def high(count: int) -> list[Pod]:
    return [member(f"high-{number}", "high", cpu="1", priority=100) for number in range(count)]


@pytest.mark.parametrize(("minimum", "count"), [(1, 4), (2, 2), (3, 1), (4, 0)])
def test_an_elastic_job_is_evicted_down_to_its_minimum_and_one_that_needs_one_pod_as_a_whole(
    minimum: int, count: int
) -> None:
    only_first = CONFIGURATION.replace("  - name: drf\n", "")
    given = [node("n", cpu="4"), queue("q"), group("low", minimum), group("high", 1), *placed(4, "low")]
    assert len(evicted(given, high(4), only_first)) == count


def test_a_later_tier_evicts_below_the_minimum_where_that_is_fair() -> None:
    given = [node("n", cpu="4"), queue("q"), group("large", 4), group("small", 1), *placed(4, "large")]
    newcomers = [member(f"small-{number}", "small", cpu="1") for number in range(4)]
    assert len(evicted(given, newcomers)) == 2
    assert evicted(given, newcomers, CONFIGURATION + "\nevictionRule: volcano") == set()


def test_a_queue_keeps_what_it_deserves() -> None:
    given = [node("n", cpu="4"), queue("a"), queue("b"), group("a", 1, "a"), group("b", 1, "b"), *placed(4, "a")]
    newcomers = [member(f"b-{number}", "b", cpu="1") for number in range(4)]
    assert len(evicted(given, newcomers)) == 2


def test_tiers_that_evict_each_other_in_a_circle_do_so_once_a_session() -> None:
    """The job of high priority evicts the other, which then has the lower share and evicts it."""
    pods = [*placed(2, "low"), *high(2)]
    evictions = 0

    async def scenario(harness: SchedulerHarness) -> None:
        nonlocal evictions
        known = {p.metadata.name: p for p in pods}
        for _ in range(600):
            await harness.advance(0.1)
            present = {p.metadata.name for p in harness.cluster.pods()}
            for name in sorted(known.keys() - present):
                # A controller creates an evicted pod anew at once.
                evictions += 1
                before, anew = known.pop(name), f"{name.split('-')[0]}-{10 + evictions}"
                metadata = structs.replace(before.metadata, name=anew, uid=f"uid-{anew}")
                known[anew] = structs.replace(
                    before, metadata=metadata, spec=structs.replace(before.spec, node_name="")
                )
                harness.cluster.put(known[anew])

    run(scenario, node("n", cpu="2"), queue("q"), group("low", 1), group("high", 1), *pods)
    assert 10 < evictions <= 2 * 60
