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
    ],
)
def test_matching(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["app=web,", "=web", "app in web", "app in (web", "a b", "app=we@b", "rank>x", "-a=1"])
def test_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_selector(text)
