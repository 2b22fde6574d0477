"""The diagnosis of a pod that fits nowhere: its message, the plugins to wait for, and the status of each node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.framework.diagnosis import Diagnosis, Rejection, fit_error
from kubestow.framework.status import Code, Status, Verdict

FULL, TAINTED = (
    Status.unschedulable("Insufficient cpu", "Insufficient memory"),
    Status.unresolvable("untolerated taint"),
)
SOON = Status(Code.PENDING, ("waiting",))


def mask(*rows: int) -> NDArray[np.bool_]:
    """Of five nodes, those at some rows."""
    found = np.zeros(5, np.bool_)
    found[list(rows)] = True
    return found


def diagnosis(**parts: object) -> Diagnosis:
    """Rows 0 to 2 are rejected by Taints, some of these again by Fit, row 3 by Fit alone; row 4 is absent."""
    taints = Verdict.of(np.array([1, 1, 1, 0, 1], np.int32), {1: TAINTED})
    fit = Verdict.of(np.array([2, 0, 0, 2, 2], np.int32), {2: FULL})
    rejections = [Rejection("Taints", mask(0, 1, 2), taints), Rejection("Fit", mask(3), fit)]
    given = {"rejections": rejections, "filtered": mask(0, 1, 2, 3), **parts}
    return Diagnosis(5, **given)  # type: ignore[arg-type]


def test_every_reason_is_counted_and_listed_in_order() -> None:
    expected = "0/5 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 3 untolerated taint."
    assert diagnosis().message() == expected
    assert fit_error(5, [(FULL, 2), (TAINTED, 1), (FULL, 1)]) == (
        "0/5 nodes are available: 1 untolerated taint, 3 Insufficient cpu, 3 Insufficient memory."
    )
    assert fit_error(0, []) == "0/0 nodes are available:"


def test_nodes_that_were_not_filtered_have_a_reason_of_their_own() -> None:
    absent = Status.unresolvable("not named")
    assert diagnosis(absent_nodes_status=absent).message().startswith("0/5 nodes are available: 1 Insufficient cpu,")
    assert "1 not named" in diagnosis(absent_nodes_status=absent).message()
    all_filtered = diagnosis(absent_nodes_status=absent, filtered=np.ones(5, np.bool_))
    assert "not named" not in all_filtered.message()
    assert diagnosis().rejected.tolist() == mask(0, 1, 2, 3).tolist()
    assert diagnosis(absent_nodes_status=absent).rejected.all()


def test_only_candidates_count() -> None:
    within = mask(0, 1, 3, 4)
    chosen = diagnosis(within=within, filtered=mask(0, 1, 3), absent_nodes_status=Status.unresolvable("not named"))
    assert chosen.candidate_count == 4
    assert "0/4 nodes" in chosen.message() and "1 not named" in chosen.message()
    assert chosen.rejected.tolist() == mask(0, 1, 2, 3, 4).tolist()


def test_a_rejection_by_pre_filter_is_the_only_reason() -> None:
    rejected = diagnosis(pre_filter_status=Status.unresolvable("no claim", "no volume").by("VolumeBinding"))
    assert rejected.message() == "0/5 nodes are available: no claim, no volume."
    assert rejected.unschedulable_plugins == {"VolumeBinding", "Taints", "Fit"}
    without_plugin = diagnosis(rejections=[], pre_filter_status=Status.unresolvable("broken"))
    assert without_plugin.unschedulable_plugins == set()


def test_plugins_that_expect_an_event_soon_are_told_from_the_others() -> None:
    verdict = Verdict.of(np.array([1, 2, 0, 0, 0], np.int32), {1: SOON, 2: FULL})
    pending = Rejection("Claims", mask(0), verdict)
    found = diagnosis(rejections=[pending], narrowed_by=("Names",))
    assert (found.unschedulable_plugins, found.pending_plugins) == ({"Names"}, {"Claims"})
    both = diagnosis(rejections=[Rejection("Claims", mask(0, 1), verdict)])
    assert (both.unschedulable_plugins, both.pending_plugins) == ({"Claims"}, {"Claims"})


def test_a_node_has_the_status_of_the_first_plugin_that_rejected_it() -> None:
    found = diagnosis(absent_nodes_status=Status.unschedulable("not named"))
    statuses = [found.status(row) for row in range(5)]
    assert statuses == [TAINTED.by("Taints")] * 3 + [FULL.by("Fit"), Status.unschedulable("not named")]
    for code in Code:
        assert found.with_code(code).tolist() == [status.code is code for status in statuses]


def test_a_later_rejection_takes_the_place_of_earlier_ones() -> None:
    later = Rejection("Extender", mask(2, 4), Verdict.rejecting(mask(2, 4), SOON))
    found = diagnosis().overridden_by(later)
    assert [found.status(row).plugin for row in range(5)] == ["Taints", "Taints", "Extender", "Fit", "Extender"]
    assert found.filtered.all()
    assert found.message() == (
        "0/5 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 2 untolerated taint, 2 waiting."
    )
