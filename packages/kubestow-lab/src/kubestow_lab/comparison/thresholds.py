"""Thresholds on the metrics of a comparison, such as ``pending > baseline * 1.05``.

    threshold  = metric comparison limit
    comparison = ">" | ">=" | "<" | "<=" | "==" | "!="
    limit      = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = number | "baseline" | "-" factor | "(" limit ")"

``baseline`` is the value of the metric in the baseline. A limit is linear in it: no two factors of a product have it,
and no divisor. The threshold is crossed if the comparison holds for the candidate.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubestow.errors import InputError
from kubestow_lab.metrics.run_metrics import is_metric, metric_lines

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
#: The name of a resource may have dots, dashes and slashes; there is no arithmetic before the comparison.
_METRIC = re.compile(r"\s*([A-Za-z][A-Za-z0-9._/-]*)\s*")
_COMPARISON = re.compile(r"(>=|<=|==|!=|>|<)\s*")
_TOKEN = re.compile(r"([0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_.])|[A-Za-z_]\w*|[-+*/()])\s*")
#: Longer ones are mistakes; the limit also bounds the depth of parentheses.
_MAX_LENGTH = 200


@dataclass(frozen=True, slots=True)
class _Limit:
    """``factor * baseline + constant``."""

    factor: float
    constant: float

    def at(self, baseline: float) -> float:
        return self.factor * baseline + self.constant if self.factor else self.constant


@dataclass(frozen=True, slots=True)
class Threshold:
    """A parsed threshold; ``text`` is as written."""

    text: str
    metric: str
    comparison: str
    _limit: _Limit

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Parse a threshold. Raises InputError with the position, or with the metrics for an unknown one."""
        return _Parser(text).threshold()

    def require_metric(self, resources: Iterable[str]) -> None:
        """Raise InputError, with all metrics, if the cluster has no such metric."""
        _require_metric(self.text, self.metric, set(resources))

    def check(self, value: float, baseline: float) -> CheckedThreshold:
        """Compare the metric's value in the candidate with the limit."""
        limit = self._limit.at(baseline)
        return CheckedThreshold(self, value, baseline, limit, _COMPARISONS[self.comparison](value, limit))


@dataclass(frozen=True, slots=True)
class CheckedThreshold:
    """A threshold with the values of its metric in the candidate and in the baseline, and its limit."""

    threshold: Threshold
    value: float
    baseline: float
    limit: float
    crossed: bool


class _Parser:
    """A parser by recursive descent over one threshold."""

    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0

    def threshold(self) -> Threshold:
        if len(self._text) > _MAX_LENGTH:
            raise InputError("threshold", f"expected at most {_MAX_LENGTH} characters, got {len(self._text)}")
        metric = self._match(_METRIC)
        if not metric:
            raise self._error("a metric such as pending")
        _require_metric(self._text, metric, None)
        comparison = self._match(_COMPARISON)
        if not comparison:
            raise self._error(f"one of {' '.join(_COMPARISONS)}")
        limit = self._sum()
        if self._position < len(self._text):
            raise self._error("an operator or the end")
        if not (math.isfinite(limit.factor) and math.isfinite(limit.constant)):
            raise InputError(f"threshold {self._text!r}", "expected smaller numbers")
        return Threshold(self._text.strip(), metric, comparison, limit)

    def _sum(self) -> _Limit:
        limit = self._product()
        while sign := self._take("+", "-"):
            other, factor = self._product(), 1 if sign == "+" else -1
            limit = _Limit(limit.factor + factor * other.factor, limit.constant + factor * other.constant)
        return limit

    def _product(self) -> _Limit:
        limit = self._factor()
        while True:
            position = self._position
            sign = self._take("*", "/")
            if not sign:
                return limit
            other = self._factor()
            if sign == "/":
                if other.factor or not other.constant:
                    raise self._error("a divisor that is a number other than 0", position)
                limit = _Limit(limit.factor / other.constant, limit.constant / other.constant)
            elif limit.factor and other.factor:
                raise self._error("a product with baseline in one factor", position)
            else:
                limit = _Limit(
                    limit.factor * other.constant + limit.constant * other.factor, limit.constant * other.constant
                )

    def _factor(self) -> _Limit:
        position = self._position
        token = self._match(_TOKEN)
        if token == "-":
            negated = self._factor()
            return _Limit(-negated.factor, -negated.constant)
        if token == "(":
            limit = self._sum()
            if not self._take(")"):
                raise self._error(")")
            return limit
        if token == "baseline":
            return _Limit(1.0, 0.0)
        if token[:1].isdigit():
            return _Limit(0.0, float(token))
        raise self._error("a number, baseline or (", position)

    def _take(self, *tokens: str) -> str:
        """The next token if it is one of these, else nothing."""
        position = self._position
        token = self._match(_TOKEN)
        if token in tokens:
            return token
        self._position = position
        return ""

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._position)
        if found is None:
            return ""
        self._position = found.end()
        return found[1]

    def _error(self, expected: str, position: int | None = None) -> InputError:
        at = self._position if position is None else position
        got = repr(self._text[at:]) if at < len(self._text) else "the end"
        return InputError(f"threshold {self._text!r}", f"expected {expected}, got {got}", place=f"column {at + 1}")


def _require_metric(text: str, metric: str, resources: set[str] | None) -> None:
    if not is_metric(metric, resources):
        known = "; ".join(metric_lines(resources))
        raise InputError(f"threshold {text!r}", f"no metric {metric!r}, the metrics are: {known}")
