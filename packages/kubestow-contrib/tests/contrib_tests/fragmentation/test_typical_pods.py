"""The tables of usable GPUs agree with the definition of fragmentation."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow_contrib.fragmentation.typical_pods import TypicalPod, UsableGpus, typical_pods

_MODELS = st.sampled_from(["T4", "G2", None])
_PODS = st.lists(
    st.one_of(
        st.builds(
            TypicalPod,
            cpu=st.integers(0, 20),
            gpus=st.just(1),
            gpu_milli=st.integers(1, 1000),
            models=st.sampled_from([(), ("T4",), ("T4", "G2")]),
            count=st.integers(1, 9),
        ),
        st.builds(TypicalPod, cpu=st.integers(0, 20), gpus=st.integers(0, 9), count=st.integers(1, 9)),
    ),
    min_size=1,
    max_size=6,
)
_IDLE = st.lists(st.sampled_from([0, 1, 300, 500, 999, 1000]), max_size=8)


def _fragmentation(pods: list[TypicalPod], model: str | None, cpu: int, idle: list[int]) -> Fraction:
    """The definition, pod by pod."""
    expected = Fraction()
    for pod in pods:
        fits = pod.cpu <= cpu and sum(amount >= pod.gpu_milli for amount in idle) >= pod.gpus
        usable = bool(pod.gpus) and (not pod.models or model in pod.models) and fits
        fragments = [amount for amount in idle if not usable or amount < pod.gpu_milli]
        expected += Fraction(pod.count * sum(fragments), sum(each.count for each in pods))
    return expected


@given(_PODS, _MODELS, st.integers(0, 25), _IDLE)
def test_the_rest_of_the_idle_amount_is_usable(
    pods: list[TypicalPod], model: str | None, cpu: int, idle: list[int]
) -> None:
    usable = UsableGpus(pods)
    model_class = np.array([usable.model_class(model)])
    kind = usable.node_kind(model_class, np.array([cpu]))
    each = usable.of_each(kind, np.array([idle], np.int64))
    whole = usable.of_whole(kind, np.array([idle.count(1000)]))
    left = Fraction(usable.total * sum(idle) - int(each.sum()) - int(whole.sum()), usable.total)
    assert left == _fragmentation(pods, model, cpu, idle)
    assert usable.kind_of_node(int(model_class[0]), cpu) == kind[0]
    assert usable.of_node(int(kind[0]), idle) == each.sum() + whole.sum()


def test_typical_pods_cover_most_pods() -> None:
    large, small, rare = TypicalPod(cpu=8, gpus=1), TypicalPod(cpu=4, gpus=1), TypicalPod(cpu=2)
    found = typical_pods([small, large, large, small, large, rare], coverage=0.8)
    assert found == [msgspec.structs.replace(large, count=3), msgspec.structs.replace(small, count=2)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cpu": -1}, "cpu and gpus must not be negative"),
        ({"cpu": 1, "count": 0}, "count must be at least 1"),
        ({"cpu": 1, "gpus": 2, "gpuMilli": 500}, "gpuMilli must be 1 to 1000, and 1000 for several GPUs"),
    ],
)
def test_invalid_typical_pods_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(fields, TypicalPod)
