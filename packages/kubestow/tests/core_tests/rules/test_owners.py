"""Owner references, generated names and hashes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.rules.owners import controller_reference, generated_name, generated_suffix, template_hash


def test_a_controller_blocks_the_deletion_of_its_owner() -> None:
    reference = controller_reference("apps/v1", "ReplicaSet", name="web", uid="u")
    assert reference == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "u",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_a_long_prefix_is_cut_at_its_end() -> None:
    assert generated_name("web-", "abcde") == "web-abcde"
    assert generated_name("w" * 60 + "-", "abcde") == "w" * 58 + "abcde"


@settings(deadline=None)
@given(st.text(max_size=10), st.sets(st.integers(0, 200_000), min_size=2, max_size=50))
def test_generated_suffixes_do_not_recur(seed: str, indexes: set[int]) -> None:
    assert len({generated_suffix(seed, index) for index in indexes}) == len(indexes)


def test_the_hash_of_a_template_depends_on_its_content_alone_and_avoids_those_taken() -> None:
    first = template_hash({"spec": {"a": 1, "b": 2}})
    assert template_hash({"spec": {"b": 2, "a": 1}}) == first
    assert template_hash({"spec": {"a": 2, "b": 2}}) != first
    second = template_hash({"spec": {"a": 1, "b": 2}}, {first})
    assert (len(first), len(second), second != first) == (10, 10, True)
