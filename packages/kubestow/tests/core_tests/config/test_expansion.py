"""MultiPoint expansion: the plugins of each extension point, their order, and construction errors."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import IN_TREE, construction_errors, disabled, enabled, expanded, loaded, profile, v1
from kubestow import config
from kubestow.config import ExtensionPoint
from kubestow.config.plugin_args import NodeResourcesFitArgs
from kubestow.errors import ConfigurationError

_SCORE = (
    "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread InterPodAffinity DynamicResources"
)
_SCORE += " NodeResourcesBalancedAllocation ImageLocality"
_CREATING = "initializing profiles: creating profile for scheduler name default-scheduler: "
_MINIMAL = ("PrioritySort", "DefaultBinder")


def _construction_errors(*profiles: dict[str, Any], **more: set[str]) -> list[str]:
    return [text.removeprefix(_CREATING) for text in construction_errors(*profiles, implements={**IN_TREE, **more})]


def test_the_default_profile_equals_kube_schedulers() -> None:
    (only,) = config.default_configuration().profiles
    points = config.expand(only, IN_TREE)
    assert [plugin.weight for plugin in points[ExtensionPoint.SCORE]] == [3, 2, 1, 1, 2, 2, 2, 1, 1]
    assert " ".join(plugin.name for plugin in points[ExtensionPoint.SCORE]) == _SCORE
    assert points[ExtensionPoint.POST_FILTER] == (("DynamicResources", 0), ("DefaultPreemption", 0))
    assert points[ExtensionPoint.QUEUE_SORT] == (("PrioritySort", 0),)
    assert points[ExtensionPoint.PLACEMENT_SCORE] == (("NodeResourcesFit", 1),)
    assert points[ExtensionPoint.PERMIT] == points[ExtensionPoint.POST_BIND] == ()
    assert len(points[ExtensionPoint.FILTER]) == 14


def test_feature_gates_enable_their_plugins() -> None:
    gates = config.FeatureGates(
        {
            "GenericWorkload": True,
            "GangScheduling": True,
            "TopologyAwareWorkloadScheduling": True,
            "NodeDeclaredFeatures": False,
            "InPlacePodLevelResourcesVerticalScaling": False,
        }
    )
    entries = config.default_plugins(gates).multi_point.enabled
    assert [(entry.name, entry.weight) for entry in entries[-4:]] == [
        ("DefaultBinder", None),
        ("GangScheduling", None),
        ("TopologyPlacementGenerator", None),
        ("PodGroupPodsCount", 1),
    ]


def test_an_overridden_default_plugin_keeps_its_position_and_takes_the_new_weight() -> None:
    (built,) = loaded(profile(multiPoint=enabled("Mine", NodeAffinity=7))).profiles
    entries = built.plugins.multi_point.enabled
    assert entries[5] == config.PluginEntry(name="NodeAffinity", weight=7)
    assert entries[-1].name == "Mine"


def test_a_default_plugin_disabled_and_enabled_moves_to_the_end() -> None:
    assert expanded(profile(multiPoint=enabled("NodeName", disabled=("NodeName",))), "filter")[-1] == "NodeName"


def test_a_star_disables_every_default_plugin() -> None:
    only = enabled("NodeName", *_MINIMAL, disabled=("*",))
    assert expanded(profile(multiPoint=only), "filter") == ["NodeName"]
    assert expanded(profile(filter=disabled("*")), "filter") == []
    assert expanded(profile(filter=enabled("NodePorts", "NodeName", disabled=("*",))), "filter") == [
        "NodePorts",
        "NodeName",
    ]


def test_a_plugin_can_be_disabled_at_one_extension_point() -> None:
    without = profile(score=disabled("NodeResourcesFit"))
    assert "NodeResourcesFit" not in expanded(without, "score")
    assert "NodeResourcesFit" in expanded(without, "filter")


def test_call_order_is_overridden_then_multi_point_then_point_plugins() -> None:
    implements = {**IN_TREE, "First": {"score"}, "Mine": {"score"}}
    names = expanded(profile(score=enabled("Mine", "ImageLocality", "NodeAffinity", "First")), "score", implements)
    assert names[:3] == ["ImageLocality", "NodeAffinity", "TaintToleration"]
    assert names[-2:] == ["Mine", "First"]


def test_a_plugin_enabled_and_disabled_at_a_point_loses_only_its_multi_point_position() -> None:
    names = expanded(profile(score=enabled("TaintToleration", disabled=("TaintToleration",))), "score")
    assert names[-1] == "TaintToleration"


def test_the_weight_at_the_point_takes_precedence_over_multi_point_and_zero_means_one() -> None:
    weighed = profile(
        score=enabled(NodeAffinity=0, ImageLocality=9), multiPoint=enabled(NodeAffinity=8, VolumeBinding=4)
    )
    (built,) = loaded(weighed).profiles
    weights = dict(config.expand(built, IN_TREE)[ExtensionPoint.SCORE])
    assert (weights["NodeAffinity"], weights["ImageLocality"], weights["VolumeBinding"]) == (1, 9, 4)


@pytest.mark.parametrize(
    ("plugins", "error"),
    [
        ({"score": enabled("Nope")}, 'ScorePlugin "Nope" does not exist'),
        ({"multiPoint": enabled("Nope")}, 'PreFilterPlugin "Nope" does not exist'),
        ({"multiPoint": enabled("Nope"), "preFilter": disabled("*")}, 'FilterPlugin "Nope" does not exist'),
        ({"postFilter": enabled("NodeName")}, 'plugin "NodeName" does not extend PostFilterPlugin plugin'),
        (
            {"placementGenerate": enabled("NodeName")},
            'plugin "NodeName" does not extend PlacementGeneratePlugin plugin',
        ),
        ({"filter": enabled("NodeName", "NodeName")}, 'plugin "NodeName" already registered as "FilterPlugin"'),
        (
            {"multiPoint": enabled("NodeAffinity", "NodeAffinity")},
            'plugin "NodeAffinity" already registered as "PreFilterPlugin"',
        ),
        (
            {"multiPoint": enabled("NodeAffinity", "NodeAffinity"), "preFilter": enabled("NodeAffinity")},
            'plugin "NodeAffinity" already registered as "FilterPlugin"',
        ),
        (
            {"queueSort": disabled("*")},
            'only one queue sort plugin required for profile with scheduler name "default-scheduler", but got 0',
        ),
        (
            {"bind": disabled("DefaultBinder")},
            'at least one bind plugin is needed for profile with scheduler name "default-scheduler"',
        ),
        ({"score": enabled(TaintToleration=-1)}, "score plugins: total score of Score plugins could overflow"),
    ],
)
def test_a_construction_error_is_reported_once(plugins: dict[str, Any], error: str) -> None:
    assert _construction_errors(profile(**plugins)) == [error]


def test_all_construction_errors_of_all_profiles_are_reported() -> None:
    expected = construction_errors(
        profile("a", score=enabled("X", "Y"), filter=enabled("X")), profile("b", bind=disabled("*"))
    )
    assert [text.removeprefix("initializing profiles: creating profile for scheduler name ") for text in expected] == [
        'a: FilterPlugin "X" does not exist',
        'a: ScorePlugin "Y" does not exist',
        'b: at least one bind plugin is needed for profile with scheduler name "b"',
    ]


def test_disabling_an_unknown_plugin_is_not_an_error() -> None:
    assert _construction_errors(profile(score=disabled("Nope"), multiPoint=disabled("Nope"))) == []


def test_a_negative_weight_balanced_by_others_is_accepted() -> None:
    assert _construction_errors(profile(score=enabled(ImageLocality=1, NodeAffinity=-1))) == []


def test_profiles_share_one_queue_sort_plugin() -> None:
    other = profile("b", multiPoint=enabled("Mine", disabled=("PrioritySort",)))
    assert _construction_errors(profile("a"), other, Mine={"queueSort"}) == [
        'initializing profiles: different queue sort plugins for profile "b": "Mine", first: "PrioritySort"'
    ]


def test_profiles_share_the_arguments_of_the_queue_sort_plugin() -> None:
    assert _construction_errors(profile("a"), profile("b", args={"PrioritySort": {"x": 1}})) == [
        'initializing profiles: different queue sort plugin args for profile "b"'
    ]


def test_at_most_one_placement_generate_plugin_is_allowed() -> None:
    many = profile(placementGenerate=enabled("TopologyPlacementGenerator", "Mine"))
    (error,) = _construction_errors(many, Mine={"placementGenerate"})
    assert error.startswith("at most one placement generate plugin is allowed")


def test_expanding_an_invalid_profile_raises() -> None:
    (built,) = loaded(profile("a", filter=enabled("Nope"))).profiles
    with pytest.raises(ConfigurationError, match='profile "a": FilterPlugin "Nope" does not exist'):
        config.expand(built, IN_TREE)


def _with_extender(*profiles: dict[str, Any]) -> config.KubeSchedulerConfiguration:
    resources = [{"name": "example.com/a", "ignoredByScheduler": True}, {"name": "example.com/b"}]
    return config.load(v1(profiles=list(profiles), extenders=[{"managedResources": resources}]))


def test_resources_ignored_by_the_scheduler_replace_ignored_resources() -> None:
    given = _with_extender(profile("a", args={"NodeResourcesFit": {"ignoredResources": ["x.y/z"]}}), profile("b"))
    assert config.construction_errors(given, IN_TREE) == []
    applied = [p.args["NodeResourcesFit"] for p in config.apply_ignored_resources(given).profiles]
    assert applied == [NodeResourcesFitArgs(ignored_resources=("example.com/a",))] * 2


def test_resources_ignored_by_the_scheduler_require_node_resources_fit() -> None:
    given = _with_extender(profile(multiPoint=enabled(*_MINIMAL, disabled=("*",))))
    assert [p.message for p in config.construction_errors(given, IN_TREE)] == [
        "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"
    ]


def test_a_check_with_the_registry_includes_construction_errors() -> None:
    source = v1(profiles=[profile(filter=enabled("Nope"))])
    assert config.check(source) == []
    assert len(config.check(source, implements=IN_TREE)) == 1
    with pytest.raises(ConfigurationError, match='FilterPlugin "Nope" does not exist'):
        config.load(source, implements=IN_TREE)
