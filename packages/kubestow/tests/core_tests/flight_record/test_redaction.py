"""Redaction: what a record keeps of an object."""

from __future__ import annotations

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.storage import SELECTED_NODE
from kubestow.flight_record.segment import DIGEST, Redaction


def annotated(**annotations: str) -> Node:
    return convert(Node, {"metadata": {"name": "node", "annotations": annotations}})


def test_an_object_without_annotations_is_kept_as_it_is() -> None:
    obj = convert(Pod, {"metadata": {"name": "pod", "labels": {"app": "web"}}})
    assert Redaction().redacted(obj) is obj


def test_annotations_are_left_out_but_their_changes_are_seen() -> None:
    redaction = Redaction()
    one, same, other = (redaction.redacted(annotated(a="secret", b=value)) for value in ("1", "1", "2"))
    assert one == same != other
    assert one.metadata.annotations.keys() == {DIGEST}
    assert "secret" not in str(one)


def test_annotations_that_scheduling_reads_are_kept() -> None:
    obj = convert(Node, {"metadata": {"name": "node", "annotations": {SELECTED_NODE: "node-1", "a": "secret"}}})
    kept = Redaction().redacted(obj).metadata.annotations
    assert kept[SELECTED_NODE] == "node-1"
    assert kept.keys() == {SELECTED_NODE, DIGEST}


def test_equal_annotations_of_two_records_have_different_digests() -> None:
    one, other = (Redaction().redacted(annotated(a="secret")).metadata.annotations for _ in range(2))
    assert one != other
