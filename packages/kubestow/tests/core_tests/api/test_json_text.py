"""JSON as Go emits it: surrogates, bytes that are not UTF-8, depth, numbers; and the cost of reading it."""

from __future__ import annotations

import copy
import json
import time
from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.json_text import (
    CUT_OFF,
    MAX_DEPTH,
    UNDECODABLE,
    decode_readable,
    is_too_deep,
    parse_json,
    readable_json,
)
from kubestow.api.meta import decode
from kubestow.api.resource import ResourceClaim

#: Text between quotation marks, as Go's scanner accepts it: any byte from a space on, escapes of any code unit.
_unescaped = st.binary(min_size=1, max_size=6).map(
    lambda data: bytes(max(one, 32) for one in data if one not in b'"\\')
)
_code_unit = st.one_of(st.integers(0xD7F0, 0xE00F), st.integers(0, 0xFFFF))
_escape = _code_unit.flatmap(lambda unit: st.sampled_from([b"\\u%04x" % unit, b"\\u%04X" % unit]))
_short_escape = st.sampled_from([b'\\"', b"\\\\", b"\\/", b"\\b", b"\\n"])
strings = st.lists(st.one_of(_unescaped, _escape, _short_escape), max_size=8).map(
    lambda parts: b'"' + b"".join(parts) + b'"'
)
numbers = st.one_of(
    st.integers().map(lambda number: b"%d" % number),
    st.integers(0, 6000).map(lambda digits: b"-9" + b"0" * digits),
    st.tuples(st.integers(-99, 99), st.integers(-9999, 9999)).map(lambda pair: b"%d.5e%+d" % pair),
)
scalars = st.one_of(strings, numbers, st.sampled_from([b"true", b"false", b"null"]))


def _nested(value: bytes, depth: int, key: bytes) -> bytes:
    half = depth // 2
    return b"[" * half + (b"{" + key + b":") * (depth - half) + value + b"}" * (depth - half) + b"]" * half


def _compound(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    members = st.tuples(strings, inner).map(b":".join)
    return st.one_of(
        st.lists(inner, max_size=4).map(lambda items: b"[" + b", ".join(items) + b"]"),
        st.lists(members, max_size=4).map(lambda items: b"{" + b",\n".join(items) + b"}"),
        st.tuples(inner, st.integers(1, 5000), strings).map(lambda parts: _nested(*parts)),
    )


values = st.recursive(scalars, _compound, max_leaves=12)


def _claim(parameters: bytes) -> bytes:
    claim = {
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "5"},
        "spec": {
            "devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}],
                "config": [{"requests": ["r"], "opaque": {"driver": "d", "parameters": "HERE"}}],
            }
        },
        "status": {
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}],
                    "config": [{"source": "FromClaim", "opaque": {"driver": "d", "parameters": "HERE"}}],
                }
            },
            "reservedFor": [{"resource": "pods", "name": "a", "uid": "uid-a"}],
        },
    }
    return json.dumps(claim).encode().replace(b'"HERE"', parameters)


def _without_parameters(claim: ResourceClaim) -> bytes:
    plain = msgspec.to_builtins(claim)
    for config in (*plain["spec"]["devices"]["config"], *plain["status"]["allocation"]["devices"]["config"]):
        config["opaque"].pop("parameters", None)
    return msgspec.json.encode(plain)


@given(values)
def test_no_parameters_that_go_accepts_change_what_else_a_claim_says(parameters: bytes) -> None:
    claim = decode(ResourceClaim, _claim(parameters))
    assert _without_parameters(claim) == _without_parameters(decode(ResourceClaim, _claim(b"{}")))


@given(values)
def test_readable_json_can_be_read_and_encoded_by_recursion(value: bytes) -> None:
    text = readable_json(value)
    assert readable_json(text) == text
    msgspec.json.decode(text, type=msgspec.Raw)
    msgspec.json.encode(parse_json(value))


