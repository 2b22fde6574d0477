"""The kubeconfig of an embedded API server: a file of its own, or a context in a user's file.

A context that is added to a user's file is removed when the cluster ends, as kind does it. Entries of kubestow have an
extension, which distinguishes them from entries of the user with the same name: those are never replaced.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.errors import InputError
from kubestow.files import read_file, write_private

if TYPE_CHECKING:
    from kubestow.http.messages import UserInfo
    from kubestow_devcluster.apiserver.server.pki import TLS

_NAME = "kubestow"
_EXTENSION = {"name": "kubestow.dev/cluster", "extension": {}}
_KINDS = {"clusters": "cluster", "users": "user", "contexts": "context"}


@dataclass(frozen=True, slots=True)
class SecureServing:
    """The TLS configuration of a server, if any, and its users by bearer token."""

    tls: TLS | None = None
    tokens: Mapping[str, UserInfo] = field(default_factory=dict)

    @property
    def authenticates(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.tokens) or (self.tls is not None and bool(self.tls.client_ca))


def write_kubeconfig(path: Path, url: str, security: SecureServing) -> None:
    """Write a kubeconfig, as JSON. Raises InputError, also if the file is a kubeconfig of another cluster.

    Its user is the administrator if there is a client certificate for it, else the first user with a token.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": _cluster(url, security)}],
        "users": [{"name": "admin", "user": _credentials(security)}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": "admin"}}],
        "current-context": _NAME,
    }
    if not has_only_our_cluster(path):
        raise InputError(str(path), "already exists and was not written by kubestow; choose another file")
    write_private(path, json.dumps(config, indent=2).encode() + b"\n")


def has_only_our_cluster(path: Path) -> bool:
    """Whether a kubeconfig is missing or empty, or has our cluster and no other. Raises InputError.

    It is YAML once kubectl has rewritten it.
    """
    content = read_file(path) if path.exists() else b""
    try:
        config = load_yaml(content, str(path))
        return not content or [cluster["name"] for cluster in config["clusters"]] == [_NAME]
    except (InputError, KeyError, TypeError):
        return False


@contextmanager
def added_context(path: Path, url: str, security: SecureServing) -> Iterator[None]:
    """Add the context ``kubestow`` to a user's kubeconfig and make it the current one; at the end, undo both.

    Raises InputError if the file cannot be changed or has entries of this name that kubestow did not write.
    """
    path = path.expanduser().resolve()
    values = {"clusters": _cluster(url, security), "users": _credentials(security)}
    values["contexts"] = {"cluster": _NAME, "user": _NAME}
    with _locked(path):
        config = _read(path)
        before = config.get("current-context", "")
        for kind, field in _KINDS.items():
            _remove(config, kind, subject=str(path))
            entry = {**values[kind], "extensions": [deepcopy(_EXTENSION)]}  # one object thrice would be an alias
            config[kind].append({"name": _NAME, field: entry})
        config["current-context"] = _NAME
        _write(path, config)
    try:
        yield
    finally:
        with _locked(path):
            config = _read(path)
            ours = (c["cluster"] for c in config["clusters"] if _named(c) == _NAME and _is_ours(c, "cluster"))
            # Other entries are those of a later cluster, or were removed.
            if next((cluster.get("server") for cluster in ours), None) == url:
                for kind in _KINDS:
                    _remove(config, kind, subject=str(path))
                if config.get("current-context") == _NAME:
                    names = {_named(context) for context in config["contexts"]}
                    config["current-context"] = before if before in names else ""
                _write(path, config)


def _cluster(url: str, security: SecureServing) -> dict[str, Any]:
    cluster: dict[str, Any] = {"server": url}
    if security.tls is not None and security.tls.ca_bundle:
        cluster["certificate-authority-data"] = b64encode(security.tls.ca_bundle).decode()
    elif security.tls is not None:
        cluster["insecure-skip-tls-verify"] = True
    return cluster


def _credentials(security: SecureServing) -> dict[str, Any]:
    if security.tls is not None and security.tls.admin is not None:
        certificate, key = security.tls.admin.certificate, security.tls.admin.key
        return {"client-certificate-data": b64encode(certificate).decode(), "client-key-data": b64encode(key).decode()}
    return {"token": next(iter(security.tokens))} if security.tokens else {}


def _read(path: Path) -> dict[str, Any]:
    """A kubeconfig with all lists; an empty one if there is no file."""
    config = load_yaml(read_file(path), str(path)) if path.exists() else None
    if config is None:
        config = {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    if not isinstance(config, dict):
        raise InputError(str(path), "not a kubeconfig: expected a mapping with clusters, contexts and users")
    for kind in _KINDS:
        config[kind] = config.get(kind) or []
        if not isinstance(config[kind], list):
            raise InputError(str(path), "not a kubeconfig: expected a list", place=kind)
    return config


def _remove(config: dict[str, Any], kind: str, *, subject: str) -> None:
    """Remove our entry of one kind. Raises InputError if an entry of its name is not ours."""
    for index, entry in enumerate(config[kind]):
        if _named(entry) == _NAME and not _is_ours(entry, _KINDS[kind]):
            problem = f'"{_NAME}" was not written by kubestow; rename it, or choose another file'
            raise InputError(subject, problem, place=f"{kind}[{index}]")
    config[kind] = [entry for entry in config[kind] if _named(entry) != _NAME]


def _named(entry: Any) -> Any:
    return entry.get("name") if isinstance(entry, Mapping) else None


def _is_ours(entry: Mapping[str, Any], field: str) -> bool:
    value = entry.get(field)
    extensions = value.get("extensions") if isinstance(value, Mapping) else None
    return any(_named(extension) == _EXTENSION["name"] for extension in extensions or ())


def _write(path: Path, config: Mapping[str, Any]) -> None:
    write_private(path, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True).encode())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold kubectl's lock of a kubeconfig: the existence of a file beside it."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise InputError(str(path), f"is being changed by another program, which holds {lock}") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
