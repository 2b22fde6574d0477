"""Comparison of configuration errors by the fields they name."""

from __future__ import annotations

import pytest

from kubestow_lab.conformance.scheduling_replay import report_same_fields

_INVALID = "Invalid value: 0: must be greater than zero"
_UNKNOWN = 'strict decoding error: unknown field "leaderElection.lock"'
_NESTED = 'decoding .profiles[0].pluginConfig[1]: decoding args for plugin A: unknown field "shape[0].x"'
_WRONG_TYPE = "json: cannot unmarshal string into Go struct field Extender.extenders.weight of type int64"


@pytest.mark.parametrize(
    ("path", "recorded"),
    [
        ("parallelism", f"parallelism: {_INVALID}"),
        ("leaderElection.lock", _UNKNOWN),
        ("profiles[0].pluginConfig[1].args.shape[0].x", _NESTED),
        ("extenders[3].weight", _WRONG_TYPE),
        (
            "enableProfiling",
            "Go struct field KubeSchedulerConfiguration.DebuggingConfiguration.enableProfiling of type bool",
        ),
    ],
)
def test_a_field_is_recognised_in_every_notation(path: str, recorded: str) -> None:
    assert report_same_fields([(path, "whatever")], recorded)
    assert not report_same_fields([("extenders", "whatever")], recorded)


def test_exactly_the_same_fields_must_be_named() -> None:
    recorded = f"[parallelism: {_INVALID}, profiles[0].schedulerName: Required value]"
    both = [("parallelism", ""), ("profiles[0].schedulerName", "")]
    assert report_same_fields(both, recorded)
    assert not report_same_fields(both[:1], recorded)
    assert not report_same_fields([*both, ("extenders", "")], recorded)


def test_fields_in_a_message_are_found() -> None:
    recorded = f'initializing plugin "A": scoringStrategy.resources[0].weight: {_INVALID}'
    assert report_same_fields([("", recorded)], recorded)


def test_a_recorded_error_without_a_field_agrees_with_any_error() -> None:
    assert report_same_fields([("leaderElection.leaseDuration", "")], 'time: missing unit in duration "15"')
