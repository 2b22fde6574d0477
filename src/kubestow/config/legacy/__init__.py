"""Configurations that kube-scheduler no longer reads, turned into v1 ones that decide the same.

    KubeSchedulerConfiguration v1beta2, v1beta3 ─► versions ─┐
                                                             ├─► data of a v1 configuration, and remarks
    Policy, or the ConfigMap that holds it ──────► policy ───┘

What v1 does by itself is left out. What cannot be said in v1 any more is either of no consequence today (a remark says
why) or refused: a configuration that silently stops filtering would be worse than none. Only what is wrong with the old
text is told here; the result is checked like any other configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.config.configuration import API_VERSION, GROUP, KIND
from kubestow.config.document import Document, Unreadable, read_document
from kubestow.config.field_problems import Problem, refusal
from kubestow.config.legacy.conversion import Conversion, Inexpressible
from kubestow.config.legacy.policy import convert_policy
from kubestow.config.legacy.versions import OLD_VERSIONS, convert_version
from kubestow.config.loading import Source

__all__ = ["Conversion", "convert", "is_legacy"]


def convert(source: Source, *, subject: str = "configuration") -> Conversion:
    """The v1 form of a configuration of any version that kube-scheduler ever had since v1beta2, or of a Policy.

    A v1 configuration passes through unchanged. Raises ConfigurationError, with path and line, for what is none of
    these and for what v1 cannot say.
    """
    try:
        document = read_document(source)
        try:
            document = _unwrapped(document)
            return _converted(document)
        except Inexpressible as refused:
            problems = [document.located(problem) for problem in refused.problems]
    except Unreadable as unreadable:
        problems = [unreadable.problem]
    raise refusal(subject, problems)


def is_legacy(source: Source) -> bool:
    """Whether a text is a configuration that :func:`convert` has something to do with."""
    try:
        data = _unwrapped(read_document(source)).data
    except (Unreadable, Inexpressible):
        return False
    return isinstance(data, Mapping) and (_is_policy(data) or data.get("apiVersion") in OLD_VERSIONS)


def _converted(document: Document) -> Conversion:
    data = document.data
    if document.duplicates:
        raise Inexpressible(document.duplicates)
    if isinstance(data, Mapping):
        conversion = _conversion(data)
        if conversion is not None:
            return Conversion(conversion.data, tuple(document.located(remark) for remark in conversion.remarks))
    known = ", ".join(version.rpartition("/")[2] for version in (*OLD_VERSIONS, API_VERSION))
    found = f"{data.get('apiVersion')} {data.get('kind')}" if isinstance(data, Mapping) else "none"
    text = f"expected a {KIND} of {GROUP} ({known}), a Policy, or a ConfigMap with one of these; got {found}"
    raise Inexpressible([Problem("", text)])


def _conversion(data: Mapping[str, Any]) -> Conversion | None:
    if _is_policy(data):
        return convert_policy(data)
    if data.get("kind") != KIND:
        return None
    if data.get("apiVersion") in OLD_VERSIONS:
        return convert_version(data)
    return Conversion(dict(data), ()) if data.get("apiVersion") == API_VERSION else None


def _is_policy(data: Mapping[str, Any]) -> bool:
    """A Policy need not say what it is: scheduler policies in the wild often leave apiVersion and kind out."""
    return data.get("kind") == "Policy" or ("kind" not in data and bool({"predicates", "priorities"} & data.keys()))


def _unwrapped(document: Document) -> Document:
    """The document inside a ConfigMap, which has lines of its own, or the document itself."""
    data = document.data
    if not isinstance(data, Mapping) or data.get("kind") != "ConfigMap":
        return document
    texts = data.get("data")
    if isinstance(texts, Mapping):
        key = "policy.cfg" if "policy.cfg" in texts else next(iter(texts)) if len(texts) == 1 else None
        if key is not None and isinstance(texts[key], str):
            return read_document(texts[key])
    raise Inexpressible([Problem("data", 'expected a key "policy.cfg", or one key with a configuration')])
