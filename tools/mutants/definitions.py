"""Digests of the tests of a file, by which it is known whether a test has changed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path


def definitions(file: Path) -> Mapping[str, str]:
    """Digests of a file's functions and methods by name, and of the whole file as "" for what it does not define."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    body = ast.parse(text).body
    classes = [one for one in body if isinstance(one, ast.ClassDef)]
    found = {"": text}
    for prefix, nodes in [("", body), *((f"{one.name}::", one.body) for one in classes)]:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min(one.lineno for one in (node, *node.decorator_list))
                found[prefix + node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return {name: sha256(part.encode()).hexdigest()[:16] for name, part in found.items()}
