"""Label selectors written as text."""

import pytest

from kubestow.api.selector_text import parse_selector
from kubestow.errors import InvalidSelector

LABELS = {"app": "web", "tier": "front", "rank": "7"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app == web", True),
        ("app!=web", False),
        ("other!=web", True),
        ("app", True),
        ("!app", False),
        ("app=web,tier in (front, back),!canary", True),
        ("tier notin (front)", False),
        ("other notin (front)", True),
        ("rank>6", True),
        ("rank<7", False),
        ("app>6", False),
        ("other>6", False),
        ("other=", False),
        ("other=,app=web", False),
        ("app!=,tier=front", True),
        ("rank>06,rank<08", True),
        ("tier in ()", False),
    ],
)
def test_matching(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


_UNPARSABLE = "unable to parse requirement: "


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("app=web,", "found '', expected: identifier after ','"),
        ("app,,tier", "found ',', expected: identifier after ','"),
        ("app=web tier", "found 'tier', expected: ',' or 'end of string'"),
        ("=web", "found '=', expected: !, identifier, or 'end of string'"),
        ("app,(", "found '(', expected: !, identifier, or 'end of string'"),
        ("!,app", f"{_UNPARSABLE}found ',', expected: identifier"),
        ("!", f"{_UNPARSABLE}found '', expected: identifier"),
        ("app=(", f"{_UNPARSABLE}found '(', expected: identifier"),
        ("app in web", f"{_UNPARSABLE}found 'web' expected: '('"),
        ("app in (web", f"{_UNPARSABLE}found '', expected: ',' or ')'"),
        ("a b", f"{_UNPARSABLE}found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("app=we@b", f'{_UNPARSABLE}values[0][]: Invalid value: "we@b": a valid label must be'),
        ("-a=1", f'{_UNPARSABLE}<nil>: Invalid value: "-a": name part must consist of'),
        ("rank>x", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("rank<9223372036854775808", "for 'Gt', 'Lt' operators, the value must be an integer"),
    ],
)
def test_invalid_text_is_refused_with_the_message_of_kubernetes(text: str, beginning: str) -> None:
    with pytest.raises(InvalidSelector) as error:
        parse_selector(text)
    assert str(error.value).startswith(beginning)
