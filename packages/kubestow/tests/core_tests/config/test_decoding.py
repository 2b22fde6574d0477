"""Strict decoding: value types, field names, kinds."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import field_errors, loaded, profile, v1, with_args
from kubestow import config
from kubestow.config.plugin_args import InterPodAffinityArgs, NodeResourcesFitArgs


def test_all_type_errors_are_reported_at_once() -> None:
    source = v1(parallelism="16", profiles=[{"schedulerName": 1}], extenders={}, clientConnection={"qps": True})
    assert field_errors(source) == [
        'parallelism: expected an integer (int32), got string "16"',
        "profiles[0].schedulerName: expected a string, got number 1",
        "extenders: expected a list, got an object",
        "clientConnection.qps: expected a number, got boolean true",
    ]


@pytest.mark.parametrize("limit", [-(2**31), 2**31 - 1])
def test_the_largest_and_the_least_integer_have_the_right_type(limit: int) -> None:
    assert not [error for error in field_errors(v1(parallelism=limit)) if "expected an integer" in error]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"parallelism": -(2**31) - 1}, "parallelism: expected an integer (int32), got number -2147483649"),
        ({"parallelism": 2**31}, "parallelism: expected an integer (int32), got number 2147483648"),
        ({"parallelism": 1.0}, "parallelism: expected an integer (int32), got number 1.0"),
        (
            {"podMaxBackoffSeconds": 2**63},
            "podMaxBackoffSeconds: expected an integer (int64), got number 9223372036854775808",
        ),
        ({"enableProfiling": 0}, "enableProfiling: expected a boolean, got number 0"),
        ({"clientConnection": {"qps": 1e39}}, "clientConnection.qps: expected a number, got number 1e+39"),
        ({"profiles": [[]]}, "profiles[0]: expected an object, got a list"),
        (
            {"leaderElection": {"leaseDuration": 15}},
            'leaderElection.leaseDuration: expected a duration such as "15s", got number 15',
        ),
        (
            {"leaderElection": {"retryPeriod": None}},
            'leaderElection.retryPeriod: expected a duration such as "15s": time: invalid duration ""',
        ),
        ({"extenders": [{"tlsConfig": {"caData": "%"}}]}, "extenders[0].tlsConfig.caData: expected base64 text"),
    ],
)
def test_a_value_of_the_wrong_type_is_rejected(fields: dict[str, Any], error: str) -> None:
    assert field_errors(v1(**fields)) == [error]


def test_all_unknown_fields_are_reported_at_once() -> None:
    source = v1(profilez=None, Profiles=[], profiles=[profile(args={"NodeAffinity": {"addedAfinity": {}}}, permits={})])
    assert field_errors(source) == [
        'profilez: unknown field, did you mean "profiles"?',
        'Profiles: unknown field, did you mean "profiles"?',
        'profiles[0].plugins.permits: unknown field, did you mean "permit"?',
        'profiles[0].pluginConfig[0].args.addedAfinity: unknown field, did you mean "addedAffinity"?',
    ]


def test_kubernetes_objects_in_arguments_are_decoded_strictly() -> None:
    terms: dict[str, Any] = {"requiredDuringSchedulingRequiredDuringExecution": {"nodeSelectorTerms": [{}]}}
    (error,) = field_errors(with_args("NodeAffinity", {"addedAffinity": terms}))
    assert error.startswith(f"profiles[0].pluginConfig[0].args.addedAffinity.{next(iter(terms))}: unknown field")


def test_type_errors_precede_unknown_fields_and_these_precede_validation() -> None:
    rule: dict[str, Any] = {"parallelism": 0}
    unknown = {**rule, "unheardOf": 1}
    wrong_args = [profile(args={"InterPodAffinity": {"hardPodAffinityWeight": "1"}})]
    assert [p.partition(":")[0] for p in field_errors(v1(**rule))] == ["parallelism"]
    assert [p.partition(":")[0] for p in field_errors(v1(**unknown))] == ["unheardOf"]
    (error,) = field_errors(v1(**unknown, profiles=wrong_args))
    assert error.startswith("profiles[0].pluginConfig[0].args.hardPodAffinityWeight: expected an integer")


def test_null_leaves_a_field_at_its_default() -> None:
    nulls = v1(
        parallelism=None,
        leaderElection=None,
        profiles=[None],
        extenders=None,
        enableProfiling=None,
        clientConnection={"burst": None},
    )
    assert config.load(nulls) == config.default_configuration()


def test_arguments_can_be_absent_or_null() -> None:
    for source in ({"name": "InterPodAffinity"}, {"name": "InterPodAffinity", "args": None}):
        (only,) = config.load(v1(profiles=[{"pluginConfig": [source]}])).profiles
        assert only.args["InterPodAffinity"] == InterPodAffinityArgs()


def test_arguments_can_have_api_version_and_kind() -> None:
    type_meta = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs"}
    (only,) = loaded(profile(args={"NodeResourcesFit": type_meta})).profiles
    assert only.args["NodeResourcesFit"] == NodeResourcesFitArgs()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"kind": "InterPodAffinityArgs"}, "args for plugin NodeResourcesFit were not of type NodeResourcesFitArgs."),
        ({"apiVersion": "v1", "kind": "Pod"}, 'no kind "Pod" is registered for version "v1"'),
        ({"apiVersion": "v1"}, 'no kind "NodeResourcesFitArgs" is registered for version "v1"'),
        ({"apiVersion": "other/"}, "Object 'apiVersion' is missing"),
        ([], "expected an object (NodeResourcesFitArgs), got a list"),
        ("", 'expected an object (NodeResourcesFitArgs), got string ""'),
    ],
)
def test_arguments_of_another_kind_are_rejected(given: Any, error: str) -> None:
    (expected,) = field_errors(with_args("NodeResourcesFit", given))
    assert expected.startswith(f"profiles[0].pluginConfig[0].args: {error}")


@pytest.mark.parametrize("given", [{"a": [1]}, [], None, 5, {"kind": "Pod"}])
def test_arguments_of_out_of_tree_plugins_are_unchanged(given: Any) -> None:
    (only,) = loaded(profile(args={"Mine": given})).profiles
    assert only.args["Mine"] == given


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({"kind": "KubeSchedulerConfiguration"}, "Object 'apiVersion' is missing"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1"}, "Object 'Kind' is missing"),
        (
            {**v1(), "apiVersion": "kubescheduler.config.k8s.io/v1beta3"},
            'no kind "KubeSchedulerConfiguration" is registered',
        ),
        ({**v1(), "kind": "Policy"}, 'no kind "Policy" is registered for version "kubescheduler.config.k8s.io/v1"'),
        ({**v1(), "apiVersion": "a/b/c"}, "apiVersion: unexpected GroupVersion string: a/b/c"),
        ({**v1(), "kind": 1}, "kind: expected a string, got number 1"),
        ({**v1(), "kind": "NodeAffinityArgs"}, "couldn't decode as KubeSchedulerConfiguration, got"),
        ({**v1(profiles=None), "kind": "NodeAffinityArgs"}, "profiles: unknown field"),
        ("- 1", "expected an object (KubeSchedulerConfiguration), got a list"),
        ("", "expected an object (KubeSchedulerConfiguration), got null"),
    ],
)
def test_an_object_of_another_kind_is_rejected(source: config.Source, error: str) -> None:
    (expected,) = field_errors(source)
    assert expected.startswith(error)


def test_certificates_are_decoded_from_base64() -> None:
    configuration = config.load(
        v1(extenders=[{"tlsConfig": {"caData": "UEVN\n", "serverName": "x"}, "enableHTTPS": True}])
    )
    tls = configuration.extenders[0].tls_config
    assert tls is not None
    assert (tls.ca_data, tls.key_data, configuration.extenders[0].enable_https) == (b"PEM", b"", True)


@pytest.mark.parametrize("given", [{}, [], "", 0, False], ids=repr)
@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("profiles", list),
        ("extenders", list),
        ("leaderElection", dict),
        ("clientConnection", dict),
        ("profiles[0].plugins", dict),
        ("profiles[0].plugins.score", dict),
        ("profiles[0].plugins.score.enabled", list),
        ("profiles[0].pluginConfig", list),
        ("extenders[0].managedResources", list),
        ("extenders[0].tlsConfig", dict),
    ],
)
def test_an_empty_value_of_another_type_does_not_count_as_absent(field: str, kind: type[Any], given: Any) -> None:
    *parents, name = field.split(".")
    value: Any = {name: given}
    for parent in reversed(parents):
        key, is_item, _ = parent.partition("[")
        value = {key: [value] if is_item else value}
    errors = [error.partition(", got ")[0] for error in field_errors(v1(**value))]
    expected = f"{field}: expected {'a list' if kind is list else 'an object'}"
    assert (expected in errors) == (type(given) is not kind)
