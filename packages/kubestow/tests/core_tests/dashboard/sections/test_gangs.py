"""The gangs section."""

from __future__ import annotations

from core_tests.observability.harness import Observed, observe
from core_tests.scheduling.gangs.groups import gang_scheduling, group, member
from kubestow.dashboard.sections import GangsSection
from kubestow.testing import node


def test_a_gang_is_listed_with_its_members_and_how_many_are_missing() -> None:
    async def scenario(observed: Observed) -> None:
        section = GangsSection(observed.harness.scheduler)
        section.refresh()
        assert section.content() == {"count": 0, "gangs": []}
        observed.harness.cluster.put(group("ring", 3))
        for number in range(2):
            observed.harness.cluster.put(member(f"member-{number}", "ring"))
        await observed.harness.settle()
        change = section.refresh()
        assert change is not None
        (gang,) = change["gangs"]
        assert (gang["name"], gang["minCount"], gang["pods"], gang["placed"]) == ("default/ring", 3, 2, 0)
        assert {member["state"] for member in gang["members"]} == {"gated"}
        observed.harness.cluster.put(member("member-2", "ring"))
        await observed.harness.settle()
        change = section.refresh()
        assert change is not None
        assert {member["state"] for member in change["gangs"][0]["members"]} == {"placed"}
        assert section.refresh() is None

    observe(scenario, node("a"), **gang_scheduling())
