"""Admission: what the API server adds to new pods, and which it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.engine.input.admission import Admission, Refusals
from kubestow.errors import InvalidObject, InvalidQuantity
from kubestow.testing import pod


def manifest(labels: dict[str, str] | None = None, requests: dict[str, str] | None = None, **spec: Any) -> Any:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    return {"metadata": {"name": "new", "labels": labels}, "spec": {"containers": [container], **spec}}


def admitted(admission: Admission, namespace: str = "default", **fields: Any) -> Any:
    """The spec of a pod after its admission."""
    found = manifest(**fields)
    admission.admit(found, namespace)
    return found["spec"]


def quota(name: str, hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used} if used is not None else None,
    }


def with_quotas(*quotas: Any) -> Admission:
    admission = Admission()
    for each in quotas:
        admission.add("ResourceQuota", each)
    return admission


# -- what is added -----------------------------------------------------------------------------------------------------


def test_a_priority_class_sets_priority_and_policy() -> None:
    admission = Admission()
    admission.add("PriorityClass", {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"})
    admission.add("PriorityClass", {"metadata": {"name": "zero"}})

    high = admitted(admission, priorityClassName="high")
    assert (high["priority"], high["preemptionPolicy"]) == (7, "Never")
    zero = admitted(admission, priorityClassName="zero")
    assert (zero["priority"], zero["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    plain = admitted(admission)
    assert (plain["priority"], "priorityClassName" in plain) == (0, False)
    with pytest.raises(InvalidObject, match=r'spec\.priorityClassName: no PriorityClass with name "low" in the input'):
        admitted(admission, priorityClassName="low")


def test_a_default_priority_class_is_that_of_pods_without_one() -> None:
    admission = Admission()
    admission.add("PriorityClass", {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True})

    assert (admitted(admission)["priority"], admitted(admission)["priorityClassName"]) == (3, "usual")


def test_a_priority_class_is_learned_from_a_pod() -> None:
    admission = Admission()
    admission.learn_priority("learned", 9, None)
    admission.learn_priority("learned", 1, None)
    admission.learn_priority("", 5, None)
    admission.learn_priority("unknown", None, None)

    assert admitted(admission, priorityClassName="learned")["priority"] == 9
    assert admitted(admission)["priority"] == 0
    with pytest.raises(InvalidObject, match="unknown"):
        admitted(admission, priorityClassName="unknown")


def test_a_runtime_class_adds_its_overhead_to_the_pods_that_name_it() -> None:
    admission = Admission()
    runtime = {"metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "250m"}}}
    admission.add("RuntimeClass", runtime | {"scheduling": {"nodeSelector": {"vm": "yes"}}})

    found = admitted(admission, runtimeClassName="vm")
    assert (found["overhead"], found["nodeSelector"]) == ({"cpu": "250m"}, {"vm": "yes"})
    assert "overhead" not in admitted(admission)


def test_limit_ranges_of_the_namespace_set_default_requests() -> None:
    admission = Admission()
    limit = {"type": "Container", "defaultRequest": {"cpu": "300m"}}
    admission.add("LimitRange", {"metadata": {"name": "l", "namespace": "own"}, "spec": {"limits": [limit]}})

    def requests(namespace: str) -> Any:
        return admitted(admission, namespace)["containers"][0]["resources"].get("requests")

    assert (requests("own"), requests("default")) == ({"cpu": "300m"}, {})


def test_label_keys_of_affinity_are_merged_into_selectors() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["version"]}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    found = admitted(Admission(), labels={"version": "2"}, affinity=affinity)

    [merged] = found["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert merged["labelSelector"] == {
        "matchLabels": {"app": "a"},
        "matchExpressions": [{"key": "version", "operator": "In", "values": ["2"]}],
    }


def test_claim_templates_are_known_by_namespace_and_name() -> None:
    admission = Admission()
    spec: dict[str, Any] = {"spec": {"devices": {}}}
    admission.add("ResourceClaimTemplate", {"metadata": {"name": "t", "namespace": "own"}, "spec": spec})
    admission.add("ResourceClaimTemplate", {"metadata": {"name": "u"}, "spec": None})

    assert admission.claim_templates == {("own", "t"): spec, ("default", "u"): {}}


# -- what is invalid ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields", "problem"),
    [
        ("PriorityClass", {"value": "high"}, "value: expected an integer"),
        ("LimitRange", {"spec": {"limits": [{}, {"max": {"cpu": "x"}}]}}, "spec.limits[1].max[cpu]: "),
        ("LimitRange", {"spec": {"limits": [{"min": {"cpu": "-1"}}]}}, "spec.limits[0].min[cpu]: expected an amount"),
        ("LimitRange", {"spec": {"limits": [{"default": {"cpu": "x"}}]}}, "spec.limits[0].default[cpu]: "),
        ("LimitRange", {"spec": {"limits": [{"defaultRequest": {"cpu": "x"}}]}}, "spec.limits[0].defaultRequest[cpu]"),
        ("ResourceQuota", {"spec": {"hard": {"pods": "x"}}}, "spec.hard[pods]: "),
        ("ResourceQuota", {"status": {"used": {"pods": "x"}}}, "status.used[pods]: "),
        ("RuntimeClass", {"overhead": {"podFixed": {"cpu": "x"}}}, "overhead.podFixed[cpu]: "),
    ],
)
def test_an_object_with_an_invalid_value_is_an_error_with_its_path(kind: str, fields: Any, problem: str) -> None:
    with pytest.raises((InvalidObject, InvalidQuantity)) as error:
        Admission().add(kind, {"metadata": {"name": "o"}, **fields})
    assert str(error.value).startswith(problem)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": []}, "spec.containers: required value"),
        ({"containers": None}, "spec.containers: required value"),
        (
            {"initContainers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "x"}}}]},
            "spec.initContainers[1].resources.limits[cpu]: ",
        ),
        ({"resources": {"requests": {"cpu": "-1"}}}, "spec.resources.requests[cpu]: expected an amount that is not"),
        ({"overhead": {"cpu": "-1"}}, "spec.overhead[cpu]: expected an amount that is not negative, got '-1'"),
    ],
)
def test_an_invalid_pod_is_an_error_with_the_path(spec: Any, problem: str) -> None:
    with pytest.raises((InvalidObject, InvalidQuantity)) as error:
        admitted(Admission(), **spec)
    assert str(error.value).startswith(problem)
    with pytest.raises((InvalidObject, InvalidQuantity), match=r"spec\.containers\[0\]\.resources\.requests\[cpu\]: "):
        admitted(Admission(), requests={"cpu": "x"})


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_limit_range_refuses_a_pod_beyond_its_bounds() -> None:
    admission = Admission()
    limit = {"type": "Container", "max": {"cpu": "1"}}
    admission.add("LimitRange", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    refusals = Refusals(admission, [])

    assert "maximum cpu usage per Container is 1" in refusals.refusal(manifest(requests={"cpu": "2"}), "default")
    assert refusals.refusal(manifest(requests={"cpu": "2"}), "other") == ""


def test_a_quota_is_charged_with_each_pod_that_is_not_refused() -> None:
    refusals = Refusals(with_quotas(quota("q", {"requests.cpu": "3", "pods": "5"}, {"requests.cpu": "1"})), [])

    def refusal(cpu: str, namespace: str = "default") -> str:
        return refusals.refusal(manifest(requests={"cpu": cpu}), namespace)

    too_much = "exceeded quota: q, requested: requests.cpu={}, used: requests.cpu={}, limited: requests.cpu=3"
    assert refusal("1") == ""
    assert refusal("2") == too_much.format("2", "2")
    assert refusal("1") == ""
    assert refusal("1m") == too_much.format("1m", "3")
    assert refusal("9", "other") == ""


def test_a_pod_that_one_quota_refuses_is_charged_to_none() -> None:
    admission = with_quotas(quota("first", {"requests.cpu": "2"}, {}), quota("second", {"requests.memory": "1Gi"}, {}))
    refusals = Refusals(admission, [])

    def refusal(cpu: str, memory: str) -> str:
        return refusals.refusal(manifest(requests={"cpu": cpu, "memory": memory}), "default")

    assert refusal("2", "2Gi").startswith("exceeded quota: second, ")
    assert refusal("2", "1Gi") == ""


def test_without_a_status_the_pods_that_have_not_finished_are_counted() -> None:
    existing = [
        pod("runs", cpu="1", node="a", spec={"activeDeadlineSeconds": 5}),
        pod("done", cpu="1", node="a", status={"phase": "Succeeded"}),
        pod("elsewhere", cpu="1", namespace="other"),
    ]
    hard = {"requests.cpu": "2", "count/pods": "4"}
    admission = with_quotas(quota("all", hard), quota("terminating", {"pods": "1"}, scopes=["Terminating"]))
    refusals = Refusals(admission, existing)

    assert refusals.refusal(manifest(requests={"cpu": "2"}), "default") == (
        "exceeded quota: all, requested: requests.cpu=2, used: requests.cpu=1, limited: requests.cpu=2"
    )
    assert refusals.refusal(manifest(requests={"cpu": "1m"}, activeDeadlineSeconds=5), "default") == (
        "exceeded quota: terminating, requested: pods=1, used: pods=1, limited: pods=1"
    )
    assert refusals.refusal(manifest(requests={"cpu": "1"}), "default") == ""
    assert refusals.refusal(manifest(requests={"cpu": "1m"}), "default").startswith("exceeded quota: all, ")


def test_a_quota_demands_that_pods_specify_what_it_limits() -> None:
    refusals = Refusals(with_quotas(quota("q", {"requests.cpu": "3"}, {})), [])

    assert refusals.refusal(manifest(), "default") == "failed quota: q: must specify requests.cpu for: c"
