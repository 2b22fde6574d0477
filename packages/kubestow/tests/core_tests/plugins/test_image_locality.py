"""ImageLocality: how much of a pod's images a node has, by their size and how far they have spread."""

from __future__ import annotations

from kubestow.testing import PluginHarness, node, pod

MIB = 2**20


def scores(images: dict[str, int], *, nodes_with: int = 1, of: int = 4, containers: int = 1) -> dict[str, int]:
    """The scores of nodes of which some have images of these sizes, for a pod whose containers share one image."""
    made = [node(f"n{number}", images=images if number < nodes_with else {}) for number in range(of)]
    spec = {"containers": [{"name": f"c{number}", "image": "app"} for number in range(containers)]}
    return PluginHarness(made).scores(pod("p", spec=spec), "ImageLocality")


def test_an_image_counts_by_the_share_of_the_nodes_that_have_it() -> None:
    # A quarter of 2000 MiB, between the 23 MiB that count for nothing and the 1000 MiB that count for all.
    one = scores({"app:latest": 2000 * MIB})
    assert one == {"n0": 100 * (500 - 23) // (1000 - 23), "n1": 0, "n2": 0, "n3": 0}
    assert scores({"app:latest": 2000 * MIB}, nodes_with=2)["n0"] == 100


def test_the_more_containers_the_more_is_asked_of_a_node() -> None:
    assert scores({"app:latest": 1000 * MIB}, of=1, containers=1) == {"n0": 100}
    three = scores({"app:latest": 500 * MIB}, of=1, containers=3)  # the image counts for each of them
    assert three == {"n0": 100 * (1500 - 23) // (3000 - 23)}


def test_small_images_count_for_nothing() -> None:
    assert scores({"app:latest": 23 * MIB}, of=1) == {"n0": 0}
