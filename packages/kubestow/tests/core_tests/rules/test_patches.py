"""JSON patch, JSON merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.errors import APIError
from kubestow.rules.patches import (
    ANY_FIELD,
    MAX_COPIED,
    MAX_OPERATIONS,
    FieldMerge,
    FieldTable,
    json_merge_patch,
    json_patch,
    strategic_merge_patch,
)

ITEM = ANY_FIELD.schema
POD = FieldTable(
    {
        "metadata": FieldMerge(FieldTable({"finalizers": FieldMerge(ITEM, "merge")})),
        "spec": FieldMerge(
            FieldTable(
                {
                    "containers": FieldMerge(ITEM, "merge", "name"),
                    "volumes": FieldMerge(ITEM, "merge", "name"),
                    "selector": FieldMerge(ITEM, "replace"),
                }
            )
        ),
    }
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text("ab/~", max_size=2), json_values, max_size=4)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1, 2]}),
        ({"op": "remove", "path": "/a/1"}, {"a": [1]}),
        ({"op": "replace", "path": "/a", "value": "x"}, {"a": "x"}),
        ({"op": "copy", "from": "/a/0", "path": "/b~1c"}, {"a": [1, 2], "b/c": 1}),
        ({"op": "move", "from": "/a", "path": "/d"}, {"d": [1, 2]}),
        ({"op": "test", "path": "/a/0", "value": 1}, {"a": [1, 2]}),
        ({"op": "test", "path": "/missing", "value": None}, {"a": [1, 2]}),
        ({"op": "add", "path": "/a/2", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "", "value": {"b": 1}}, {"b": 1}),
        ({"op": "replace", "path": "", "value": {"b": 1}}, {"b": 1}),
        ({"op": "copy", "from": "", "path": "/b"}, {"a": [1, 2], "b": {"a": [1, 2]}}),
        ({"op": "add", "path": "/~01", "value": 1}, {"a": [1, 2], "~1": 1}),
    ],
)
def test_json_patch_operations(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    assert json_patch({"a": [1, 2]}, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/0", "value": 2},
        {"op": "test", "path": "/a/5", "value": None},
        {"op": "test", "path": "a", "value": {"a": [1, 2], "text": "t"}},
        {"op": "add", "path": "/a/3", "value": 0},
        {"op": "add", "path": "/a/-1", "value": 0},
        {"op": "add", "path": "/b/c", "value": 0},
        {"op": "add", "path": "/b"},
        {"op": "add", "path": "b", "value": 0},
        {"op": "add", "path": 1, "value": 0},
        {"op": "add", "path": "", "value": [1]},
        {"op": "remove", "path": "/a/2"},
        {"op": "remove", "path": "/b"},
        {"op": "remove", "path": "/text/0"},
        {"op": "remove", "path": "/a/-"},
        {"op": "replace", "path": "/b", "value": 0},
        {"op": "move", "from": "/b", "path": "/c"},
        {"op": "copy", "from": "/b", "path": "/c"},
        {"op": "copy", "path": "/c"},
        {"op": "bogus", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_a_json_patch_that_does_not_apply_is_rejected(operation: dict[str, Any]) -> None:
    with pytest.raises(APIError) as error:
        json_patch({"a": [1, 2], "text": "t"}, [operation])
    assert (error.value.code, error.value.reason) == (422, "Invalid")


@pytest.mark.parametrize("operations", [{"op": "remove", "path": "/a"}, ["remove"]])
def test_what_is_no_list_of_operations_is_a_bad_request(operations: Any) -> None:
    with pytest.raises(APIError) as error:
        json_patch({"a": 1}, operations)
    assert (error.value.code, error.value.reason) == (400, "BadRequest")


def test_a_json_patch_has_a_limit_of_operations_and_one_of_what_copies_add() -> None:
    test = {"op": "test", "path": "/a", "value": 1}
    assert json_patch({"a": 1}, [test] * MAX_OPERATIONS) == {"a": 1}
    with pytest.raises(APIError, match="is 10000, got 10001") as error:
        json_patch({"a": 1}, [test] * (MAX_OPERATIONS + 1))
    assert error.value.code == 413

    copy = {"op": "copy", "from": "/a", "path": "/b"}
    half = "x" * (MAX_COPIED // 2 - len('""'))
    assert json_patch({"a": half}, [copy, copy]) == {"a": half, "b": half}
    with pytest.raises(APIError) as error:
        json_patch({"a": half}, [copy, copy, {**copy, "from": "/c"}, copy])
    assert error.value.code == 422, "what does not apply comes before the limit"
    with pytest.raises(APIError) as error:
        json_patch({"a": half, "c": 1}, [copy, copy, {**copy, "from": "/c"}])
    assert error.value.code == 413


@given(json_objects, json_objects)
def test_a_json_patch_does_not_modify_its_input_and_raises_only_api_errors(original: Any, value: Any) -> None:
    before = repr(original)
    for operation in ("add", "remove", "replace", "test", "bogus"):
        try:
            json_patch(original, [{"op": operation, "path": f"/{next(iter(original), 'a')}", "value": value}])
        except APIError as error:
            assert error.code == 422
        assert repr(original) == before


@given(json_objects, json_objects)
def test_a_json_merge_patch_is_idempotent(original: Any, patch: Any) -> None:
    once = json_merge_patch(original, patch)
    assert json_merge_patch(once, patch) == once


def test_a_json_merge_patch_removes_what_is_null_and_merges_objects_alone() -> None:
    original = {"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 3}
    assert json_merge_patch(original, {"a": {"b": None, "x": {"y": None}}, "d": [3], "e": {"f": 1}, "g": None}) == {
        "a": {"c": 2, "x": {}},
        "d": [3],
        "e": {"f": 1},
    }
    assert json_merge_patch(original, 5) == 5


def spec_of(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **more}}


def test_a_strategic_merge_patch_merges_containers_by_name() -> None:
    merged = strategic_merge_patch(
        spec_of({"name": "a", "image": "1"}, {"name": "b", "image": "1"}), spec_of({"name": "b", "image": "2"}), POD
    )
    assert merged == spec_of({"name": "a", "image": "1"}, {"name": "b", "image": "2"})


def test_strategic_merge_patch_directives_delete_and_order_items() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "b", "$patch": "delete"}, {"name": "c", "image": "3"}],
        }
    }
    original = spec_of({"name": "a"}, {"name": "b"})
    assert strategic_merge_patch(original, patch, POD) == spec_of({"name": "c", "image": "3"}, {"name": "a"})


def test_a_patch_that_only_orders_items_moves_them() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert strategic_merge_patch(spec_of({"name": "a"}, {"name": "b"}), patch, POD) == spec_of(
        {"name": "b"}, {"name": "a"}
    )


def test_a_strategic_merge_patch_replaces_atomic_lists_and_honours_retain_keys() -> None:
    original = {"spec": {"tolerations": [{"key": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {
        "spec": {
            "tolerations": [{"key": "b"}],
            "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}],
        }
    }
    assert strategic_merge_patch(original, patch, POD)["spec"] == {
        "tolerations": [{"key": "b"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
    }


def test_a_strategic_merge_patch_replaces_a_map_by_directive_and_merges_finalizers() -> None:
    original = {"metadata": {"labels": {"a": "1"}, "finalizers": ["x"]}}
    patch = {"metadata": {"labels": {"$patch": "replace", "b": "2"}, "finalizers": ["y"]}}
    merged = strategic_merge_patch(original, patch, POD)["metadata"]
    assert merged["labels"] == {"b": "2"}
    assert sorted(merged["finalizers"]) == ["x", "y"]


def test_a_strategic_merge_patch_removes_a_map_by_directive_and_values_of_a_list() -> None:
    original = {"metadata": {"labels": {"a": "1"}, "finalizers": ["x", "y"]}}
    patch = {"metadata": {"labels": {"$patch": "delete"}, "$deleteFromPrimitiveList/finalizers": ["x"]}}
    assert strategic_merge_patch(original, patch, POD) == {"metadata": {"finalizers": ["y"]}}
    assert strategic_merge_patch(original, {"$patch": "delete"}, POD) == {}
    assert strategic_merge_patch(original, {"metadata": {"labels": None}}, POD) == {
        "metadata": {"finalizers": ["x", "y"]}
    }


def test_a_strategic_merge_patch_replaces_a_list_by_directive() -> None:
    patch = spec_of({"$patch": "replace"}, {"name": "b"})
    assert strategic_merge_patch(spec_of({"name": "a"}), patch, POD) == spec_of({"name": "b"})


def test_an_item_that_only_the_patch_has_comes_first() -> None:
    merged = strategic_merge_patch(spec_of({"name": "a"}), spec_of({"name": "b"}), POD)
    assert merged == spec_of({"name": "b"}, {"name": "a"})


def test_a_field_with_the_strategy_replace_is_replaced() -> None:
    patched = strategic_merge_patch({"spec": {"selector": {"a": "1"}}}, {"spec": {"selector": {"b": "2"}}}, POD)
    assert patched == {"spec": {"selector": {"b": "2"}}}


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"$patch": "bogus"}, "unknown patch type found: bogus"),
        ({"$retainKeys": "name"}, "$retainKeys expects a list"),
        ({"spec": {"containers": ["c"]}}, "expected list of maps in a list merged by key"),
        ({"spec": {"containers": [{"image": "i"}]}}, "does not contain declared merge key: name"),
        ({"metadata": {"finalizers": [{}]}}, "expected list of primitives in a list merged as a set"),
    ],
)
def test_an_invalid_directive_is_a_bad_request(patch: dict[str, Any], problem: str) -> None:
    with pytest.raises(APIError) as error:
        strategic_merge_patch({"metadata": {"finalizers": []}, "spec": {"containers": []}}, patch, POD)
    assert (error.value.code, problem in error.value.message) == (400, True)
