"""Log records are structured: what a message says about an object is also in a field."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubestow.log_fields import fields
from kubestow.observability.logs import JSONFormatter, TextFormatter

PACKAGES = Path(__file__).parents[5] / "packages"
SOURCES = sorted(PACKAGES.glob("*/src/**/*.py"))
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def log_calls() -> Iterator[tuple[Path, ast.Call]]:
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in METHODS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "_log"
            ):
                yield file, node


def test_every_log_call_with_values_or_about_a_problem_has_fields() -> None:
    unstructured = []
    for file, call in log_calls():
        assert isinstance(call.func, ast.Attribute)
        message = 1 if call.func.attr == "log" else 0
        has_values = len(call.args) > message + 1 or not isinstance(
            call.args[message], (ast.Constant, ast.Name, ast.IfExp)
        )
        is_problem = call.func.attr not in ("debug", "info", "log")
        if (has_values or is_problem) and "extra" not in {keyword.arg for keyword in call.keywords}:
            unstructured.append(f"{file.relative_to(PACKAGES)}:{call.lineno}")
    assert unstructured == []


def test_a_key_has_one_spelling() -> None:
    used = set()
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("fields", "logs.fields"):
                used |= {keyword.arg for keyword in node.keywords if keyword.arg}
    assert not {key for key in used if "_" in key or not key[0].islower()}
    assert used >= {"pod", "node", "plugin", "err"}


@pytest.mark.parametrize("json_format", [False, True])
def test_fields_are_printed_beside_a_message_with_values(json_format: bool) -> None:
    record = logging.getLogger("kubestow.test").makeRecord(
        "kubestow.test",
        logging.ERROR,
        "test.py",
        1,
        "pod %s: %s",
        ("web/a", "no"),
        None,
        extra=fields(pod="web/a", err="no"),
    )
    if json_format:
        entry = json.loads(JSONFormatter().format(record))
        assert (entry["msg"], entry["pod"], entry["err"]) == ("pod web/a: no", "web/a", "no")
    else:
        assert TextFormatter().format(record).endswith('] "pod web/a: no" pod="web/a" err="no"')
