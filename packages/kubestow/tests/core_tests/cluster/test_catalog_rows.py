"""Which rows of the node table the events of custom resources concern."""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.custom import CustomObject
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.journal import EVERY_ROW
from kubestow.testing import node


class Report(CustomObject, frozen=True):
    """An object about the node of its name."""

    resource: ClassVar[str] = "reports.v1.example.com"
    is_about_node: ClassVar[bool] = True


class Setting(CustomObject, frozen=True):
    """An object about anything."""

    resource: ClassVar[str] = "settings.v1.example.com"


def rows_changed_by(kind: type[CustomObject], name: str) -> list[int]:
    cluster = Cluster()
    for each in ("a", "b"):
        cluster.add_node(node(each))
    position = cluster.journal.position
    cluster.catalog(kind).put(kind(metadata=ObjectMeta(name=name)))
    cluster.catalog(kind).remove("", name)
    changes = cluster.journal.since(position)
    assert changes is not None
    return list(changes.rows)


def test_an_object_about_a_node_changes_the_row_of_the_node() -> None:
    assert rows_changed_by(Report, "b") == [1, 1]


def test_an_object_about_an_unknown_node_or_about_anything_changes_every_row() -> None:
    assert rows_changed_by(Report, "c") == [EVERY_ROW, EVERY_ROW]
    assert rows_changed_by(Setting, "b") == [EVERY_ROW, EVERY_ROW]
