"""Where an API server is and how to convince it: address, TLS, headers; kept fresh while they expire.

Credentials come from a kubeconfig, from the service account of the pod we run in, or are just an address. Tokens,
exec plugins, OIDC and token files that rotate are the business of kubernetes_asyncio's config loader. It is imported
only when there is something for it to load: the import takes a quarter of a second, for it brings all of that package.
Refreshed OIDC tokens are not written back into the kubeconfig.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from multidict import CIMultiDict

from kubestow.client.rest.kubeconfig import Located, Target, User, read_kubeconfig
from kubestow.client.rest.proxies import proxy_from_environment
from kubestow.errors import InputError

__all__ = ["Credentials", "load_credentials", "service_account"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _Source(Protocol):
    """Where credentials come from. What is loaded carries the attributes of kubernetes_asyncio's configuration."""

    async def load(self) -> SimpleNamespace:
        """Read everything anew."""

    async def refresh(self) -> SimpleNamespace | None:
        """Renew what is about to expire; None when there is nothing that could."""

    def complaint(self, problem: str) -> InputError:
        """The error to raise when what was loaded is of no use."""


class Credentials:
    """How to reach one API server.

    ``headers`` is replaced as a whole when the token changes, and ``tls`` learns a new client certificate in place, so
    both are always fit for the next request.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        proxy: str | None = None,
        headers: CIMultiDict[str] | None = None,
        source: _Source | None = None,
    ) -> None:
        self.server = server.rstrip("/")
        self.tls, self.tls_server_name, self.proxy = tls, tls_server_name, proxy
        self.headers: CIMultiDict[str] = CIMultiDict() if headers is None else headers
        self._source = source
        self._certificate: tuple[str, str] | None = None
        self._renewing = asyncio.Lock()

    async def refresh(self) -> None:
        """Renew what is about to expire: to be called once a minute. Raises InputError; the old ones then stay."""
        if self._source is not None:
            async with self._renewing:
                loaded = await self._source.refresh()
                if loaded is not None:
                    self.adopt(loaded)

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """Read all anew after the server refused these headers; True if there are others to try now.

        Raises InputError when they cannot be read; the old ones then stay.
        """
        if self._source is None:
            return False
        async with self._renewing:
            if self.headers is refused:  # else another request, refused as well, has been here first
                self.adopt(await self._source.load())
            return self.headers is not refused

    def adopt(self, loaded: SimpleNamespace) -> None:
        """Take over the token and the client certificate that a source has loaded."""
        authorization = loaded.api_key.get("BearerToken", "").strip()  # token files end in a newline
        if authorization and authorization != self.headers.get("Authorization"):
            self.headers = self.headers.copy()
            self.headers["Authorization"] = authorization
        certificate: str | None = getattr(loaded, "cert_file", None)
        if certificate and (certificate, loaded.key_file) != self._certificate:
            self._load_certificate(certificate, loaded.key_file)

    def _load_certificate(self, certificate: str, key: str) -> None:
        if self.tls is None or self._source is None:
            return
        try:
            # An encrypted key must fail; without a password OpenSSL would ask for one on the terminal.
            self.tls.load_cert_chain(certificate, key, password=lambda: b"")
        except (ssl.SSLError, OSError) as error:
            raise self._source.complaint(f"expected a client certificate and its key in PEM: {error}") from None
        self._certificate = (certificate, key)


async def load_credentials(kubeconfig: str = "", *, context: str = "", master: str = "") -> Credentials:
    """Find credentials: the kubeconfig named, or with ``master`` alone a bare address, or what is found.

    Looked for are, in this order, the files of ``$KUBECONFIG``, ``~/.kube/config`` and a service account mounted into
    this pod. ``master`` overrides the kubeconfig's server; without a kubeconfig named along with it none is read, so
    that no token of one cluster is ever shown to another. Raises InputError.
    """
    if master and not kubeconfig:
        return _bare(master)
    if files := _kubeconfig_files(kubeconfig):
        return await _from_kubeconfig(files, context=context, master=master)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return await _from_service_account()
    raise InputError("kubeconfig", "none given, none at ~/.kube/config, and this is not a pod with a service account")


async def service_account() -> Credentials | None:
    """The credentials of the pod that we run in; None when this is no pod. Raises InputError."""
    return await _from_service_account() if "KUBERNETES_SERVICE_HOST" in os.environ else None


def _kubeconfig_files(named: str) -> list[Path]:
    names = [named] if named else [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if names:
        return [Path(name).expanduser() for name in names]
    default = Path.home() / ".kube" / "config"
    return [default] if default.exists() else []


def _bare(server: str) -> Credentials:
    if not server.startswith(("https://", "http://")):
        raise InputError("master", f"expected an http or https URL, got {server!r}")
    tls = _tls_context() if server.startswith("https:") else None
    return Credentials(server, tls=tls, proxy=proxy_from_environment(server, os.environ))


class _KubeconfigSource:
    """A user of a kubeconfig, through kubernetes_asyncio."""

    def __init__(self, paths: list[Path], context: str) -> None:
        self._paths, self._context = paths, context
        self._loader: Any = None
        self.target = read_kubeconfig(paths, context=context)

    async def load(self) -> SimpleNamespace:
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        self.target = read_kubeconfig(self._paths, context=self._context)
        self._loader = KubeConfigLoader(self.target.as_config(), config_base_path=None)
        return await self._ask_loader()

    async def refresh(self) -> SimpleNamespace | None:
        return await self._ask_loader() if self._may_expire(self.target.user.value) else None

    async def _ask_loader(self) -> SimpleNamespace:
        loaded = SimpleNamespace(api_key={})
        try:
            await self._loader.load_and_set(loaded)
        except Exception as error:  # it runs foreign programs and asks foreign servers: whatever it raises is theirs
            raise self.complaint(f"these credentials do not work: {error}") from error
        return loaded

    def _may_expire(self, user: User) -> bool:
        if user.exec is not None:  # a plugin that names no expiry is run again only when the server refuses its token
            return hasattr(self._loader, "exec_plugin_expiry")
        return bool(user.auth_provider or user.token_file)

    def complaint(self, problem: str) -> InputError:
        return self.target.user.complaint("", problem)


class _ServiceAccountSource:
    """The service account of the pod we run in; its token file is rotated by the kubelet."""

    async def load(self) -> SimpleNamespace:
        from kubernetes_asyncio.config import ConfigException
        from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

        token, authority = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
        loaded = SimpleNamespace(api_key={})
        try:
            InClusterConfigLoader(str(token), str(authority), try_refresh_token=False).load_and_set(loaded)
        except (ConfigException, OSError) as error:
            raise self.complaint(f"the pod's service account cannot be used: {error}") from None
        return loaded

    async def refresh(self) -> SimpleNamespace | None:
        return await self.load()

    def complaint(self, problem: str) -> InputError:
        return InputError(str(SERVICE_ACCOUNT), problem)


async def _from_kubeconfig(paths: list[Path], *, context: str, master: str) -> Credentials:
    source = _KubeconfigSource(paths, context)
    loaded = await source.load()
    cluster = source.target.cluster.value
    server = master or cluster.server
    credentials = Credentials(
        server,
        tls=_kubeconfig_tls(source.target, loaded) if server.startswith("https:") else None,
        tls_server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or proxy_from_environment(server, os.environ),
        headers=_impersonation(source.target.user.value),
        source=source,
    )
    credentials.adopt(loaded)
    return credentials


async def _from_service_account() -> Credentials:
    source = _ServiceAccountSource()
    loaded = await source.load()
    try:
        tls = _tls_context(loaded.ssl_ca_cert)
    except ssl.SSLError as error:
        raise InputError(loaded.ssl_ca_cert, f"expected certificates in PEM: {error}") from None
    proxy = proxy_from_environment(loaded.host, os.environ)
    credentials = Credentials(loaded.host, tls=tls, proxy=proxy, source=source)
    credentials.adopt(loaded)
    return credentials


def _kubeconfig_tls(target: Target, loaded: SimpleNamespace) -> ssl.SSLContext:
    try:
        context = _tls_context(getattr(loaded, "ssl_ca_cert", None))
    except ssl.SSLError as error:
        raise _authority_complaint(target.cluster, error) from None
    if target.cluster.value.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _authority_complaint(cluster: Located[Any], error: ssl.SSLError) -> InputError:
    key = "certificate-authority-data" if cluster.value.certificate_authority_data else "certificate-authority"
    return cluster.complaint(key, f"expected certificates in PEM: {error}")


def _tls_context(authority: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    # Python 3.13 refuses certificates that lack extensions which many clusters' own authorities never wrote.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _impersonation(user: User) -> CIMultiDict[str]:
    """The headers by which a user asks to act as somebody else."""
    headers: CIMultiDict[str] = CIMultiDict()
    if user.impersonate:
        headers["Impersonate-User"] = user.impersonate
    if user.impersonate_uid:
        headers["Impersonate-Uid"] = user.impersonate_uid
    for group in user.impersonate_groups:
        headers.add("Impersonate-Group", group)
    for key, values in user.impersonate_extra.items():
        for value in values:
            headers.add(f"Impersonate-Extra-{key}", value)
    return headers
