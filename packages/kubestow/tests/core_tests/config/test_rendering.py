"""Encoding of the effective configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from core_tests.config.builders import loaded, profile, v1, with_args
from core_tests.config.recorded import CASES
from kubestow import config

_ACCEPTED = [case for case in CASES if "config_error" not in case]


def test_every_default_is_written_out() -> None:
    rendered = config.render(config.default_configuration())
    assert list(rendered)[:3] == ["apiVersion", "kind", "parallelism"]
    assert rendered["clientConnection"]["qps"] == -1
    assert rendered["leaderElection"]["leaseDuration"] == "15s"
    assert rendered["profiles"][0]["plugins"]["multiPoint"]["enabled"][4] == {"name": "TaintToleration", "weight": 3}
    assert rendered["profiles"][0]["pluginConfig"][0] == {
        "name": "DefaultPreemption",
        "args": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "DefaultPreemptionArgs",
            "minCandidateNodesPercentage": 10,
            "minCandidateNodesAbsolute": 100,
        },
    }


@pytest.mark.parametrize("case", _ACCEPTED, ids=lambda case: case["name"])
def test_a_rendered_configuration_loads_to_itself(case: dict[str, Any]) -> None:
    gates = config.FeatureGates(case.get("featureGates"))
    rendered = config.render(config.load(case["config"], gates=gates))
    text = yaml.safe_dump(json.loads(json.dumps(rendered)))
    assert config.load(text, gates=gates) == config.load(case["config"], gates=gates)


def test_empty_values_that_matter_are_written() -> None:
    none_matches: dict[str, Any] = {
        "addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    (given,) = config.load(with_args("NodeAffinity", none_matches)).profiles
    (again,) = config.load(config.render(loaded(profile(args={"NodeAffinity": none_matches})))).profiles
    assert again.args["NodeAffinity"] == given.args["NodeAffinity"]


def test_an_extender_has_the_field_names_of_the_api() -> None:
    extender = {"urlPrefix": "https://x", "enableHTTPS": True, "httpTimeout": "1m0s", "tlsConfig": {"caData": "UEVN"}}
    (written,) = config.render(config.load(v1(extenders=[extender])))["extenders"]
    assert {name: written[name] for name in extender} == {
        **extender,
        "tlsConfig": {"insecure": False, "caData": "UEVN"},
    }
