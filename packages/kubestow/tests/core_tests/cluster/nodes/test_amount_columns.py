"""The columns of allocatable amounts: one repeated entry where all nodes have the same amount."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.cache import Cluster
from kubestow.testing import node

Step = tuple[str, int, int]

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.sampled_from(["put", "put", "remove"]), st.integers(0, 3), st.integers(1, 2)), max_size=20
)


@given(steps)
def test_amounts_are_those_of_the_nodes_after_every_change(steps: list[Step]) -> None:
    cluster = Cluster()
    cpus: dict[str, int] = {}
    for what, number, cpu in steps:
        name = f"n{number}"
        if what == "remove":
            if cpus.pop(name, None) is not None:
                cluster.remove_node(name)
        else:
            (cluster.update_node if name in cpus else cluster.add_node)(node(name, cpu=str(cpu)))
            cpus[name] = cpu
        nodes = cluster.all_nodes()
        amounts = nodes.allocatable("cpu")
        assert dict(zip(nodes.names, amounts.tolist(), strict=True)) == {n: 1000 * c for n, c in cpus.items()}
        assert not amounts.flags.writeable
        if cpus:
            assert (amounts.strides == (0,)) == (len(set(cpus.values())) == 1)


def test_a_resource_that_no_node_has_is_zero_everywhere() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    assert cluster.all_nodes().allocatable("example.com/gpu").tolist() == [0]