@pytest.mark.parametrize(
    ("given_text", "read"),
    [
        # What Go 1.26 makes of each: encoding/json's unquote, utf8.DecodeRune.
        (rb'"\ud800"', "\ufffd"),
        (rb'"\udc00x"', "\ufffdx"),
        (rb'"\ud800\u0041"', "\ufffdA"),
        (rb'"\ud800\ud83d\ude00"', "\ufffd😀"),
        (rb'"\uD83D\uDE00"', "😀"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\\\ud800"', "\\\ufffd"),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b'"\xe2\x82x"', "\ufffd\ufffdx"),  # each byte of a character that ends early
        (b'"\xed\xa0\x80"', "\ufffd" * 3),
        (b'"\xf5\x80"', "\ufffd" * 2),
        ('"\U0010ffff\ufffe"'.encode(), "\U0010ffff\ufffe"),
    ],
)
def test_text_is_read_as_go_reads_it(given_text: bytes, read: str) -> None:
    assert parse_json(given_text) == read


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 970, 4990, 10_000, 500_000])
def test_values_below_the_limit_of_depth_are_replaced(brackets: tuple[bytes, bytes], depth: int) -> None:
    opening, closing = brackets
    value = parse_json(opening * depth + b"7" + closing * depth)
    levels = 0
    while isinstance(value, (list, dict)):
        value, levels = (value[0] if isinstance(value, list) else value["a"]), levels + 1
    assert (levels, value) == ((depth, 7) if depth <= MAX_DEPTH else (MAX_DEPTH, CUT_OFF))


@pytest.mark.parametrize("depth", [1, 150, 250, 700, 970, 4990])
def test_parameters_of_a_claim_are_never_too_deep_for_recursion(depth: int) -> None:
    claim = decode(ResourceClaim, _claim(b'{"a":' + b"[" * depth + b"null" + b"]" * depth + b"}"))
    copied = copy.deepcopy(msgspec.to_builtins(claim))
    (config,) = copied["spec"]["devices"]["config"]
    text = msgspec.json.encode(config["opaque"]["parameters"])
    assert (b"null" in text) == (depth <= 150)
    assert is_too_deep(claim.spec.devices.config[0].opaque) is False


def test_only_what_is_too_deep_is_replaced_and_brackets_in_strings_do_not_count() -> None:
    deep = b"[" * 300 + b'"]"' + b"]" * 300
    kept = json.dumps({"[" * 300: "{" * 300, "q": '"[\\', "u": "é😀"}).encode()
    read = parse_json(b"[" + kept + b"," + deep + b"," + kept + b"," + deep + b"]")
    assert read[0] == read[2] == json.loads(kept)
    assert read[1] == read[3] != json.loads(deep)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[" * 5000, b"]" * 5000, b'{"a":1}}', b"[1e]", b"NaN", b"[Infinity]", b'"\x01"']
)
def test_what_is_not_json_stays_so(text: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "read"), [(b"1e400", 1.7976931348623157e308), (b"-1" + b"0" * 6000, -1.7976931348623157e308)]
)
def test_numbers_beyond_a_float_are_the_nearest_one(text: bytes, read: float) -> None:
    assert parse_json(text) == read


def test_other_numbers_beside_one_beyond_a_float_are_exact() -> None:
    digits = "9" * 308
    text = f"[1e400, {digits}, -{digits[1:]}, {digits}9, 1.5, 7]"
    largest = 1.7976931348623157e308
    assert parse_json(text.encode()) == [largest, int(digits), -int(digits[1:]), largest, 1.5, 7]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_constant_that_is_not_json_is_rejected_beside_a_number_beyond_a_float(constant: str) -> None:
    with pytest.raises(UNDECODABLE):
        parse_json(f"[1e400, {constant}]".encode())


def test_ordinary_json_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubestow.api.json_text.readable_json", None)
    assert decode_readable(msgspec.json.Decoder(dict[str, int]), b'{"a":1}') == {"a": 1}


@pytest.mark.parametrize(
    "unit",
    [b"[", b'"\\ud800",', b'"\xff",', b"[[]],", b'"\\"[",', b'{"a":[' * 2, b'"\\\\\\"",', b"9"],
    ids=["deep", "surrogates", "not utf-8", "shallow", "brackets in text", "objects", "escapes", "digits"],
)
def test_the_cost_is_linear(unit: bytes) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        taken = []
        for _ in range(5):
            began = time.process_time()
            readable_json(text)
            taken.append(time.process_time() - began)
        return median(taken)

    first, second, third = (seconds(size) for size in (2**18, 2**19, 2**20))
    assert third <= 12 * max(first, 0.002), (first, second, third)
