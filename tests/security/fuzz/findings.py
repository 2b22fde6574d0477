"""Inputs that a reader once failed on: found by fuzzing, shortened by hand."""

from __future__ import annotations

FINDINGS: list[tuple[str, bytes]] = [
    ("configuration", b'a: "\\UFFFFFFFF"'),
    ("configuration", b'"\\ud800": 1'),
    ("test-cases", b'- {name: "\\ud800", workloadTemplate: []}'),
    ("dump", b'{"kind":"PodList","items":5}'),
    ("dump", b'{"kind":"List","items":[{"kind":[]}]}'),
    ("object-templates", b"apiVersion: {}"),
    ("object-templates", b"a: '{{ AddInt 1e999 }}'"),
    ("recorded-cases", b'{"name":"a","cluster":{"nodes":[{}]},"pods":[],"expect":[]}'),
    ("recorded-cases", b'{"name":"a","podspecs":[{}],"expect":{}}'),
]
"""Pairs of a reader's name and an input, which the reader rejects now."""
