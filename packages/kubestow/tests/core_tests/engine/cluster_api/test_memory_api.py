"""The API server in memory: versions, preconditions, and what subscribers get."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.errors import APIError
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing.builders import node, pod


def _reference(of: Pod, **changes: str) -> ObjectReference:
    fields = {"namespace": of.metadata.namespace, "name": of.metadata.name, "uid": of.metadata.uid}
    return ObjectReference(kind="Pod", **(fields | changes))


def test_every_write_gets_a_newer_resource_version() -> None:
    api = MemoryAPI()
    versions = [int(api.put(obj)) for obj in (pod("a"), node("n"), pod("a"))]
    assert versions == sorted(set(versions))
    assert versions[0] > 0
    assert int(api.copy().put(pod("b"))) > versions[-1]


async def test_a_pod_is_read_by_its_uid() -> None:
    api = MemoryAPI()
    api.put(pod("a"))
    (stored,) = api.pods()
    assert await api.read_pod(_reference(stored)) == stored
    assert await api.read_pod(_reference(stored, uid="of a former pod")) is None
    assert await api.read_pod(_reference(stored, name="b")) is None


async def test_a_pod_is_bound_once_and_only_that_with_the_uid() -> None:
    api = MemoryAPI()
    api.put(pod("a"))
    (stored,) = api.pods()
    for reference, code in ((_reference(stored, name="b"), 404), (_reference(stored, uid="of a former pod"), 409)):
        with pytest.raises(APIError) as error:
            await api.bind(reference, "n")
        assert error.value.code == code
    await api.bind(_reference(stored), "n")
    assert api.pods()[0].spec.node_name == "n"
    with pytest.raises(APIError, match='already assigned to node "n"') as error:
        await api.bind(_reference(stored), "m")
    assert error.value.code == 409


async def test_a_former_pod_is_not_deleted_in_place_of_the_new_one() -> None:
    api = MemoryAPI()
    api.put(pod("a"))
    (stored,) = api.pods()
    await api.delete_pod(_reference(stored, uid="of a former pod"))
    assert api.pods() == [stored]
    await api.delete_pod(_reference(stored))
    await api.delete_pod(_reference(stored))
    assert api.pods() == []


def test_a_copy_is_independent() -> None:
    api = MemoryAPI()
    api.put(pod("a"))
    copied: Any = api.copy()
    copied.put(pod("b"))
    api.remove(pod("a"))
    assert [one.metadata.name for one in api.pods()] == []
    assert [one.metadata.name for one in copied.pods()] == ["a", "b"]
