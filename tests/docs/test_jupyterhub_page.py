"""The recipe of docs/jupyterhub.md: its values and manifests are what kubestow takes, and user pods pack by them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster_tests.kubectl import NEEDS_KUBECTL
from kubestow import config
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import MINORS
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from kubestow.version import VERSION
from tests.deploy.manifests import DEPLOY, kustomize

RECIPE = DEPLOY / "jupyterhub"
PAGE = (DEPLOY.parent / "docs" / "jupyterhub.md").read_text(encoding="utf-8")
PURPOSE = "hub.jupyter.org/node-purpose"
#: What the chart has of its own: the scheduler's name in pods, and the Lease.
RELEASE, NAMESPACE = "jupyterhub", "jhub"


def values(path: Path = RECIPE / "values.yaml") -> Any:
    return yaml.safe_load(path.read_text())


def chart_configuration() -> dict[str, Any]:
    """The configuration file that the chart makes of the values, in its ConfigMap user-scheduler."""
    scheduler = values()["scheduling"]["userScheduler"]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "resourceLock": "leases",
            "resourceName": "user-scheduler-lock",
            "resourceNamespace": NAMESPACE,
        },
        "profiles": [
            {
                "schedulerName": f"{RELEASE}-user-scheduler",
                "plugins": scheduler["plugins"],
                "pluginConfig": scheduler["pluginConfig"],
            }
        ],
    }


def separate_configuration() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((RECIPE / "separate" / "scheduler.yaml").read_text())
    return document


CONFIGURATIONS = {"in the chart": chart_configuration, "separate": separate_configuration}


@pytest.mark.parametrize("way", CONFIGURATIONS)
@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_the_configuration_is_valid_in_every_minor_version(way: str, minor: Any) -> None:
    gates, registry = config.FeatureGates(minor=minor), in_tree_registry(minor)
    loaded = config.load(CONFIGURATIONS[way](), subject=way, gates=gates, implements=implements(registry))
    scores = {plugin.name: plugin.weight for plugin in loaded.profiles[0].plugins.score.enabled}
    weights = {"NodeAffinity": 14631, "InterPodAffinity": 1331, "NodeResourcesFit": 121, "ImageLocality": 11}
    assert scores.items() >= weights.items()
    assert "NodeResourcesBalancedAllocation" not in scores
    documented = dict(re.findall(r"^\| (\w+) \| (\d+) \|", PAGE, re.MULTILINE))
    assert {name: str(weight) for name, weight in weights.items()} == documented


def test_the_image_has_the_command_that_the_chart_runs() -> None:
    image = values()["scheduling"]["userScheduler"]["image"]
    assert (image["name"], str(image["tag"])) == ("kubestow", VERSION)
    command = "/usr/local/bin/kube-scheduler"
    assert f"COPY --chmod=0755 deploy/image/kube-scheduler {command}" in (DEPLOY / "image" / "Dockerfile").read_text()
    assert f'"$root{command}"' in (DEPLOY.parent / "tools" / "image" / "build").read_text()
    [shown] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    shown["scheduling"]["userScheduler"]["image"]["name"] = "kubestow"
    assert shown["scheduling"]["userScheduler"].items() <= values()["scheduling"]["userScheduler"].items()


@pytest.mark.kubectl
@NEEDS_KUBECTL[1]
def test_the_separate_scheduler_is_the_one_that_pods_name() -> None:
    objects = kustomize("jupyterhub/separate")
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    [configured] = [each for each in objects if each["kind"] == "ConfigMap"]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert [volume["configMap"]["name"] for volume in volumes] == [configured["metadata"]["name"]]
    assert yaml.safe_load(configured["data"]["scheduler.yaml"]) == separate_configuration()
    [profile] = separate_configuration()["profiles"]
    hub = values(RECIPE / "separate" / "values.yaml")
    assert hub["hub"]["config"]["KubeSpawner"]["scheduler_name"] == profile["schedulerName"]
    assert hub["scheduling"]["userPlaceholder"]["extraPodSpec"]["schedulerName"] == profile["schedulerName"]
    assert not hub["scheduling"]["userScheduler"]["enabled"]
    in_chart = chart_configuration()["profiles"][0]
    assert {name: profile[name] for name in ("plugins", "pluginConfig")} == {
        name: in_chart[name] for name in ("plugins", "pluginConfig")
    }


def user_pod(name: str, scheduler: str, **more: Any) -> Any:
    """A user's server, with the preference for user nodes of the chart."""
    purpose = {"matchExpressions": [{"key": PURPOSE, "operator": "In", "values": ["user"]}]}
    preferred = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": purpose}]}
    }
    return pod(name, cpu="1", memory="1Gi", scheduler=scheduler, affinity=preferred, **more)


@pytest.mark.parametrize("way", CONFIGURATIONS)
def test_user_pods_fill_the_fullest_user_node_first(way: str) -> None:
    profiles = CONFIGURATIONS[way]()["profiles"]
    name = profiles[0]["schedulerName"]

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(9):
            harness.cluster.put(user_pod(f"jupyter-{number}", name))
            await harness.settle()
        placed = [harness.node_of(f"jupyter-{number}") for number in range(9)]
        assert placed[:3] == ["user-b"] * 3  # which has one already
        assert set(placed[3:7]) == {placed[3]}
        assert placed[3] in ("user-a", "user-c")
        assert set(placed[7:]) == {"user-a", "user-c"} - {placed[3]}

    user = {PURPOSE: "user"}
    nodes = [node(f"user-{letter}", cpu="4", labels=user) for letter in "ac"]
    fullest = [node("user-b", cpu="4", labels=user), pod("old", cpu="1", node="user-b", scheduler=name)]
    # The fullest node of all has another purpose.
    other = [node("core", cpu="4"), pod("hub", cpu="3", node="core", scheduler=name)]
    in_virtual_time(scenario, *nodes, *fullest, *other, profiles=profiles)


@pytest.mark.parametrize("way", CONFIGURATIONS)
def test_a_user_takes_the_place_of_a_placeholder(way: str) -> None:
    profiles = CONFIGURATIONS[way]()["profiles"]
    name = profiles[0]["schedulerName"]

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(user_pod("placeholder", name, priority=-10))
        await harness.settle()
        assert harness.node_of("placeholder") == "user"
        harness.cluster.put(user_pod("jupyter-ada", name, priority=0))
        await harness.advance(5)
        assert harness.node_of("jupyter-ada") == "user"
        assert [each.metadata.name for each in harness.cluster.pods()] == ["jupyter-ada"]

    in_virtual_time(scenario, node("user", cpu="1", labels={PURPOSE: "user"}), profiles=profiles)
