"""PowerAware and CarbonAware: what a pod adds to the power of a node, and to its emissions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contrib_tests.fragmentation.gpu_objects import INDEX, MODEL, TYPICAL, gpu_node, share, whole
from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import Nodes
from kubestow.errors import ConfigurationError, InputError
from kubestow.testing import PluginHarness, SchedulerHarness, check_plugin, in_virtual_time, node, pod
from kubestow_contrib.energy import CarbonAware, CpuPower, GpuPower, Granularity, PowerArgs, PowerAware
from kubestow_contrib.fragmentation import FragmentationArgs, FragmentationGradientDescent

CPU = "kubestow.dev/cpu-model"
ZONE = "topology.kubernetes.io/zone"
CPUS = {"": CpuPower(15, 120, 16), "big": CpuPower(20, 270, 32)}
GPUS = {"": GpuPower(0, 0), "T4": GpuPower(10, 70), "G2": GpuPower(30, 150)}
ARGS = {
    "cpus": {"": {"idle": 15, "max": 120, "cores": 16}, "big": {"idle": 20, "max": 270, "cores": 32}},
    "gpus": {"": {"idle": 0, "max": 0}, "T4": {"idle": 10, "max": 70}, "G2": {"idle": 30, "max": 150}},
}


def power_by_definition(made: Node, pods: Sequence[Pod], args: PowerArgs) -> float:
    """The power of a node in watts, pod by pod and GPU by GPU."""
    millicores = _millicores(made.status.allocatable["cpu"])
    requested = sum(_millicores(each.spec.containers[0].resources.requests["cpu"]) for each in pods)
    cpu = args.cpus.get(made.metadata.labels.get(CPU, ""), args.cpus[""])
    gpu = args.gpus.get(made.metadata.labels.get(MODEL, ""), args.gpus[""])
    gpus = [0] * int(made.status.allocatable.get("nvidia.com/gpu", "0"))
    for each in pods:
        requests = each.spec.containers[0].resources.requests
        milli, count = int(requests.get("kubestow.dev/gpu-milli", "0")), int(requests.get("nvidia.com/gpu", "0"))
        for device in filter(None, each.metadata.annotations.get(INDEX, "").split("-")):
            gpus[int(device)] += 1000 if count else milli
    if args.empty_nodes_off and not pods:
        return 0.0
    cores = math.ceil(millicores / 1000 / 2)
    packages = math.ceil(cores / cpu.cores)
    if args.granularity is Granularity.PROPORTIONAL:
        active, busy = packages * requested / millicores, sum(gpus) / 1000
    else:
        active = math.ceil(math.ceil(requested / 1000 / 2) / cpu.cores)
        busy = sum(1 for used in gpus if used)
    watts = (packages - active) * cpu.idle + active * cpu.max
    return watts + (len(gpus) - busy) * gpu.idle + busy * gpu.max


def _millicores(amount: str | int | float) -> int:
    text = str(amount)
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)


@pytest.mark.parametrize("granularity", list(Granularity))
@pytest.mark.parametrize("empty_nodes_off", [False, True])
def test_power_and_its_rise_are_those_of_the_definition(granularity: Granularity, empty_nodes_off: bool) -> None:
    random = Random(f"{granularity}{empty_nodes_off}")
    args = PowerArgs(cpus=CPUS, gpus=GPUS, granularity=granularity, empty_nodes_off=empty_nodes_off)
    for _ in range(25):
        nodes, placed = _cluster(random)
        harness = PluginHarness(nodes, [each for pods in placed.values() for each in pods], plugins=[PowerAware])
        plugin = PowerAware(args, harness)
        everything = harness.cluster.all_nodes()
        names = everything.names
        found = plugin.models.power(everything, plugin.devices).tolist()
        by_name = {each.metadata.name: each for each in nodes}
        assert found == pytest.approx([power_by_definition(by_name[name], placed[name], args) for name in names])
        for arriving in (pod("cpu", cpu=f"{random.randrange(1, 20_000)}m"), share("share", 300), whole("whole", 2)):
            info = harness.info(arriving)
            rises = plugin.rise(info, everything).tolist()
            for name, rise in zip(names, rises, strict=True):
                expected = _least_rise(by_name[name], placed[name], arriving, args)
                assert expected is None or rise == pytest.approx(expected)


def _cluster(random: Random) -> tuple[list[Node], dict[str, list[Pod]]]:
    nodes, placed = [], {}
    for number in range(4):
        gpus = random.choice((0, 1, 2, 4))
        labels = {CPU: random.choice(("big", "unknown"))}
        if gpus:
            labels[MODEL] = random.choice(("T4", "G2"))
        amounts = {"nvidia.com/gpu": str(gpus), "kubestow.dev/gpu-milli": str(1000 * gpus)} if gpus else {}
        made = node(f"n{number}", cpu=str(random.choice((3, 31, 64, 96))), allocatable=amounts, labels=labels)
        nodes.append(made)
        placed[f"n{number}"] = [
            share(f"p{number}-{device}", random.choice((200, 600)), cpu="700m", node=f"n{number}", devices=str(device))
            for device in range(gpus)
            if random.random() < 0.5
        ]
    return nodes, placed


def _least_rise(made: Node, pods: Sequence[Pod], arriving: Pod, args: PowerArgs) -> float | None:
    """The least rise over all choices of GPUs with room; None if there is none."""
    requests = arriving.spec.containers[0].resources.requests
    count = int(requests.get("nvidia.com/gpu", "0"))
    milli = 1000 if count else int(requests.get("kubestow.dev/gpu-milli", "0"))
    used = [0] * int(made.status.allocatable.get("nvidia.com/gpu", "0"))
    cpu = _millicores(requests["cpu"])
    for each in pods:
        cpu += _millicores(each.spec.containers[0].resources.requests["cpu"])
        used[int(each.metadata.annotations[INDEX])] += int(
            each.spec.containers[0].resources.requests["kubestow.dev/gpu-milli"]
        )
    if cpu > _millicores(made.status.allocatable["cpu"]):
        return None
    room = [device for device, amount in enumerate(used) if amount + milli <= 1000]
    if not milli:
        choices = [""]
    elif count:
        choices = ["-".join(map(str, room[:count]))] if len(room) >= count else []
    else:
        choices = [str(device) for device in room]
    before = power_by_definition(made, pods, args)
    rises = []
    for devices in choices:
        chosen = whole("x", count, devices=devices) if count else share("x", milli, devices=devices)
        chosen.spec.containers[0].resources.requests["cpu"] = requests["cpu"]
        if not milli:
            chosen = pod("x", cpu=str(requests["cpu"]))
        rises.append(power_by_definition(made, [*pods, chosen], args) - before)
    return min(rises, default=None)


def test_the_least_increase_is_preferred() -> None:
    placed = [share("a", 300, node="used", devices="1"), pod("b", cpu="1", node="other")]
    harness = _harness(PowerAware, ARGS, [gpu_node("used", 2, model="G2"), gpu_node("other", 2)], placed)
    assert harness.decide(share("p", 500)).node_name == "used"  # its GPU draws its maximum already
    assert harness.decide(whole("p", 1)).node_name == "other"  # a T4 draws less than a G2
    assert harness.scores(whole("p", 1), "PowerAware") == {"used": 0, "other": 100}


def test_emissions_count_by_zone(tmp_path: Path) -> None:
    nodes = [gpu_node("coal", 2), gpu_node("wind", 2, model="G2")]
    for each, zone in zip(nodes, ("coal", "wind"), strict=True):
        each.metadata.labels[ZONE] = zone
    (tmp_path / "intensity.yaml").write_text("{coal: 800, wind: 20, '': 400}\n")
    for given in ({"intensities": {"coal": 800, "wind": 20, "": 400}}, {"intensityFile": f"{tmp_path}/intensity.yaml"}):
        harness = _harness(CarbonAware, ARGS | given, nodes)
        assert harness.decide(whole("p", 1)).node_name == "wind"
        assert harness.scores(whole("p", 1), "CarbonAware") == {"coal": 0, "wind": 100}


POLICIES: list[tuple[type[PowerAware], Mapping[str, Any]]] = [
    (PowerAware, ARGS | {"emptyNodesOff": True}),
    (PowerAware, ARGS | {"granularity": "Proportional"}),
    (CarbonAware, ARGS | {"intensities": {"a": 100.0, "": 300.0}}),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy[0].name)
def test_the_contract_is_kept(policy: tuple[type[PowerAware], Mapping[str, Any]]) -> None:
    nodes = [gpu_node("two", 2), gpu_node("eight", 8, model="G2"), gpu_node("none", 0)]
    pods = [share("share", 300), whole("whole", 2), pod("cpu", cpu="2"), share("placed", 700, node="two", devices="1")]
    check_plugin(policy[0], args=policy[1], nodes=nodes, pods=pods, events=60)


def test_plugins_of_one_cluster_know_the_same_gpus() -> None:
    """Beside another plugin that reserves them, before any annotation is written."""
    harness = PluginHarness([gpu_node("two", 2)], [], plugins=[PowerAware])
    power = PowerAware(PowerArgs(cpus=CPUS, gpus=GPUS), harness)
    other = FragmentationGradientDescent(FragmentationArgs(typical_pods=TYPICAL), harness)
    assert power.devices is other.devices
    assert PowerAware(PowerArgs(cpus=CPUS, gpu_resource="other/gpu"), harness).devices is not power.devices


def test_a_share_goes_to_a_gpu_in_use() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name, milli in (("first", 400), ("second", 700), ("third", 500)):
            harness.cluster.put(share(name, milli))
            await harness.settle()
        devices = {each.metadata.name: each.metadata.annotations[INDEX] for each in harness.cluster.pods()}
        assert devices == {"first": "0", "second": "1", "third": "0"}

    in_virtual_time(scenario, gpu_node("four", 4), plugins=[PowerAware], profiles=[_profile(PowerAware, ARGS)])


@pytest.mark.parametrize(
    ("kind", "args", "problem"),
    [
        (PowerAware, {"cpus": {"a": {"idle": 1, "max": 2, "cores": 4}}}, 'cpus needs the model ""'),
        (PowerAware, {"cpus": {"": {"idle": 3, "max": 2, "cores": 4}}}, "expected 0 <= idle <= max"),
        (PowerAware, {"cpus": {"": {"idle": 1, "max": 2, "cores": 0}}}, "cores must be at least 1"),
        (PowerAware, ARGS | {"gpus": {"T4": {"idle": 1, "max": 2}}}, 'gpus needs the model ""'),
        (PowerAware, ARGS | {"threadsPerCore": 0}, "threadsPerCore must be at least 1"),
        (CarbonAware, ARGS, "expected either intensities or intensityFile"),
        (CarbonAware, ARGS | {"intensities": {"a": 1}}, 'intensities needs the zone ""'),
        (CarbonAware, ARGS | {"intensities": {"": -1}}, "intensities of zone '' is -1.0, expected at least 0"),
    ],
)
def test_bad_args_are_rejected(kind: type[PowerAware], args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        _harness(kind, args, [])


@pytest.mark.parametrize("content", ["[1]", "{a: x}", "{a: 1}", "{}"])
def test_a_bad_file_of_intensities_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "intensity.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=str(path)):
        _harness(CarbonAware, ARGS | {"intensityFile": str(path)}, [])


def test_a_file_of_intensities_that_changes_takes_effect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The wind drops, then the file is broken for a while: the last good intensities count."""
    path = tmp_path / "intensity.yaml"
    path.write_text("{coal: 800, wind: 20, '': 400}\n")
    nodes = [gpu_node("coal", 8), gpu_node("wind", 8)]
    for each in nodes:
        each.metadata.labels[ZONE] = each.metadata.name

    async def scenario(harness: SchedulerHarness) -> None:
        async def placed_on(name: str) -> str:
            harness.cluster.put(whole(name, 1))
            await harness.settle()
            return {each.metadata.name: each.spec.node_name for each in harness.cluster.pods()}[name]

        assert await placed_on("a") == "wind"
        path.write_text("{coal: 10, wind: 500, '': 400}\n")
        assert await placed_on("b") == "wind"  # within the period
        await harness.advance(61)
        assert await placed_on("c") == "coal"
        path.write_text("{coal: none}\n")
        await harness.advance(130)
        assert await placed_on("d") == "coal"
        path.write_text("{coal: 900, wind: 500, '': 400}\n")
        await harness.advance(61)
        assert await placed_on("e") == "wind"

    profiles = [_profile(CarbonAware, ARGS | {"intensityFile": str(path)})]
    in_virtual_time(scenario, *nodes, plugins=[CarbonAware], profiles=profiles)
    [record] = [record for record in caplog.records if "intensit" in record.getMessage()]
    assert str(path) in record.getMessage()


def _profile(kind: type[PowerAware], args: Mapping[str, Any]) -> dict[str, Any]:
    profile = profile_of(kind.name, args)
    profile["plugins"]["score"] = {"disabled": [{"name": "*"}], "enabled": [{"name": kind.name}]}
    return {"schedulerName": "default-scheduler", **profile}


def _harness(
    kind: type[PowerAware], args: Mapping[str, Any], nodes: Sequence[Node], pods: Sequence[Pod] = ()
) -> PluginHarness:
    return PluginHarness(list(nodes), list(pods), profile=_profile(kind, args), plugins=[kind])


def test_no_node_has_no_power() -> None:
    harness = PluginHarness([], [], plugins=[PowerAware])
    plugin = PowerAware(PowerArgs(cpus=CPUS), harness)
    nothing: Nodes = harness.cluster.all_nodes()
    assert plugin.models.power(nothing, plugin.devices).tolist() == []
