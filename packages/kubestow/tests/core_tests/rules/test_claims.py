"""The claims that are created for pods."""

from __future__ import annotations

from typing import Any

from kubestow.rules import claims
from kubestow.rules.claims import ownership_problem, resource_claim, resource_claim_prefix
from kubestow.rules.owners import controller_reference
from kubestow.testing.storage import claim, ephemeral_claim

POD = {"name": "p", "namespace": "prod", "uid": "u", "labels": {"not": "copied"}}
OWNERS = [controller_reference("v1", "Pod", name="p", uid="u")]
TEMPLATE: dict[str, Any] = {
    "metadata": {"name": "ignored", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"storageClassName": "fast"},
}


def test_the_claim_of_an_ephemeral_volume_has_labels_and_annotations_of_its_template() -> None:
    assert claims.ephemeral_claim(POD, {"name": "scratch", "ephemeral": {"volumeClaimTemplate": TEMPLATE}}) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "p-scratch",
            "namespace": "prod",
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "ownerReferences": OWNERS,
        },
        "spec": {"storageClassName": "fast"},
    }


def test_the_pod_must_be_the_controller_of_the_claim_of_its_ephemeral_volume() -> None:
    own = ephemeral_claim("p", "scratch")
    assert ownership_problem(own, pod="default/p", pod_uid="uid-default-p") is None
    for other in (own, claim("p-scratch")):
        problem = ownership_problem(other, pod="default/p", pod_uid="uid-of-another")
        assert problem == "PVC default/p-scratch was not created for pod default/p (pod is not owner)"


def test_a_resource_claim_notes_the_entry_that_it_was_created_for() -> None:
    assert resource_claim(POD, "gpu", TEMPLATE) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": "p-gpu-",
            "namespace": "prod",
            "labels": {"a": "b"},
            "annotations": {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": OWNERS,
        },
        "spec": {"storageClassName": "fast"},
    }


def test_long_names_of_pod_and_entry_are_cut_in_proportion() -> None:
    assert resource_claim_prefix("p" * 51, "gpu") == "p" * 51 + "-gpu-"
    assert resource_claim_prefix("p" * 90, "g" * 22) == "p" * 45 + "-" + "g" * 11
