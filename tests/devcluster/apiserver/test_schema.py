"""The schemas: read from the models' sources, they are what the models say."""

from __future__ import annotations

import pytest
from kubernetes_asyncio.client import models

from kubestow.devcluster.apiserver.resources import KINDS
from kubestow.devcluster.apiserver.schema import ListOf, MapOf, Mismatch, Struct, struct_of
from kubestow.devcluster.apiserver.schema.conventions import ATOMIC_TYPES, EMITTED, MERGES, MICRO_TIMES, QUANTITIES
from kubestow.devcluster.apiserver.schema.models import fields_of
from kubestow.devcluster.apiserver.schema.quantities import canonical
from kubestow.devcluster.apiserver.schema.types import Type
from kubestow.errors import InvalidQuantity


def reachable() -> dict[str, Struct]:
    """Every struct that some served kind is made of."""
    found: dict[str, Struct] = {}

    def visit(type_: Type) -> None:
        if isinstance(type_, ListOf | MapOf):
            visit(type_.item)
        elif isinstance(type_, Struct) and type_.model not in found:
            found[type_.model] = type_
            for field in type_.fields.values():
                visit(field.type_)

    for kind in KINDS:
        visit(kind.struct)
    return found


def test_reading_the_sources_gives_what_importing_gives() -> None:
    for name in reachable():
        if not name:
            continue
        model = getattr(models, name)
        expected = {model.attribute_map[python]: type_ for python, type_ in model.openapi_types.items()}
        assert {field.name: field.type for field in fields_of(name)} == expected


def test_every_convention_names_a_field_that_exists() -> None:
    structs = reachable().values()
    places = {
        f"{name}.{field}" for struct in structs for field in struct.fields for name in (struct.name, struct.model)
    }
    assert not {*MERGES, *EMITTED, *QUANTITIES, *MICRO_TIMES} - places - UNSERVED
    assert {struct.name for struct in structs} >= ATOMIC_TYPES - {"CrossVersionObjectReference", "FileKeySelector"}


#: Known to the API, in kinds or versions that are not served here.
UNSERVED = frozenset(
    place
    for place in {*MERGES, *EMITTED, *QUANTITIES}
    if place.startswith(("CertificateSigningRequest", "ComponentStatus", "CustomResourceDefinition", "CronJobStatus"))
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("2E", "2E"),
        ("-1", "-1"),
        ("0", "0"),
        ("1n", "1n"),
    ],
)
def test_quantities_have_one_canonical_text(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


def test_a_bad_quantity_is_refused_in_the_servers_words() -> None:
    with pytest.raises(InvalidQuantity, match="quantities must match the regular expression"):
        canonical("1.5.2")


def test_zero_values_that_mean_nothing_are_left_out_and_others_kept() -> None:
    read = struct_of("V1Pod").read(
        {"spec": {"nodeName": "", "hostNetwork": False, "tolerations": [], "containers": None}}, []
    )
    assert read["spec"] == {}
    claim = struct_of("V1PersistentVolumeClaim").read({"spec": {"storageClassName": ""}}, [])
    assert claim["spec"]["storageClassName"] == "", "no class is not the same as the default class"


def test_times_are_kept_in_utc_to_the_second_or_microsecond() -> None:
    lease = struct_of("V1Lease").read({"spec": {"renewTime": "2026-01-01T01:00:00.5+01:00"}}, [])
    assert lease["spec"]["renewTime"] == "2026-01-01T00:00:00.500000Z"
    pod = struct_of("V1Pod").read({"status": {"startTime": "2026-01-01T00:00:00.9Z"}}, [])
    assert pod["status"]["startTime"] == "2026-01-01T00:00:00Z"
    with pytest.raises(Mismatch):
        struct_of("V1Pod").read({"status": {"startTime": "0001-01-01T00:00:00+14:00"}}, [])
