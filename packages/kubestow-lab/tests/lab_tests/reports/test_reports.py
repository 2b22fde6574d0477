"""Reports are one page each, load nothing, show what the results hold, and execute nothing from the input."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.engine.input.manifests import arrivals, cluster, node, pod, workload
from kubestow.engine.explanation.explain import explain
from kubestow.engine.explanation.explanation_report import explanation_report
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.reports.elements import element
from kubestow.reports.page import table
from kubestow_lab.comparison.comparison import compare
from kubestow_lab.reports import MOST_PODS, comparison_report, pods_data, simulation_report
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulation import Simulation
from lab_tests.comparison.test_comparison import document
from lab_tests.comparison.test_pods import PENDING, outcome
from lab_tests.reports.pages import Page, embedded_data

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;`${alert(3)}\u2028"
ZONE = "topology.kubernetes.io/zone"


def names(name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and pods with ``name`` wherever a report shows something from the input."""
    full = node(f"full {name}", cpu="1", labels={ZONE: name})
    full["status"]["allocatable"][f"example.com/{name}"] = "4"
    small = node("small", cpu="500m")
    small["spec"]["taints"] = [{"key": name, "value": name, "effect": "NoSchedule"}]
    evicted = pod(f"evicted {name}", cpu="1")
    evicted["spec"] |= {"nodeName": f"full {name}", "schedulerName": "default-scheduler", "priority": 0}
    urgent = pod(f"urgent {name}", cpu="900m", priority=1000)
    urgent["metadata"]["labels"] = {"app": name}
    tall = workload("Deployment", f"tall {name}", replicas=2, cpu="9")
    return [full, small, evicted], [urgent, tall]


def inputs(folder: Path, name: str) -> tuple[ClusterObjects, Arrivals]:
    objects, pods = names(name)
    within = cluster(folder, *objects)
    return within, arrivals(folder, *pods, within=within)


def simulated(folder: Path, name: str) -> str:
    simulation = Simulation(*inputs(folder, name))
    return simulation_report(simulation.run(), simulation)


def compared(folder: Path, name: str) -> str:
    other = document("MostAllocated") | {"profiles": [{"schedulerName": f"other {name}"}]}
    found = compare(
        *inputs(folder, name),
        baseline=SchedulerOptions(),
        candidate=SchedulerOptions(other),
        names=(f"baseline {name}", f"candidate {name}"),
    )
    return comparison_report(found, found.check(["pending > baseline"]))


def explained(folder: Path, name: str) -> str:
    within, found = inputs(folder, name.replace("/", ""))  # it would end the namespace
    within.pods += [arrival.pod for arrival in found.pods]
    tall = next(a.pod.metadata for a in found.pods if a.pod.metadata.name.startswith("tall"))
    return explanation_report(explain(within, f"{tall.namespace}/{tall.name}"))


REPORTS = [simulated, compared, explained]


@pytest.mark.parametrize("report", REPORTS)
def test_nothing_from_the_input_becomes_markup_or_script(report: Callable[..., str], tmp_path: Path) -> None:
    hostile, harmless = (Page(report(tmp_path, name)) for name in (HOSTILE, "harmless"))
    assert hostile.elements != []
    assert hostile.tags == harmless.tags
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in harmless.elements]
    for (_, found), (_, expected) in zip(hostile.elements, harmless.elements, strict=True):
        assert found.keys() == expected.keys()
    assert hostile.scripts[1:] == harmless.scripts[1:]  # the first one is the data
    assert "alert(1)" in hostile.text


