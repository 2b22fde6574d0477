"""The schemas: they agree with the generated models of another library, and with the values that kinds have."""

from __future__ import annotations

import pytest
from kubernetes_asyncio.client import models

from kubestow.devcluster.apiserver.resources import KINDS
from kubestow.devcluster.apiserver.schema import UnmarshalTypeError, struct_of
from kubestow.devcluster.apiserver.schema.quantities import canonical
from kubestow.devcluster.apiserver.schema.table import entry
from kubestow.errors import InvalidQuantity

#: The types of the generated models, by those of the table.
IN_MODELS = {"string": "str", "bytes": "str", "int32": "int", "int64": "int", "float64": "float", "any": "object"}
IN_MODELS |= {"Quantity": "str", "IntOrString": "object", "Time": "datetime", "MicroTime": "datetime"}


def reachable() -> set[str]:
    """The models of the served kinds, and of all that they are made of."""
    found: set[str] = set()

    def visit(text: str) -> None:
        model = text.replace("[]", "").removeprefix("map[string]")
        if model and hasattr(models, model) and model not in found:
            found.add(model)
            for field in entry(model).fields:
                visit(field.type)

    for kind in KINDS:
        visit(kind.model)
    return found


def in_models(text: str) -> str:
    if text.startswith("[]"):
        return f"list[{in_models(text[2:])}]"
    if text.startswith("map[string]"):
        return f"dict(str, {in_models(text.removeprefix('map[string]'))})"
    return IN_MODELS.get(text, text)


def test_the_table_has_the_fields_of_the_generated_models() -> None:
    for name in reachable():
        model = getattr(models, name)
        expected = {model.attribute_map[python]: type_ for python, type_ in model.openapi_types.items()}
        assert {field.name: in_models(field.type) for field in entry(name).fields} == expected


def test_every_served_kind_is_in_the_table_with_its_api_version() -> None:
    for kind in KINDS:
        if kind.model:
            described = entry(kind.model)
            assert (described.name, described.api_versions) == (kind.name, (kind.api_version,))


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
    with pytest.raises(UnmarshalTypeError):
        struct_of("V1Pod").read({"status": {"startTime": "0001-01-01T00:00:00+14:00"}}, [])
