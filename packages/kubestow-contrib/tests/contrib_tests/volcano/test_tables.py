"""The tables of Volcano's tests: every case agrees, or its difference has a reason."""

from __future__ import annotations

import pytest

from contrib_tests.recorded_tables import Case
from contrib_tests.volcano.objects import member, pod_group, profile, queue
from contrib_tests.volcano.table_cases import cases_of, group_of, parameters, session_of
from kubestow.api.formats.quantity import Quantity
from kubestow.api.meta import convert
from kubestow.testing import PluginHarness, SchedulerHarness, in_virtual_time, node
from kubestow_contrib.shares import amounts_of
from kubestow_contrib.volcano.accounts import Accounts, QueueAccount, Shares
from kubestow_contrib.volcano.configuration import read_configuration
from kubestow_contrib.volcano.jobs import JobOrder
from kubestow_contrib.volcano.pod_groups import VOLCANO, PodGroup
from kubestow_contrib.volcano.queues import Queue
from kubestow_contrib.volcano.volcano import Volcano

_OWN_PLUGIN = "a plugin that was written for the test takes part"
_HIERARCHICAL_DRF = "hierarchical drf is not there, and its configuration a mistake"
_DEVICE_QUOTAS = "quotas of devices in ResourceClaims are not there"


def _different(table: str) -> dict[int, str]:
    """Why cases of a table differ, by number."""
    found = {}
    for case in cases_of(table):
        options = [plugin for tier in case["tiers"] for plugin in tier]
        if {option["name"] for option in options} & {"test-rejecter", "device-fit-after-eviction"}:
            found[case["number"]] = _OWN_PLUGIN
        elif case["test"] == "TestHDRF":
            found[case["number"]] = _HIERARCHICAL_DRF
        elif any(
            "deviceclass/" in name for each in case.get("queues", ()) for name in each["spec"].get("capability", ())
        ):
            found[case["number"]] = _DEVICE_QUOTAS
    return found


_TABLES = ("allocate", "capacity", "drf", "preempt", "proportion", "reclaim")


@pytest.mark.parametrize("case", [one for table in _TABLES for one in parameters(table, _different(table))])
def test_session(case: Case) -> None:
    found = session_of(case)
    assert found.evicted == case["evicted"]
    if "allocate" in case["actions"]:
        assert found.binds == case.get("binds", {})
    nominated: dict[str, set[str]] = {}
    for pod in case.get("pods", ()):
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if key in found.nominated:
            nominated.setdefault(group_of(pod), set()).add(found.nominated[key])
    wanted = case.get("pipelined", {})
    assert {group: nominated.get(group) for group in wanted} == {group: set(nodes) for group, nodes in wanted.items()}
    assert {group: found.phases[group] for group in case.get("phases", {})} == case.get("phases", {})


@pytest.mark.parametrize("case", parameters("capacity_shares"))
def test_share_of_what_a_queue_deserves(case: Case) -> None:
    configuration = read_configuration({"tiers": [{"plugins": [{"name": "capacity"}]}]})
    harness = PluginHarness([node("n", cpu="8", memory="8Gi")])
    harness.cluster.catalog(Queue).put(queue("q", deserved=case["deserved"]))
    accounts = Accounts(harness.cluster, Shares.SPECIFIED)
    account = accounts.queues.accounts["q"] = QueueAccount("q")
    account.allocated.update(amounts_of(convert(dict[str, Quantity], case["allocated"]), "allocated"))
    accounts.refresh()
    assert JobOrder(configuration, accounts).queue_key(account)[1] == case["share"]


@pytest.mark.parametrize("case", parameters("gang"))
def test_unschedulable_condition(case: Case) -> None:
    """Pods that terminate on nodes keep a pod group from being called unschedulable, unless others wait."""

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(3)
        [group] = harness.cluster.objects(PodGroup).values()
        is_skipped = all(condition.type != "Unschedulable" for condition in group.status.conditions)
        assert is_skipped == case["isSkipped"]

    pods = []
    for task in case["tasks"]:
        is_placed = "node" in task and task["status"] != "Pipelined"
        where = {"node": task["node"]} if is_placed else {"nominated": task.get("node", ""), "cpu": "99"}
        pods.append(member(task["name"], "g", deleting=task["status"] == "Releasing", **where))
    nodes = [node(f"node-{number}") for number in (1, 2, 3)]
    objects = [*nodes, pod_group("g", minMember=case["minMember"]), *pods]
    in_virtual_time(scenario, *objects, plugins=[Volcano], pod_group_apis=[VOLCANO], profiles=profile())
