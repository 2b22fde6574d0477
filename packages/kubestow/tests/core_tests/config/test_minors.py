"""What the configurations of minor versions have otherwise: fields, arguments, defaults, and the words of errors."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import DEFAULT, disabled, enabled, profile, v1, with_args
from kubestow import config
from kubestow.config.plugin_args import UtilizationShapePoint, VolumeBindingArgs
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import MINORS, Behaviour, Minor


def before(behaviour: Behaviour) -> Minor:
    """The last minor version without a behaviour."""
    return Minor(behaviour.since.number - 1)


def errors(source: config.Source, minor: Minor, **choices: bool) -> list[str]:
    """The errors of a configuration in a minor version, and of building its scheduler."""
    gates = config.FeatureGates(choices, minor=minor)
    return [str(e) for e in config.check(source, gates=gates, implements=implements(in_tree_registry(minor)))]


@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_the_default_configuration_is_valid(minor: Minor) -> None:
    assert errors(v1(), minor) == []


@pytest.mark.parametrize("point", ["placementGenerate", "placementScore"])
def test_placement_extension_points_are_unknown_before_they_came(point: str) -> None:
    source = v1(profiles=[{"schedulerName": DEFAULT, "plugins": {point: disabled("*")}}])
    behaviour = Behaviour.PLACEMENT_EXTENSION_POINTS
    assert errors(source, behaviour.since) == []
    unknown = f"profiles[0].plugins.{point}: unknown field, known since 1.36"
    assert errors(source, before(behaviour)) == [unknown]


def test_pod_group_post_filter_is_unknown_before_it_came() -> None:
    source = v1(profiles=[profile(podGroupPostFilter=disabled("*"))])
    behaviour = Behaviour.POD_GROUP_POST_FILTER
    assert errors(source, behaviour.since) == []
    unknown = "profiles[0].plugins.podGroupPostFilter: unknown field, known since 1.37"
    assert errors(source, before(behaviour)) == [unknown]


@pytest.mark.parametrize(("plugin", "extends"), [("DefaultPreemption", True), ("NodeName", False)])
def test_default_preemption_extends_pod_group_post_filter(plugin: str, extends: bool) -> None:
    found = errors(v1(profiles=[profile(podGroupPostFilter=enabled(plugin))]), Minor(37))
    assert any("PodGroupPostFilterPlugin" in error for error in found) is not extends
    assert ("podGroupPostFilter" in implements(in_tree_registry(Minor(37)))[plugin]) is extends
    assert "podGroupPostFilter" not in implements(in_tree_registry(Minor(36)))[plugin]


def test_a_field_that_is_not_known_yet_is_no_suggestion() -> None:
    source = v1(profiles=[profile(placementScor=disabled("*"))])
    assert errors(source, Minor(36)) == [
        'profiles[0].plugins.placementScor: unknown field, did you mean "placementScore"?'
    ]
    (error,) = errors(source, Minor(35))
    assert "placementScore" not in error


def test_what_a_minor_version_does_not_know_is_diagnosed_with_the_other_mistakes() -> None:
    source = v1(parallelism=0, profiles=[profile(placementScore=disabled("*"))])
    found = config.diagnose(source, gates=config.FeatureGates(minor=Minor(35)))
    assert sorted(error.path for error in found) == ["parallelism", "profiles[0].plugins.placementScore"]


@pytest.mark.parametrize("given", [{"filterTimeout": 1, "nonsense": {}}, {"kind": "NodeAffinityArgs"}, [], "x"])
def test_arguments_of_dynamic_resources_are_not_read_before_it_takes_any(given: Any) -> None:
    behaviour = Behaviour.DYNAMIC_RESOURCES_TAKES_ARGUMENTS
    assert errors(with_args("DynamicResources", given), behaviour.since)
    assert errors(with_args("DynamicResources", given), before(behaviour)) == []


def test_its_default_arguments_are_those_of_the_minor_version() -> None:
    def args(minor: Minor) -> Any:
        configuration = config.default_configuration(config.FeatureGates(minor=minor))
        return config.render(configuration)["profiles"][0]["pluginConfig"]

    by_minor = {
        minor.number: [entry["args"] for entry in args(minor) if entry["name"] == "DynamicResources"]
        for minor in MINORS
    }
    type_meta = {"apiVersion": config.API_VERSION, "kind": "DynamicResourcesArgs"}
    assert by_minor == {
        31: [],
        32: [],
        33: [],
        34: [type_meta | {"filterTimeout": "10s"}],
        35: [type_meta | {"filterTimeout": "10s"}],
        36: [type_meta | {"filterTimeout": "10s", "bindingTimeout": "10m0s"}],
        37: [type_meta | {"filterTimeout": "10s", "bindingTimeout": "10m0s"}],
    }


def test_kinds_of_arguments_are_those_of_the_minor_version() -> None:
    source = {"apiVersion": config.API_VERSION, "kind": "DynamicResourcesArgs"}
    assert "couldn't decode as KubeSchedulerConfiguration" in errors(source, Minor(34))[0]
    assert 'no kind "DynamicResourcesArgs" is registered' in errors(source, Minor(33))[0]


def test_the_binding_timeout_is_unknown_before_it_came() -> None:
    source = with_args("DynamicResources", {"bindingTimeout": "5s"})
    behaviour, path = Behaviour.DYNAMIC_RESOURCES_TAKES_A_BINDING_TIMEOUT, "profiles[0].pluginConfig[0].args"
    (forbidden,) = errors(source, behaviour.since)
    assert forbidden.startswith(f"{path}.bindingTimeout: Forbidden: DRADeviceBindingConditions or")
    assert errors(source, behaviour.since, DRADeviceBindingConditions=True) == []
    assert errors(source, before(behaviour)) == [f"{path}.bindingTimeout: unknown field, known since 1.35"]


def strategy(kind: str, *, utilization: int = 0, score: int = 0) -> dict[str, Any]:
    """NodeResourcesFit with a scoring strategy and a shape of one point."""
    shape = [{"utilization": utilization, "score": score}]
    scoring = {"type": kind, "requestedToCapacityRatio": {"shape": shape}}
    return with_args("NodeResourcesFit", {"scoringStrategy": scoring})


_BUILDING_FIT = (
    f'initializing profiles: creating profile for scheduler name {DEFAULT}: initializing plugin "NodeResources'
)


def test_the_capacity_ratio_is_bound_to_its_strategy() -> None:
    behaviour, source = Behaviour.CAPACITY_RATIO_IS_BOUND_TO_ITS_STRATEGY, strategy("LeastAllocated")
    (forbidden,) = errors(source, behaviour.since)
    assert "scoringStrategy.requestedToCapacityRatio: Forbidden: " in forbidden
    assert errors(source, before(behaviour)) == []


@pytest.mark.parametrize("kind", ["RequestedToCapacityRatio", "MostAllocated"])
def test_the_path_of_a_shape_before_the_ratio_was_bound(kind: str) -> None:
    (error,) = errors(strategy(kind, score=11), Minor(35))
    path = "scoringStrategy.shape[0].score"
    assert error == f'{_BUILDING_FIT}Fit": {path}: Invalid value: 11: not in valid range [0, 10]'


@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_the_strategy_always_needs_its_ratio(minor: Minor) -> None:
    """Without the behaviour kube-scheduler crashes."""
    source = with_args("NodeResourcesFit", {"scoringStrategy": {"type": "RequestedToCapacityRatio"}})
    assert "scoringStrategy.requestedToCapacityRatio: Required value" in errors(source, minor)[0]


def test_errors_of_weights_that_overflow() -> None:
    behaviour = Behaviour.OVERFLOW_ERRORS_NAME_THE_EXTENSION_POINT
    source = v1(profiles=[profile(multiPoint=enabled(TaintToleration=-5))])
    start = f"initializing profiles: creating profile for scheduler name {DEFAULT}: "
    text = "total score of Score plugins could overflow"
    assert errors(source, behaviour.since) == [f"{start}score plugins: {text}"]
    assert errors(source, before(behaviour)) == [f"{start}{text}"]


def node_affinity(**requirement: Any) -> dict[str, Any]:
    """NodeAffinity with a requirement added."""
    terms = [{"matchExpressions": [{"key": "a", **requirement}]}]
    selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return with_args("NodeAffinity", {"addedAffinity": selector})


def managing(*resources: str) -> dict[str, Any]:
    """An extender that manages resources."""
    return v1(extenders=[{"urlPrefix": "http://x", "managedResources": [{"name": name} for name in resources]}])


_DIFFERENT_QUEUE_SORT = v1(
    profiles=[profile("a", queueSort=enabled("PrioritySort")), profile("b", queueSort=enabled("X", disabled=("Y",)))]
)


@pytest.mark.parametrize(
    ("source", "former", "latter"),
    [
        (
            _DIFFERENT_QUEUE_SORT,
            'Invalid value: config.PluginSet{Enabled:[]config.Plugin{config.Plugin{Name:"X", Weight:0}}, '
            'Disabled:[]config.Plugin{config.Plugin{Name:"Y", Weight:0}}}: ',
            'Invalid value: {"enabled":[{"name":"X"}],"disabled":[{"name":"Y"}]}: ',
        ),
        (
            v1(profiles=[profile("a", queueSort=enabled("PrioritySort")), profile("b")]),
            "Invalid value: config.PluginSet{Enabled:[]config.Plugin(nil), Disabled:[]config.Plugin(nil)}: ",
            "Invalid value: {}: ",
        ),
        (
            with_args("VolumeBinding", {"shape": [{"utilization": 1, "score": 3}]}),
            "Invalid value: []config.UtilizationShapePoint{config.UtilizationShapePoint{Utilization:1, Score:3}}: ",
            'Invalid value: [{"utilization":1,"score":3}]: ',
        ),
        (
            with_args("VolumeBinding", {"shape": []}),
            "Invalid value: []config.UtilizationShapePoint{}: ",
            "Invalid value: []: ",
        ),
        (node_affinity(operator="In"), "Invalid value: []string(nil): ", "Invalid value: null: "),
        (
            node_affinity(operator="Exists", values=["b", "c"]),
            'Invalid value: []string{"b", "c"}: ',
            'Invalid value: ["b","c"]: ',
        ),
        (v1(leaderElection={"retryPeriod": "-1s"}), "Invalid value: -1s: ", 'Invalid value: "-1s": '),
        (managing("a/b/c"), "Invalid value: a/b/c: ", 'Invalid value: "a/b/c": '),
        (managing("cpu"), 'Invalid value: "cpu": ', 'Invalid value: "cpu": '),
        (v1(parallelism=-1), "Invalid value: -1: ", "Invalid value: -1: "),
    ],
)
def test_invalid_values_are_shown_in_go_syntax_before_they_were_json(
    source: dict[str, Any], former: str, latter: str
) -> None:
    behaviour = Behaviour.INVALID_VALUES_ARE_JSON
    assert former in errors(source, before(behaviour))[0]
    assert latter in errors(source, behaviour.since)[0]


def test_errors_repeated_their_field() -> None:
    behaviour = Behaviour.ERRORS_DO_NOT_REPEAT_THEIR_FIELD
    assert errors(_DIFFERENT_QUEUE_SORT, behaviour.since)[0].endswith("}]}: must be the same for all profiles")
    assert errors(_DIFFERENT_QUEUE_SORT, before(behaviour))[0].endswith(": queueSort must be the same for all profiles")
    shape = [{"utilization": 5, "score": 1}, {"utilization": 4, "score": 1}]
    scoring = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}
    source = with_args("NodeResourcesFit", {"scoringStrategy": scoring})
    assert errors(source, behaviour.since)[0].endswith(": 4: values must be sorted in increasing order")
    former = ": 4: utilization values must be sorted in increasing order"
    assert errors(source, before(behaviour))[0].endswith(former)


def test_names_of_resources_were_called_qualified_names() -> None:
    behaviour = Behaviour.NAMES_OF_RESOURCES_ARE_LABEL_KEYS
    assert "a valid label key must consist" in errors(managing("a/b/c"), behaviour.since)[0]
    assert "a qualified name must consist" in errors(managing("a/b/c"), before(behaviour))[0]
    long = managing("example.com/" + "x" * 64)
    assert errors(long, behaviour.since)[0].endswith("name part must be no more than 63 bytes")
    assert errors(long, before(behaviour))[0].endswith("name part must be no more than 63 characters")


def test_the_gate_and_the_default_of_the_shape_of_storage_capacity() -> None:
    behaviour, source = Behaviour.CAPACITY_TO_PROVISION_IS_SCORED, with_args("VolumeBinding", {"shape": []})
    assert errors(source, behaviour.since)[0].endswith("turn on the feature gate StorageCapacityScoring")
    assert errors(source, before(behaviour))[0].endswith("turn on the feature gate VolumeCapacityPriority")

    def default_shape(minor: Minor, gate: str) -> Any:
        configuration = config.default_configuration(config.FeatureGates({gate: True}, minor=minor))
        args = configuration.profiles[0].args["VolumeBinding"]
        assert isinstance(args, VolumeBindingArgs)
        return args.shape

    free = (UtilizationShapePoint(utilization=0, score=10), UtilizationShapePoint(utilization=100, score=0))
    used = (UtilizationShapePoint(utilization=0, score=0), UtilizationShapePoint(utilization=100, score=10))
    assert default_shape(behaviour.since, "StorageCapacityScoring") == free
    assert default_shape(before(behaviour), "VolumeCapacityPriority") == used


@pytest.mark.parametrize("plugin", ["EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"])
@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_the_volume_limits_of_former_versions_are_refused(plugin: str, minor: Minor) -> None:
    (error,) = errors(v1(profiles=[profile(filter=enabled(plugin))]), minor)
    assert error.startswith(f'profiles[0].plugins.filter.enabled[0]: Invalid value: "{plugin}": was invalid in version')


@pytest.mark.parametrize(
    ("behaviour", "plugins"),
    [
        (Behaviour.HAS_GANG_SCHEDULING, ["GangScheduling"]),
        (Behaviour.PLACEMENT_EXTENSION_POINTS, ["TopologyPlacementGenerator", "PodGroupPodsCount"]),
    ],
)
def test_plugins_do_not_exist_before_they_came(behaviour: Behaviour, plugins: list[str]) -> None:
    for plugin in plugins:
        source = v1(profiles=[profile(multiPoint=enabled(plugin))])
        assert errors(source, behaviour.since) == []
        (error,) = errors(source, before(behaviour))
        assert error.endswith(f'Plugin "{plugin}" does not exist')


def test_preemption_did_not_extend_pre_enqueue() -> None:
    behaviour, source = (
        Behaviour.PREEMPTION_EXTENDS_PRE_ENQUEUE,
        v1(profiles=[profile(preEnqueue=enabled("DefaultPreemption"))]),
    )
    assert errors(source, behaviour.since) == []
    (error,) = errors(source, before(behaviour))
    assert error.endswith('plugin "DefaultPreemption" does not extend PreEnqueuePlugin plugin')


def test_gangs_were_reserved() -> None:
    behaviour, source = Behaviour.POD_GROUPS_ARE_OBJECTS, v1(profiles=[profile(reserve=enabled("GangScheduling"))])
    assert errors(source, before(behaviour)) == []
    (error,) = errors(source, behaviour.since)
    assert error.endswith('plugin "GangScheduling" does not extend ReservePlugin plugin')
