"""Which claims a pod has, and what it waits for before it is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubestow.framework.status import Status
from kubestow.testing import pod
from tests.plugins.dynamic_resources.devices import (
    DeviceWorld,
    claim,
    world,
)

FROM_TEMPLATE = {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}


def gate(cluster: DeviceWorld, spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Status:
    return cluster.plugin.pre_enqueue(cluster.info(pod("p", spec=spec, status=status)))


def test_a_pod_whose_claim_is_missing_waits_at_the_gate() -> None:
    status = gate(world(), {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]})
    assert status == Status.unresolvable('could not find ResourceClaim "default/c"')


def test_a_pod_whose_claim_is_being_deleted_waits_at_the_gate() -> None:
    going = claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    status = gate(world(going), {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]})
    assert status == Status.unresolvable('resourceclaim "c" is being deleted')


def test_a_pod_waits_until_its_template_has_been_used() -> None:
    assert gate(world(), FROM_TEMPLATE) == Status.unresolvable('pod "default/p": ResourceClaim not created yet')


def test_a_template_that_made_no_claim_asks_for_none() -> None:
    assert gate(world(), FROM_TEMPLATE, {"resourceClaimStatuses": [{"name": "x"}]}).ok


@pytest.mark.parametrize(("owner", "admitted"), [("uid-default-p", True), ("somebody", False)])
def test_a_claim_from_a_template_belongs_to_its_pod(owner: str, admitted: bool) -> None:
    owned = claim("made", metadata={"ownerReferences": [{"kind": "Pod", "uid": owner, "controller": True}]})
    statuses = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]}
    status = gate(world(owned), FROM_TEMPLATE, statuses)
    assert status.ok is admitted
    assert admitted or status.reasons == (
        "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
    )


def test_a_claim_of_neither_kind_is_refused() -> None:
    assert "none of the supported fields are set" in gate(world(), {"resourceClaims": [{"name": "x"}]}).message
