"""What the PostFilter plugins of a profile achieve together."""

from __future__ import annotations

from kubestow.framework.interface import PostFilterResult
from kubestow.framework.status import Code, Status
from kubestow.scheduling.decision.result import PostFilterResults


def _added(*results: PostFilterResult) -> tuple[PostFilterResults, list[bool]]:
    together = PostFilterResults()
    return together, [together.add(result) for result in results]


def test_a_plugin_that_nominates_no_node_any_more_clears_the_nomination_without_ending_the_point() -> None:
    clears = PostFilterResult(Status.unschedulable("no victims"), nominated_node_name="")
    together, ends = _added(clears, PostFilterResult(Status.unschedulable("no devices")))
    assert together.nominating_result is clears
    assert not together.has_nominated
    assert (together.message, together.code, ends) == ("no victims, no devices", Code.UNSCHEDULABLE, [False, False])


def test_a_plugin_that_says_nothing_of_nominations_leaves_the_nomination() -> None:
    together, _ = _added(PostFilterResult(Status.unschedulable("no devices")))
    assert together.nominating_result is None


def test_a_plugin_that_nominates_a_node_ends_the_point() -> None:
    nominates = PostFilterResult(Status(Code.SUCCESS, ("found",)), nominated_node_name="n")
    together, ends = _added(PostFilterResult(Status.unschedulable("first")), nominates)
    assert together.has_nominated
    assert (together.message, together.code, ends) == ("found", Code.SUCCESS, [False, True])


def test_an_error_ends_the_point_and_is_all_that_is_said() -> None:
    together, ends = _added(PostFilterResult(Status.unschedulable("first")), PostFilterResult(Status.error("broken")))
    assert (together.message, together.code, ends) == ("broken", Code.ERROR, [False, True])
