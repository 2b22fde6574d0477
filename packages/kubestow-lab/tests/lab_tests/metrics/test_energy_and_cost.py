"""Integrals over time are exact: they equal sums over short steps, and what can be counted by hand."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from core_tests.engine.input.manifests import arrivals, cluster, node, pod
from kubestow.errors import InputError
from kubestow_lab.metrics.energy_and_cost import (
    CarbonIntensities,
    NodePower,
    NodePowers,
    NodePrices,
    NodeUsage,
    mean_between,
)
from kubestow_lab.metrics.run_metrics import metrics_of
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from lab_tests.metrics.test_run_metrics import Object, job

KIND = "kind"
POWERS = NodePowers(KIND, {"x": NodePower(100, 200), "y": NodePower(50, 350, sleeps=True)})
PRICES = NodePrices(KIND, {"x": 1.0, "y": 10.0})


def usage(folder: Path, *pods: Object, nodes: int = 1, placed: tuple[Object, ...] = ()) -> NodeUsage:
    """Nodes a, c, … are of kind x, nodes b, d, … of kind y; two cores each."""
    named = (node(chr(97 + i), cpu="2", labels={KIND: "xy"[i % 2]}) for i in range(nodes))
    within = cluster(folder, *named, *placed)
    found = arrivals(folder, *pods, within=within)
    options = SimulationOptions(attempt_seconds=0.0, ties="name")
    return NodeUsage(within, found, Simulation(within, found, options=options).run())


def test_energy_of_one_pod_on_one_node(tmp_path: Path) -> None:
    found = usage(tmp_path, job("a", seconds=3600, cpu="1"))
    values = found.metrics(powers=POWERS, prices=PRICES)
    assert values["energy"] == pytest.approx(0.150, rel=1e-3)  # half busy for an hour
    assert values["meanPower"] == pytest.approx(150, rel=1e-3)
    assert values["power"] == 100  # idle at the end
    assert values["totalCost"] == pytest.approx(1.0, rel=1e-3)
    assert values["cost"] == 0
    assert values["finishTimeFairness"] == pytest.approx(1.0, rel=1e-3)


def test_emissions_are_power_times_intensity(tmp_path: Path) -> None:
    found = usage(tmp_path, job("a", seconds=3600, cpu="1"), nodes=2)  # a runs the pod, b sleeps
    values = found.metrics(powers=POWERS, intensities=CarbonIntensities({"x": 400.0, "y": 900.0}, KIND))
    assert values["emissions"] == pytest.approx(0.150 * 0.4, rel=1e-3)
    assert values["emissionRate"] == pytest.approx(0.1 * 0.4)
    assert "emissions" not in found.metrics(intensities=CarbonIntensities({"x": 400.0}, KIND))
    with pytest.raises(InputError, match=r"carbon.values: no carbon intensity for node b, which has the label kind=y"):
        found.metrics(powers=POWERS, intensities=CarbonIntensities({"x": 400.0}, KIND))


def test_a_node_that_sleeps_has_no_power_without_pods(tmp_path: Path) -> None:
    powers = NodePowers(KIND, {"x": NodePower(100, 200), "y": NodePower(50, 350, sleeps=True)})
    _, watts = usage(tmp_path, pod("a", cpu="2"), nodes=2).power_over_time(powers)
    assert watts[-1] in (200, 100 + 350)
    assert watts[0] in (100, 200, 450)


def test_pods_that_ran_before_count_from_the_start(tmp_path: Path) -> None:
    values = usage(tmp_path, pod("new", cpu="1"), placed=(pod("old", cpu="1", nodeName="a"),)).metrics(powers=POWERS)
    assert values["power"] == 200


def test_two_namespaces_share_a_node_fairly(tmp_path: Path) -> None:
    pods = [job(f"{name}{i}", seconds=100, cpu="1", namespace=name) for i in range(4) for name in ("p", "q")]
    values = usage(tmp_path, *pods).metrics()
    assert 0.8 <= values["finishTimeFairness"] <= 1.05  # 400 s in the shared cluster, 400 s on half of it
    assert "energy" not in values


def test_means_of_a_run_are_exact_however_few_samples_it_has(tmp_path: Path) -> None:
    within = cluster(tmp_path, *(node(name, cpu="2") for name in "ab"), pod("old", cpu="1", nodeName="a"))
    pods = [job(f"p{i}", seconds=10 + 40 * (i % 5) ** 3, cpu=f"{1 + i % 2}") for i in range(20)]
    found = arrivals(tmp_path, *pods, within=within)
    result = Simulation(within, found, options=SimulationOptions(samples=2)).run()
    values, end = metrics_of(result), result.timeline[-1].time
    times, shares = NodeUsage(within, found, result).requested_over_time("cpu")
    assert values["meanUtilisation.cpu"] == pytest.approx(mean_between(times, shares, 0.0, end))
    waits = sum((outcome.bound or 0.0) - outcome.arrived for outcome in result.outcomes)
    assert values["meanPending"] == pytest.approx(waits / end)


def test_integrals_equal_sums_over_steps(tmp_path: Path) -> None:
    random = Random(3)
    pods = []
    for i in range(40):
        pods.append(job(f"p{i}", seconds=random.randrange(5, 60), cpu=f"{random.randrange(1, 8) * 200}m"))
        pods[-1]["metadata"]["annotations"]["kubestow.dev/arrival"] = f"{random.randrange(90)}s"
    found = usage(tmp_path, *pods, nodes=4)
    times, watts = found.power_over_time(POWERS)
    values = found.metrics(powers=POWERS)
    outcomes, requests = found._result.outcomes, found._requests
    end = found._result.timeline[-1].time
    steps = (np.arange(20_000) + 0.5) * end / 20_000
    total = np.zeros(len(steps))
    for name in "abcd":
        model = POWERS.values["xy"["abcd".index(name) % 2]]
        cpu = np.zeros(len(steps))
        for outcome in outcomes:
            assert outcome.bound is not None
            assert outcome.ended is not None
            if outcome.node == name:
                cpu += requests[outcome.key]["cpu"] * ((steps >= outcome.bound) & (steps < outcome.ended))
        busy = model.idle + (model.busy - model.idle) * cpu / 2000
        total += np.where((cpu == 0) & model.sleeps, 0.0, busy)
    np.testing.assert_allclose(watts[np.searchsorted(times, steps, side="right") - 1], total, rtol=1e-9)
    assert values["energy"] == pytest.approx(total.mean() * end / 3.6e6, rel=1e-3)


def test_a_node_without_a_price_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        usage(tmp_path, pod("a")).metrics(prices=NodePrices(KIND, {"y": 1.0}), subject="study.yaml")
    assert str(raised.value) == "study.yaml: prices.values: no price for node a, which has the label kind=x"
