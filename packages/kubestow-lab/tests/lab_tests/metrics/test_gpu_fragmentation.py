"""Fragments of GPUs, counted by hand and as the plugin of kubestow-contrib scores them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubestow_contrib.fragmentation.typical_pods import TypicalPod, UsableGpus
from kubestow_lab.metrics.gpu_fragmentation import TypicalGpuPods, idle_gpus
from kubestow_lab.workloads.gpu import PodShape


def shape(cpu: int, gpus: int = 0, milli: int = 1000, models: tuple[str, ...] = ()) -> PodShape:
    return PodShape(cpu, 0, gpus, milli if gpus else 0, "BE", models)


def test_what_a_pod_cannot_use_is_a_fragment() -> None:
    idle = idle_gpus([2, 2, 1], [(0, (0,), 500), (0, (1,), 500), (1, (1,), 300)])
    assert idle.tolist() == [[500, 500], [1000, 700], [1000, 0]]
    whole = TypicalGpuPods.of([shape(1000, 1)])
    free_cpu = np.array([9000, 9000, 500])
    # No whole GPU; one of two; no CPU.
    assert whole.fragments(idle, free_cpu, ["A", "A", "A"]).tolist() == [1000, 700, 1000]
    share = TypicalGpuPods.of([shape(1000, 1, 500), shape(1000)])
    assert share.fragments(idle, free_cpu, ["A", "A", "A"]).tolist() == [500, 850, 1000]
    bound = TypicalGpuPods.of([shape(0, 1, 500, ("B",))])
    assert bound.fragments(idle, free_cpu, ["A", "B", "A"]).tolist() == [1000, 0, 1000]


def test_the_most_frequent_shapes_cover_the_share() -> None:
    typical = TypicalGpuPods.of([shape(1)] * 90 + [shape(2)] * 6 + [shape(3)] * 4)
    assert [(each.cpu_milli, share) for each, share in typical.shapes] == [(1, 90 / 96), (2, 6 / 96)]


_GPUS = st.one_of(
    st.tuples(st.just(1), st.sampled_from([100, 250, 500, 1000])), st.tuples(st.sampled_from([2, 4]), st.just(1000))
)
_SHAPES = st.one_of(
    st.builds(shape, st.integers(0, 8000)),
    st.builds(
        lambda cpu, gpus, models: shape(cpu, gpus[0], gpus[1], models),
        st.integers(0, 8000),
        _GPUS,
        st.sampled_from([(), ("A",), ("A", "B")]),
    ),
)


@given(
    st.lists(_SHAPES, min_size=1, max_size=6),
    st.lists(
        st.tuples(st.lists(st.integers(0, 1000), min_size=4, max_size=4), st.integers(0, 9000), st.sampled_from("ABC"))
    ),
)
def test_the_plugin_of_contrib_agrees(pods: list[PodShape], nodes: list[tuple[list[int], int, str]]) -> None:
    typical = TypicalGpuPods.of(pods, coverage=1.0)
    idle = np.array([each for each, _, _ in nodes], dtype=np.int64).reshape(len(nodes), 4)
    found = typical.fragments(idle, np.array([cpu for _, cpu, _ in nodes], dtype=np.int64), [m for _, _, m in nodes])
    usable = UsableGpus([TypicalPod(p.cpu_milli, p.gpu_milli or 1000, p.gpus, p.models) for p in pods])
    for fragments, (each, cpu, model) in zip(found, nodes, strict=True):
        kind = usable.kind_of_node(usable.model_class(model), cpu)
        np.testing.assert_allclose(fragments, sum(each) - usable.of_node(kind, each) / usable.total, atol=1e-6)
