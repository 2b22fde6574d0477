"""Quota trees, held to a model that computes everything anew from the usage of ClusterQueues."""

from __future__ import annotations

from random import Random

import pytest

from contrib_tests.kueue.table_cases import objects
from kubestow_contrib.kueue.admission_state import AdmissionState
from kubestow_contrib.kueue.objects import ClusterQueue, Cohort
from kubestow_contrib.kueue.quota_tree import CohortNode, FlavorResource, QuotaNode

FR = FlavorResource("h100", "gpu")


def _group(random: Random, *, limits: bool) -> list[object]:
    quota: dict[str, object] = {"name": "gpu", "nominalQuota": random.randrange(8)}
    if limits and random.random() < 0.4:
        quota["borrowingLimit"] = random.randrange(6)
    if limits and random.random() < 0.4:
        quota["lendingLimit"] = random.randrange(6)
    return [{"coveredResources": ["gpu"], "flavors": [{"name": "h100", "resources": [quota]}]}]


def _state(random: Random) -> AdmissionState:
    names = [f"cohort-{number}" for number in range(random.randrange(1, 5))]
    cohorts = [
        {
            "metadata": {"name": name},
            "spec": {
                "parentName": random.choice(names[:number]) if number else "",
                "resourceGroups": _group(random, limits=number > 0) if random.random() < 0.6 else [],
            },
        }
        for number, name in enumerate(names)
    ]
    queues = [
        {
            "metadata": {"name": f"queue-{number}"},
            "spec": {"cohortName": random.choice(names), "resourceGroups": _group(random, limits=True)},
        }
        for number in range(random.randrange(1, 6))
    ]
    return AdmissionState(objects(ClusterQueue, queues), objects(Cohort, cohorts))


def _usage_by_model(node: QuotaNode, used: dict[str, int]) -> int:
    """The usage of a node: its own, or what its children use beyond what they keep for themselves."""
    if not isinstance(node, CohortNode):
        return used[node.name]
    return sum(max(0, _usage_by_model(one, used) - one.local_quota(FR)) for one in (*node.cohorts, *node.queues))


@pytest.mark.parametrize("seed", range(60))
def test_usage_is_that_of_a_model(seed: int) -> None:
    """However usage comes and goes, each node uses what its children use beyond their local quotas."""
    random = Random(seed)
    state = _state(random)
    used = dict.fromkeys(state.cluster_queues, 0)
    for _ in range(30):
        name = random.choice(list(used))
        queue = state.cluster_queues[name]
        amount = random.randrange(1, 6)
        if used[name] >= amount and random.random() < 0.5:
            queue.remove_usage(FR, amount)
            used[name] -= amount
        else:
            queue.add_usage(FR, amount)
            used[name] += amount
        for node in (*state.cohorts.values(), *state.cluster_queues.values()):
            assert node.usage.get(FR, 0) == _usage_by_model(node, used)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_available_can_be_used_without_exceeding_any_quota(seed: int) -> None:
    """Using all that is available exceeds neither the quota of a root nor a borrowing limit; one more does."""
    random = Random(seed)
    state = _state(random)

    def is_within(queue: QuotaNode) -> bool:
        for node in (queue, *queue.ancestors()):
            limit = node.quota(FR).borrowing_limit
            bound = node.subtree_quota.get(FR, 0)
            if node.parent is not None and limit is None:
                continue
            if node.usage.get(FR, 0) > bound + (limit or 0 if node.parent is not None else 0):
                return False
        return True

    for _ in range(12):
        queue = random.choice(list(state.cluster_queues.values()))
        available = queue.usable(FR)
        assert available <= queue.potential_available(FR)
        with queue.with_usage({FR: available}):
            assert is_within(queue)
        with queue.with_usage({FR: available + 1}):
            assert not is_within(queue)
        queue.add_usage(FR, random.randrange(available + 1))


def test_cohorts_in_a_circle_stop_their_queues() -> None:
    cohorts = [
        {"metadata": {"name": "a"}, "spec": {"parentName": "b"}},
        {"metadata": {"name": "b"}, "spec": {"parentName": "a"}},
    ]
    queues = [{"metadata": {"name": "queue"}, "spec": {"cohortName": "a"}}]
    state = AdmissionState(objects(ClusterQueue, queues), objects(Cohort, cohorts))
    assert state.cluster_queues["queue"].problem == "cohort a is its own ancestor"
