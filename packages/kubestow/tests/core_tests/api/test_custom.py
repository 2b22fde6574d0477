"""Custom resources of plugins: where the API server has them."""

from __future__ import annotations

from typing import ClassVar

import pytest

from kubestow.api.custom import CustomObject


def _kind(of_resource: str) -> type[CustomObject]:
    class Queue(CustomObject, frozen=True):
        resource: ClassVar[str] = of_resource

    return Queue


@pytest.mark.parametrize(
    ("resource", "address", "api_version"),
    [
        ("queues.v1beta1.example.com", ("/apis/example.com/v1beta1", "queues"), "example.com/v1beta1"),
        ("queues.v1.", ("/api/v1", "queues"), "v1"),
    ],
)
def test_a_resource_has_an_address_and_a_type(resource: str, address: tuple[str, str], api_version: str) -> None:
    assert _kind(resource).address() == address
    assert _kind(resource).api_type() == (api_version, "Queue")


@pytest.mark.parametrize("resource", ["", "queues", "queues.v1", ".v1.example.com", "queues..example.com"])
def test_a_resource_without_plural_or_version_is_an_error(resource: str) -> None:
    for name in (_kind(resource).address, _kind(resource).api_type):
        with pytest.raises(ValueError, match=f'Queue.resource is "{resource}", expected "<plural>.<version>.<group>"'):
            name()
