"""Options of secure serving, with kube-scheduler's defaults (semantics 1.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kubestow.http.tls import TLSOptions


@dataclass(frozen=True, slots=True)
class RequestHeaderOptions:
    """The headers in which front proxies pass on a user; header names and prefixes are in lower case.

    ``allowed_names`` are the common names of the proxies' certificates; empty allows every name.
    """

    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_header_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DelegatingAuthenticationOptions:
    """How clients are authenticated.

    ``kubeconfig`` is used for TokenReviews, whose results are cached for ``cache_ttl`` seconds. Unless ``skip_lookup``
    is set, client CAs are also read from the cluster; files given here take precedence.
    """

    kubeconfig: str = ""
    cache_ttl: float = 10.0
    skip_lookup: bool = False
    tolerate_lookup_failure: bool = True
    client_ca: Path | None = None
    request_header_ca: Path | None = None
    request_headers: RequestHeaderOptions = field(
        default_factory=lambda: RequestHeaderOptions(
            username_headers=("x-remote-user",),
            group_headers=("x-remote-group",),
            extra_header_prefixes=("x-remote-extra-",),
        )
    )


@dataclass(frozen=True, slots=True)
class DelegatingAuthorizationOptions:
    """How requests are authorized.

    ``kubeconfig`` is used for SubjectAccessReviews, whose results are cached for the TTLs (seconds).
    ``always_allow_paths`` need no authorization; a trailing ``*`` matches any suffix.
    """

    kubeconfig: str = ""
    allowed_ttl: float = 10.0
    denied_ttl: float = 10.0
    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Address and port to listen on, and the options above. Port 0 selects a free port."""

    address: str = "0.0.0.0"
    port: int = 10259
    reuse_port: bool = False
    reuse_address: bool = False
    tls: TLSOptions = field(default_factory=TLSOptions)
    authentication: DelegatingAuthenticationOptions = field(default_factory=DelegatingAuthenticationOptions)
    authorization: DelegatingAuthorizationOptions = field(default_factory=DelegatingAuthorizationOptions)
