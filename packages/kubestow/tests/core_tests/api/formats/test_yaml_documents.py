"""Reading YAML: hostile texts are errors with a line, at little cost, and ordinary ones are read as Kubernetes does."""

from __future__ import annotations

import pytest

from kubestow.api.formats.yaml_documents import MAX_DEPTH, check_yaml, load_yaml, yaml_documents
from kubestow.errors import InputError

BOMB = "".join(["a0: &a0 [x]\n", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))])
LONG_BOMB = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]\n"
MERGES = "".join(["a0: &a0 {}\n", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60))])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("? " * 100_000, "line 1: invalid YAML: nested more than 200 levels deep"),
        ("- " * 100_000, "line 1: invalid YAML: nested more than 200 levels deep"),
        ("[" * 100_000, "line 1: invalid YAML: nested more than 200 levels deep"),
        ("".join(f"{' ' * n}a:\n" for n in range(300)), "line 201: invalid YAML: nested more than 200 levels deep"),
        (BOMB, "line 8: invalid YAML: aliases stand for more than 32,000,000 characters"),
        (LONG_BOMB, "line 2: invalid YAML: aliases stand for more than 32,000,000 characters"),
        (MERGES, "line 23: invalid YAML: aliases stand for more than 32,000,000 characters"),
        ("a: 1\nb: &b {c: [*b]}\n", "line 2: invalid YAML: anchor b contains itself"),
        (f"a: {'9' * 100_000}", "line 1: invalid YAML: a number of 100,000 characters, expected at most 256"),
        (f"a: {':'.join(['59'] * 1000)}", "line 1: invalid YAML: a number of 2,999 characters, expected at most 256"),
        (f"!!int '{'9' * 5000}'", "line 1: invalid YAML: a number of 5,000 characters, expected at most 256"),
        ("a: !!int ''", "line 1: invalid YAML: a value does not fit its tag, or is no number"),
        ("a: !!timestamp x", "line 1: invalid YAML: a value does not fit its tag, or is no number"),
        ("a: !!python/object:os.system x", "line 1: invalid YAML: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "line 3: expected a single YAML document"),
        (b"a: 1\nb: \xff\n", "line 2: not UTF-8 text"),
        ("a: [", "line 2: invalid YAML"),
        ("a: *b", "line 1: invalid YAML: found undefined alias"),
    ],
)
def test_a_hostile_text_is_one_error_with_a_line(text: str | bytes, problem: str) -> None:
    with pytest.raises(InputError) as error:
        load_yaml(text, "f.yaml")
    assert str(error.value).startswith(f"f.yaml: {problem}") and "\n" not in str(error.value)


def test_texts_within_the_limits_are_read() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    check_yaml(deep, "f.yaml")
    assert load_yaml(deep, "f.yaml") is not None
    assert load_yaml(f"[{'9' * 256}, 2026-01-01, {'a9' * 1000}]", "f.yaml") == [
        int("9" * 256),
        "2026-01-01",
        "a9" * 1000,
    ]
    assert load_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a", "f.yaml")["b"] == {"x": 1, "y": 2}
    assert load_yaml("", "f.yaml") is None
    documents = list(yaml_documents("# none\n---\na: 1\n---\n- 2\n", "f.yaml"))
    assert [(document.data, document.line) for document in documents] == [({"a": 1}, 3), ([2], 5)]


def test_anchors_and_aliases_of_each_document_are_its_own() -> None:
    documents = [document.data for document in yaml_documents("a: &a 1\nb: *a\n---\na: &a 2\nb: *a\n", "f.yaml")]
    assert documents == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
