"""The index of pods keeps its counts as pods change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kubestow.rules.workloads import COMPLETION_INDEX
from kubestow_devcluster.apiserver.storage.store import StoredObject, WatchEvent
from kubestow_devcluster.controllers.pod_index import PodIndexer

OWNERS = ("", "a-1", "a-2", "b-1")
changes = st.tuples(
    st.sampled_from(("p", "q", "r")),
    st.booleans(),
    st.sampled_from(OWNERS),
    st.sampled_from(("Pending", "Running", "Failed")),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("", "x")),
    st.sampled_from(("", "0", "1", "one")),
)


def event(
    name: str, deleted: bool, owner: str, phase: str, ready: bool, terminating: bool, label: str, completion_index: str
) -> WatchEvent:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if owner:
        reference = {"kind": "ReplicaSet", "name": owner[0], "uid": owner, "controller": True}
        metadata["ownerReferences"] = [reference]
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if label:
        metadata["labels"] = {"app": label}
        metadata["finalizers"] = ["example.com/one"]
    if completion_index:
        metadata["annotations"] = {COMPLETION_INDEX: completion_index}
    conditions = [{"type": "Ready", "status": "True"}] if ready else []
    pod = {"metadata": metadata, "spec": {}, "status": {"phase": phase, "conditions": conditions}}
    stored = StoredObject(f"ns/{name}", 1, msgspec.json.encode(pod), {})
    return WatchEvent("DELETED" if deleted else "MODIFIED", stored, None)


@given(st.lists(changes, max_size=30))
def test_the_counts_of_a_controller_equal_those_of_its_pods(history: list[tuple[Any, ...]]) -> None:
    index = PodIndexer()
    for change in history:
        index.update(event(*change))
    for uid in OWNERS[1:]:
        pods, counted = (
            index.controlled_by("ReplicaSet", f"ns/{uid[0]}", uid),
            index.of_controller("ReplicaSet", f"ns/{uid[0]}", uid),
        )
        active = [pod for pod in pods if pod.is_active]
        assert (len(counted), counted.active, counted.ready) == (
            len(pods),
            len(active),
            sum(pod.is_ready for pod in active),
        )
        assert counted.active_pods() == active
        assert counted.held() == [pod for pod in pods if not pod.is_active and pod.metadata.finalizers]
        assert counted.terminating() == [pod for pod in pods if pod.is_terminating and not pod.is_finished]
        former = {pod.name for pod in index.of_former_controllers("ReplicaSet", f"ns/{uid[0]}", uid)}
        all_of_name = {pod.name for pod in index.controlled_by("ReplicaSet", f"ns/{uid[0]}")}
        assert former == all_of_name - {pod.name for pod in pods}
        labels = Counter(frozenset(pod.metadata.labels.items()) for pod in pods)
        assert {frozenset(labels.items()) for labels, _ in counted.label_sets()} == set(labels)
        of_active = Counter(frozenset(pod.metadata.labels.items()) for pod in active)
        assert all(of_active[frozenset(one.items())] == count for one, count in counted.label_sets())
        for number in (0, 1):
            of_index = [pod for pod in pods if pod.metadata.annotations.get(COMPLETION_INDEX) == str(number)]
            assert sorted(pod.name for pod in counted.of_completion_index(number)) == sorted(
                pod.name for pod in of_index
            )
