"""Kubeconfig files: read, merged, and resolved to one context.

Several files (the list in ``$KUBECONFIG``) are merged as kubectl does: the first file that defines a name, or a current
context, wins. Errors name the file and the position in it. The result, a :class:`KubeconfigContext`, holds one cluster
and one user with absolute paths. How the user authenticates is up to :mod:`kubestow.client.rest.credentials`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.api.meta import convert
from kubestow.errors import InputError, InvalidObject
from kubestow.files import read_file


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="kebab"):
    """The base of kubeconfig structs: kebab-case keys, unknown fields ignored."""


class KubeconfigCluster(_Entry, frozen=True):
    """``clusters[].cluster``."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class KubeconfigUser(_Entry, frozen=True):
    """``users[].user``."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] = msgspec.field(default_factory=list, name="as-groups")
    impersonate_extra: dict[str, list[str]] = msgspec.field(default_factory=dict, name="as-user-extra")
    auth_provider: dict[str, Any] | None = None
    exec: dict[str, Any] | None = None


class _Context(_Entry, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Entry, frozen=True):
    name: str
    cluster: KubeconfigCluster = KubeconfigCluster()


class _NamedUser(_Entry, frozen=True):
    name: str
    user: KubeconfigUser = KubeconfigUser()


class _NamedContext(_Entry, frozen=True):
    name: str
    context: _Context = _Context()


class _File(_Entry, frozen=True):
    current_context: str = ""
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []


T = TypeVar("T")
E = TypeVar("E", bound=_Entry)


@dataclass(frozen=True, slots=True)
class Located(Generic[T]):
    """An entry of a kubeconfig with its file and its position there, for error messages."""

    file: Path
    place: str
    value: T

    def input_error(self, key: str, problem: str) -> InputError:
        """The error to raise when the field ``key`` of this entry is invalid; without a key, the entry itself."""
        return InputError(str(self.file), problem, place=f"{self.place}.{key}" if key else self.place)


@dataclass(frozen=True, slots=True)
class KubeconfigContext:
    """A context with its cluster and its user; ``namespace`` is the one that kubectl uses by default, "" for none."""

    name: str
    cluster: Located[KubeconfigCluster]
    user: Located[KubeconfigUser]
    namespace: str = ""

    def as_config(self) -> dict[str, Any]:
        """A kubeconfig document that contains only this context, with absolute paths."""
        return {
            "current-context": self.name,
            "contexts": [{"name": self.name, "context": {"cluster": "cluster", "user": "user"}}],
            "clusters": [{"name": "cluster", "cluster": msgspec.to_builtins(self.cluster.value)}],
            "users": [{"name": "user", "user": msgspec.to_builtins(self.user.value)}],
        }


@dataclass(slots=True)
class _Merged:
    files: list[Path] = field(default_factory=list)
    current_context: str = ""
    clusters: dict[str, Located[KubeconfigCluster]] = field(default_factory=dict)
    users: dict[str, Located[KubeconfigUser]] = field(default_factory=dict)
    contexts: dict[str, Located[_Context]] = field(default_factory=dict)

    def add(self, path: Path, content: _File) -> None:
        self.files.append(path)
        self.current_context = self.current_context or content.current_context
        for index, cluster in enumerate(content.clusters):
            self.clusters.setdefault(cluster.name, Located(path, f"clusters[{index}].cluster", cluster.cluster))
        for index, user in enumerate(content.users):
            self.users.setdefault(user.name, Located(path, f"users[{index}].user", user.user))
        for index, context in enumerate(content.contexts):
            self.contexts.setdefault(context.name, Located(path, f"contexts[{index}].context", context.context))

    @property
    def subject(self) -> str:
        return ", ".join(map(str, self.files))


def read_kubeconfig(paths: Sequence[Path], *, context: str = "") -> KubeconfigContext:
    """Read and merge the files and resolve ``context``, by default the current one. Raises InputError.

    Missing files of a list are skipped unless all are missing.
    """
    existing = [path for path in paths if path.exists()] if len(paths) > 1 else paths
    if not existing:
        raise InputError(", ".join(map(str, paths)), "none of these kubeconfig files exists")
    merged = _Merged()
    for path in existing:
        merged.add(path, _read(path))
    return _resolve(merged, context)


def _read(path: Path) -> _File:
    document = load_yaml(read_file(path), str(path))
    if not isinstance(document, dict):
        raise InputError(str(path), "not a kubeconfig: expected a YAML mapping with clusters, contexts and users")
    try:
        return convert(_File, document)
    except InvalidObject as error:
        raise InputError(str(path), error.problem, place=error.path) from None


def _resolve(merged: _Merged, name: str) -> KubeconfigContext:
    name = name or merged.current_context
    if not name:
        raise InputError(merged.subject, "no context is set or given", place="current-context")
    context = merged.contexts.get(name)
    if context is None:
        known = ", ".join(sorted(merged.contexts)) or "none"
        raise InputError(merged.subject, f"context {name!r} does not exist; known contexts: {known}", place="contexts")
    cluster = merged.clusters.get(context.value.cluster)
    if cluster is None:
        raise context.input_error("cluster", f"cluster {context.value.cluster!r} does not exist in clusters")
    user = merged.users.get(context.value.user)
    if user is None and context.value.user:
        raise context.input_error("user", f"user {context.value.user!r} does not exist in users")
    if user is None:
        user = Located(context.file, context.place, KubeconfigUser())
    return KubeconfigContext(name, _checked_cluster(cluster), _checked_user(user), context.value.namespace)


def is_http_url(text: str) -> bool:
    """Whether the text is the URL of an HTTP server."""
    try:
        url = urlsplit(text)
        return text.startswith(("https://", "http://")) and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is not a number or too large, or brackets that do not match
        return False


def _checked_cluster(cluster: Located[KubeconfigCluster]) -> Located[KubeconfigCluster]:
    if not is_http_url(cluster.value.server):
        raise cluster.input_error("server", f"expected an http or https URL, got {cluster.value.server!r}")
    if cluster.value.proxy_url and not is_http_url(cluster.value.proxy_url):
        # Without the URL, which may contain a password.
        raise cluster.input_error("proxy-url", "expected an http or https URL; SOCKS proxies are not supported")
    _check_base64(cluster, "certificate-authority-data", cluster.value.certificate_authority_data)
    authority = _absolute(cluster, "certificate-authority", cluster.value.certificate_authority)
    return _replaced(cluster, certificate_authority=authority)


def _checked_user(user: Located[KubeconfigUser]) -> Located[KubeconfigUser]:
    _check_base64(user, "client-certificate-data", user.value.client_certificate_data)
    _check_base64(user, "client-key-data", user.value.client_key_data)
    certificate = _absolute(user, "client-certificate", user.value.client_certificate)
    key = _absolute(user, "client-key", user.value.client_key)
    if bool(certificate or user.value.client_certificate_data) != bool(key or user.value.client_key_data):
        raise user.input_error("", "client-certificate and client-key must be set together")
    token_file = _absolute(user, "tokenFile", user.value.token_file)
    plugin = _absolute_command(user)
    return _replaced(user, client_certificate=certificate, client_key=key, token_file=token_file, exec=plugin)


def _absolute_command(user: Located[KubeconfigUser]) -> dict[str, Any] | None:
    """The exec plugin; a command with a slash is relative to its kubeconfig, others are in the PATH."""
    plugin = user.value.exec
    command = None if plugin is None else plugin.get("command")
    if plugin is None or not isinstance(command, str) or os.sep not in command:
        return plugin
    return plugin | {"command": str((user.file.parent / command).absolute())}


def _replaced(entry: Located[E], **changes: Any) -> Located[E]:
    return Located(entry.file, entry.place, msgspec.structs.replace(entry.value, **changes))


def _check_base64(entry: Located[Any], key: str, data: str) -> None:
    try:
        base64.b64decode(data, validate=False)
    except binascii.Error as error:
        raise entry.input_error(key, f"expected base64: {error}") from None


def _absolute(entry: Located[Any], key: str, name: str) -> str:
    """Resolve a path, which is relative to the directory of its kubeconfig, and check that it is a file."""
    if not name:
        return ""
    path = (entry.file.parent / name).absolute()
    if not path.is_file():
        raise entry.input_error(key, f"expected an existing file, got {path}")
    return str(path)
