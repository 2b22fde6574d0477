"""Reading YAML: hostile texts are errors with a line, at little cost, and ordinary ones are read as Kubernetes does."""

from __future__ import annotations

import pytest
import yaml

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
        (b"\na: \xff\n", "line 2: not UTF-8 text"),
        (b"\xff", "line 1: not UTF-8 text"),
        ("a: \x07", "invalid YAML: unacceptable character"),
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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("a: &a xx\nb: *a", 3),
        ("a: &a xx\nb: [*a, *a]", 6),
        ("a: &a [xx, y]\nb: *a", 6),
        ("a: &a {b: &b xx}\nc: [*a, *b]", 9),
        ("a: &a xx\n---\na: &a x\nb: *a", 3 - 1),
    ],
)
def test_aliases_stand_for_the_characters_and_nodes_of_what_they_refer_to(text: str, size: int) -> None:
    assert list(yaml_documents(text, "f.yaml", max_expansion=size))
    with pytest.raises(InputError, match=f"aliases stand for more than {size - 1} characters"):
        list(yaml_documents(text, "f.yaml", max_expansion=size - 1))


_MARK = yaml.Mark("f.yaml", 0, 6, 0, "", 0)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            yaml.MarkedYAMLError(problem="exceeded maximum nesting depth", problem_mark=_MARK),
            "f.yaml: line 7: invalid YAML: nested more than 200 levels deep",
        ),
        (
            yaml.MarkedYAMLError(problem="exceeded maximum nesting depth"),
            "f.yaml: invalid YAML: exceeded maximum nesting depth",
        ),
        (yaml.MarkedYAMLError(problem="bad", problem_mark=_MARK), "f.yaml: line 7: invalid YAML: bad"),
        (yaml.MarkedYAMLError(context="bad", context_mark=_MARK), "f.yaml: line 7: invalid YAML: bad"),
        (RecursionError(), "f.yaml: invalid YAML: RecursionError"),
    ],
)
def test_errors_of_the_parser_are_reported_with_their_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    class Failing:
        def __init__(self, content: object) -> None: ...

        def check_event(self) -> bool:
            raise error

        def dispose(self) -> None: ...

    monkeypatch.setattr("kubestow.api.formats.yaml_documents._Loader", Failing)
    with pytest.raises(InputError) as reported:
        load_yaml("a: 1", "f.yaml")
    assert str(reported.value) == message


@pytest.mark.parametrize("text", ["a: [", b"\xff", "a: *b"])
def test_a_check_of_the_limits_leaves_syntax_to_the_parser(text: str | bytes) -> None:
    check_yaml(text, "f.yaml")