@pytest.mark.parametrize("report", REPORTS)
def test_a_page_loads_nothing_and_runs_its_own_script_only(report: Callable[..., str], tmp_path: Path) -> None:
    text = report(tmp_path, "web")
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form", "a"} & page.tags
    for tag, attributes in page.elements:
        assert not {"src", "href", "style"} & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    [policy] = [a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert "http" not in content.replace("http://www.w3.org/2000/svg", "")  # a name, never loaded
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", page.scripts[1])


def test_a_simulation_report_has_the_result(tmp_path: Path) -> None:
    simulation = Simulation(*inputs(tmp_path, "web"))
    result = simulation.run()
    text = simulation_report(result, simulation)
    page, data = Page(text), embedded_data(text)
    assert "1 of 2" in page.text  # the third was preempted, the fourth is its replacement: pending, too
    assert "2 pods ReplicaSet/tall web-" in page.text
    assert "The decision about default/tall web-" in page.text
    assert "NodeResourcesFit: Insufficient cpu" in page.text
    assert "1 preemption evicted 1 pod." in page.text
    assert "default/urgent web" in page.text
    [preemption] = result.as_json()["preemptions"]
    assert preemption | {"time": 0} == {
        "time": 0,
        "pod": "default/urgent web",
        "priority": 1000,
        "node": "full web",
        "victims": 1,
    }
    [timeline] = data["timelines"]
    assert timeline["time"] == [round(sample.time, 3) for sample in result.timeline]
    assert timeline["utilisation"]["cpu"][-1] == pytest.approx(result.utilisation["cpu"], abs=1e-4)
    assert timeline["fragmentation"]["cpu"][-1] == pytest.approx(result.fragmentation["cpu"], abs=1e-4)
    assert timeline["counts"]["pending"] == [sample.pending for sample in result.timeline]
    [nodes] = data["clusters"]
    assert nodes["names"] == ["full web", "small"]
    assert nodes["zones"] == ["web", ""]
    assert nodes["requested"]["cpu"] == [900, 0]
    assert [nodes["capacities"][kind]["cpu"] for kind in nodes["capacity"]] == [1000, 500]
    pods = data["pods"]
    assert sorted(pods["state"]) == ["Pending", "Pending", "Preempted", "Running"]
    running = pods["state"].index("Running")
    assert (pods["names"][running], pods["nodes"][pods["node"][running]]) == ("default/urgent web", "full web")


def test_a_report_without_the_simulation_has_no_decisions(tmp_path: Path) -> None:
    result = Simulation(*inputs(tmp_path, "web")).run()
    assert "The decision about" not in simulation_report(result)


def test_a_report_also_has_the_nodes_when_they_had_most_pods(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="4"))
    brief = [pod(name, cpu="1") for name in ("p", "q", "r")]
    for late, each in enumerate(brief):
        each["metadata"]["annotations"] = {"kubestow.dev/arrival": f"{late}m", "kubestow.dev/duration": "2m30s"}
    result = Simulation(within, arrivals(tmp_path, *brief, within=within)).run()
    assert result.busiest is not None
    assert 120 <= result.busiest.time < 150
    assert [(state.pods, state.requested["cpu"]) for state in result.busiest.nodes] == [(3, 3000)]
    busiest, end = embedded_data(simulation_report(result))["clusters"]
    assert (busiest["requested"]["cpu"], end["requested"]["cpu"]) == ([3000], [0])
    staying = Simulation(within, arrivals(tmp_path, pod("s"), within=within)).run()
    assert staying.busiest is None


def test_a_comparison_report_has_both_sides(tmp_path: Path) -> None:
    text = compared(tmp_path, "web")
    page, data = Page(text), embedded_data(text)
    assert "baseline web (baseline) and candidate web (candidate)" in page.text
    assert "pending > baseline" in page.text and "crossed" in page.text
    assert "no profile has the scheduler name default-scheduler" in page.text
    assert [cluster["name"] for cluster in data["clusters"]] == ["baseline at the end", "candidate at the end"]
    assert "lost" in data["pods"]["change"]


def test_an_explanation_report_has_every_node(tmp_path: Path) -> None:
    text = explained(tmp_path, "web")
    page, data = Page(text), embedded_data(text)["decisions"]
    assert "fits on 0 of 2 nodes" in page.text
    assert "The pod would fit with one of these changes" in page.text
    assert sorted(data["rejected"]) == ["full web", "small"]
    assert any("TaintToleration" in reason for reason in data["reasons"])
    within = cluster(tmp_path, node("a", cpu="1"), node("b"), pod("p", cpu="2"))
    fitting = embedded_data(explanation_report(explain(within, "default/p")))["decisions"]
    assert (fitting["nodes"], fitting["rejected"]) == (["b"], ["a"])
    assert sum(fitting["scores"][0]) == fitting["totals"][0]
    assert len(fitting["plugins"]) == len(fitting["scores"][0])


def test_a_large_report_keeps_the_pods_that_did_not_run() -> None:
    outcomes = [outcome(f"p{i}") for i in range(MOST_PODS)] + [outcome("waiting", PENDING)]
    data = pods_data(outcomes)
    assert (data["leftOut"], data["names"][0], len(data["names"])) == (1, "default/waiting", MOST_PODS)


@given(st.text())
def test_text_is_escaped_wherever_it_is(text: str) -> None:
    page = Page(element("p", text, title=text).markup + table((text,), [(text,)], caption=text).markup)
    assert [tag for tag, _ in page.elements] == ["p", "div", "table", "thead", "tr", "th", "tbody", "tr", "td"]
    assert element("p", element("b", "bold")).markup == "<p><b>bold</b></p>"


def test_elements_are_the_same_as_data() -> None:
    assert element("p", "a\u202e<", element("b", "c"), class_="note").data == [
        "p",
        {"class": "note"},
        "a\ufffd<",
        ["b", {}, "c"],
    ]


def test_text_cannot_change_the_direction_of_the_text_around_it() -> None:
    assert element("p", "a\u202eb\x00c").markup == "<p>a\ufffdb\ufffdc</p>"
