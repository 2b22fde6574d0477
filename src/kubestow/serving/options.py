"""What there is to choose about serving, with kube-scheduler's defaults (semantics 1.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "DelegatingAuthenticationOptions",
    "DelegatingAuthorizationOptions",
    "SNICertificate",
    "ServingOptions",
    "TLSOptions",
]


@dataclass(frozen=True, slots=True)
class SNICertificate:
    """A certificate for the clients that ask for one of some names; without names, for those it is made out to."""

    certificate: Path
    key: Path
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TLSOptions:
    """The server's certificates and its terms. Without files a certificate is made, in ``directory`` if there is one.

    ``cipher_suites`` are Go's names, ``min_version`` is spelled "VersionTLS12", ``curves`` are IANA's numbers.
    """

    certificate: Path | None = None
    key: Path | None = None
    directory: Path | None = None
    by_name: tuple[SNICertificate, ...] = ()
    cipher_suites: tuple[str, ...] = ()
    min_version: str = ""
    curves: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DelegatingAuthenticationOptions:
    """Who is known, and how. Files given here go before what the cluster says. ``cache_ttl`` is in seconds."""

    kubeconfig: str = ""
    cache_ttl: float = 10.0
    skip_lookup: bool = False
    tolerate_lookup_failure: bool = True
    client_ca: Path | None = None
    requestheader_ca: Path | None = None
    requestheader_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)


@dataclass(frozen=True, slots=True)
class DelegatingAuthorizationOptions:
    """Who may what. Paths may end in "*". Times are in seconds."""

    kubeconfig: str = ""
    allowed_ttl: float = 10.0
    denied_ttl: float = 10.0
    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Where to listen, and everything else. Port 0 means not to serve at all."""

    address: str = "0.0.0.0"
    port: int = 10259
    reuse_port: bool = False
    reuse_address: bool = False
    tls: TLSOptions = field(default_factory=TLSOptions)
    authentication: DelegatingAuthenticationOptions = field(default_factory=DelegatingAuthenticationOptions)
    authorization: DelegatingAuthorizationOptions = field(default_factory=DelegatingAuthorizationOptions)
