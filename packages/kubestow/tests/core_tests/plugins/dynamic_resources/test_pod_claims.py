"""The claims of a pod, and PreEnqueue, which gates it until they are usable (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core_tests.plugins.dynamic_resources.devices import DeviceHarness, single_node
from kubestow.framework.status import Status
from kubestow.testing import pod
from kubestow.testing.devices import claim

FROM_TEMPLATE = {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}


def pre_enqueue(harness: DeviceHarness, spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Status:
    return harness.plugin.pre_enqueue(harness.info(pod("p", spec=spec, status=status)))


def test_a_pod_is_gated_while_its_claim_does_not_exist() -> None:
    status = pre_enqueue(single_node(), {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]})
    assert status == Status.unresolvable('could not find ResourceClaim "default/c"')


def test_a_pod_is_gated_while_its_claim_is_being_deleted() -> None:
    terminating = claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    status = pre_enqueue(single_node(terminating), {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]})
    assert status == Status.unresolvable('resourceclaim "c" is being deleted')


def test_a_pod_is_gated_until_its_claim_is_generated_from_the_template() -> None:
    assert pre_enqueue(single_node(), FROM_TEMPLATE) == Status.unresolvable(
        'pod "default/p": ResourceClaim not created yet'
    )


def test_a_status_without_a_claim_name_needs_no_claim() -> None:
    assert pre_enqueue(single_node(), FROM_TEMPLATE, {"resourceClaimStatuses": [{"name": "x"}]}).ok


@pytest.mark.parametrize(("owner", "usable"), [("uid-default-p", True), ("uid-other", False)])
def test_a_generated_claim_must_be_owned_by_the_pod(owner: str, usable: bool) -> None:
    owned = claim("made", metadata={"ownerReferences": [{"kind": "Pod", "uid": owner, "controller": True}]})
    statuses = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]}
    status = pre_enqueue(single_node(owned), FROM_TEMPLATE, statuses)
    assert status.ok is usable
    assert usable or status.reasons == (
        "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
    )


def test_an_entry_without_claim_and_template_name_is_rejected() -> None:
    assert (
        "none of the supported fields are set"
        in pre_enqueue(single_node(), {"resourceClaims": [{"name": "x"}]}).message
    )
