"""Credentials for an API server: address, TLS and request headers, and how they are renewed before they expire.

Credentials come from a kubeconfig, from the service account of the pod (in-cluster), or consist of an address only.
The config loader of kubernetes_asyncio evaluates certificates, token files, exec credential plugins and OIDC; it is
imported only when it is needed, because the import takes a quarter of a second. Refreshed OIDC tokens are not written
back to the kubeconfig.

The files of certificate authorities, client certificates and tokens are replaced while the process runs. Their contents
are compared once a minute and after a TLS handshake that failed, and their modification times before each handshake.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import quote

from multidict import CIMultiDict

from kubestow.client.rest.kubeconfig import (
    KubeconfigCluster,
    KubeconfigContext,
    KubeconfigUser,
    Located,
    is_http_url,
    read_kubeconfig,
)
from kubestow.errors import InputError
from kubestow.http.addresses import proxy_from_environment
from kubestow.log_fields import fields

_log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: The characters of a header name besides letters, digits and ``_.-~``, without the percent sign.
_HEADER_NAME = "!#$&'*+^`|"


class _CredentialSource(Protocol):
    """Where credentials are loaded from. They have the attributes of a kubernetes_asyncio ``Configuration``."""

    async def load(self) -> SimpleNamespace:
        """Load everything again. Raises InputError."""

    async def refresh(self) -> SimpleNamespace | None:
        """Renew what is about to expire; None if nothing can expire. Raises InputError."""

    def input_error(self, problem: str) -> InputError:
        """The error to raise when the loaded credentials cannot be used."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """The files that TLS settings are loaded from: the authority of the server, the client certificate, its key."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def _paths(self) -> list[str]:
        return [path for path in (self.authority, self.certificate, self.key) if path]

    def stamps(self) -> list[tuple[int, int, int] | None]:
        """What changes when a file is replaced or written; None for a file that is missing."""
        return [_stamp(path) for path in self._paths()]

    def contents(self) -> list[bytes]:
        """The contents of the files. Raises OSError."""
        return [Path(path).read_bytes() for path in self._paths()]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class Credentials:
    """The address of an API server and the credentials for it.

    A new authority or client certificate replaces ``tls``. Each new token, authority or certificate replaces
    ``headers``, so that another object there means other credentials. ``authority`` is the file of certificates that
    ``tls`` was made with.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        proxy: str | None = None,
        headers: CIMultiDict[str] | None = None,
        source: _CredentialSource | None = None,
        authority: str | None = None,
    ) -> None:
        self.server = server.rstrip("/")
        self.tls, self.tls_server_name, self.proxy = tls, tls_server_name, proxy
        self.headers: CIMultiDict[str] = CIMultiDict() if headers is None else headers
        self._source = source
        self._files = TLSFiles(authority)
        self._stamps = self._files.stamps()
        #: What ``tls`` was made from.
        self._contents: list[bytes] = [] if authority is None else [Path(authority).read_bytes()]
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Renew what is about to expire; call this once a minute. Raises InputError and keeps the old credentials."""
        if self._source is not None:
            async with self._lock:
                loaded = await self._source.refresh()
                if loaded is not None:
                    self.apply(loaded)
                else:
                    self._load_tls(self._files)

    def tls_for_connection(self) -> ssl.SSLContext | None:
        """``tls``, loaded again if its files have changed. A failure is logged and keeps the former settings."""
        if self._files.stamps() != self._stamps:
            try:
                self._load_tls(self._files)
            except InputError as error:
                text = "cannot reload the files of the TLS settings, continuing with the old ones: %s"
                _log.warning(text, error, extra=fields(err=str(error)))
        return self.tls

    async def reload(self, rejected: Mapping[str, str]) -> bool:
        """Load everything again after the server rejected a request with these headers; True if anything is new.

        Raises InputError and keeps the old credentials.
        """
        if self._source is None:
            return False
        async with self._lock:
            if self.headers is rejected:  # else a concurrent request has reloaded them already
                self.apply(await self._source.load())
            return self.headers is not rejected

    def apply(self, loaded: SimpleNamespace) -> None:
        """Use the token and the files that a source has loaded from now on. Raises InputError."""
        authorization = loaded.api_key.get("BearerToken", "").strip()  # token files end in a newline
        if authorization and authorization != self.headers.get("Authorization"):
            self.headers = self.headers.copy()
            self.headers["Authorization"] = authorization
        names = ("ssl_ca_cert", "cert_file", "key_file")
        self._load_tls(TLSFiles(*(getattr(loaded, name, None) for name in names)))

    def _load_tls(self, files: TLSFiles) -> None:
        """Make new TLS settings if the contents of the files are others than those of ``tls``. Raises InputError."""
        if self.tls is None or self._source is None:
            return
        self._stamps = files.stamps()  # so that what is written from now on is noticed
        try:
            contents = files.contents()
            if contents == self._contents:
                self._files = files
                return
            tls = _tls_context(files.authority)
        except OSError as error:  # ssl.SSLError is one
            raise self._source.input_error(f"cannot load {files.authority}, expected PEM: {error}") from None
        tls.check_hostname, tls.verify_mode = self.tls.check_hostname, self.tls.verify_mode
        if files.certificate and files.key:
            try:
                # With no password callback OpenSSL prompts on the terminal for the password of an encrypted key.
                tls.load_cert_chain(files.certificate, files.key, password=lambda: b"")
            except OSError as error:
                raise self._source.input_error(f"expected a client certificate and its key in PEM: {error}") from None
        self.tls, self._files, self._contents = tls, files, contents
        self.headers = self.headers.copy()


async def load_credentials(kubeconfig: str = "", *, context: str = "", master: str = "") -> Credentials:
    """Load credentials by the loading rules below. Raises InputError.

    1. With ``master`` and without ``kubeconfig``: the address alone. No kubeconfig is read, so that no credentials of
       one cluster are sent to another.
    2. The file ``kubeconfig``, else the files of ``$KUBECONFIG``, else ``~/.kube/config``; ``context`` replaces the
       current context, ``master`` the address of the cluster.
    3. The service account of the pod.
    """
    if master and not is_http_url(master):
        raise InputError("master", f"expected an http or https URL, got {master!r}")
    if master and not kubeconfig:
        tls = _tls_context() if master.startswith("https:") else None
        return Credentials(master, tls=tls, proxy=proxy_from_environment(master, os.environ))
    if files := _kubeconfig_files(kubeconfig):
        return await _from_kubeconfig(files, context=context, master=master)
    credentials = await load_in_cluster_credentials()
    if credentials is None:
        problem = "not given, no file at ~/.kube/config, and this process does not run in a pod; give --kubeconfig"
        raise InputError("kubeconfig", problem + _development_kubeconfig())
    return credentials


def default_namespace(kubeconfig: str = "", *, context: str = "", master: str = "") -> str:
    """The namespace of commands that are given none, as kubectl finds it. Raises InputError.

    It is that of the context which :func:`load_credentials` uses, or else of the pod's service account, or "default".
    """
    if master and not kubeconfig:
        return "default"
    if files := _kubeconfig_files(kubeconfig):
        return read_kubeconfig(files, context=context).namespace or "default"
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


async def load_in_cluster_credentials() -> Credentials | None:
    """The service account of the pod; None if this process does not run in a pod. Raises InputError."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        return None
    source = _ServiceAccountSource()
    loaded = await source.load()
    try:
        tls = _tls_context(loaded.ssl_ca_cert)
    except ssl.SSLError as error:
        raise InputError(loaded.ssl_ca_cert, f"expected certificates in PEM: {error}") from None
    proxy = proxy_from_environment(loaded.host, os.environ)
    credentials = Credentials(loaded.host, tls=tls, proxy=proxy, source=source, authority=loaded.ssl_ca_cert)
    credentials.apply(loaded)
    return credentials


def _development_kubeconfig() -> str:
    """The file that ``kubestow up`` writes into the working directory by default, as a suggestion; "" without it."""
    path = Path("kubestow.kubeconfig")
    return f" ./{path}, which kubestow up wrote" if path.exists() else ""


def _kubeconfig_files(explicit: str) -> list[Path]:
    names = [explicit] if explicit else [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if names:
        return [Path(name).expanduser() for name in names]
    default = Path.home() / ".kube" / "config"
    return [default] if default.exists() else []


async def _from_kubeconfig(paths: list[Path], *, context: str, master: str) -> Credentials:
    source = _KubeconfigSource(paths, context)
    loaded = await source.load()
    cluster = source.context.cluster.value
    server = master or cluster.server
    credentials = Credentials(
        server,
        tls=_kubeconfig_tls(source.context.cluster, loaded) if server.startswith("https:") else None,
        tls_server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or proxy_from_environment(server, os.environ),
        headers=_impersonation(source.context.user.value),
        source=source,
        authority=getattr(loaded, "ssl_ca_cert", None) if server.startswith("https:") else None,
    )
    credentials.apply(loaded)
    return credentials


class _KubeconfigSource:
    """A user of a kubeconfig, evaluated by kubernetes_asyncio."""

    def __init__(self, paths: list[Path], context_name: str) -> None:
        self._paths, self._context_name = paths, context_name
        self._loader: Any = None
        self.context: KubeconfigContext = read_kubeconfig(paths, context=context_name)

    async def load(self) -> SimpleNamespace:
        self.context = read_kubeconfig(self._paths, context=self._context_name)
        if _has_at_most_a_token(self.context):
            token = self.context.user.value.token
            return SimpleNamespace(api_key={"BearerToken": f"Bearer {token}"} if token else {})

        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        self._loader = KubeConfigLoader(self.context.as_config(), config_base_path=None)
        return await self._load_user()

    async def refresh(self) -> SimpleNamespace | None:
        return await self._load_user() if self._can_expire(self.context.user.value) else None

    async def _load_user(self) -> SimpleNamespace:
        loaded = SimpleNamespace(api_key={})
        try:
            await self._loader.load_and_set(loaded)
        except Exception as error:  # exec plugins and OIDC clients raise exceptions of any type
            raise self.input_error(f"cannot obtain credentials: {error}") from error
        return loaded

    def _can_expire(self, user: KubeconfigUser) -> bool:
        if user.exec is not None:  # an exec plugin that returns no expiry runs again only after a 401
            return hasattr(self._loader, "exec_plugin_expiry")
        return bool(user.auth_provider or user.token_file or user.client_certificate)

    def input_error(self, problem: str) -> InputError:
        return self.context.user.input_error("", problem)


class _ServiceAccountSource:
    """The service account of the pod; the kubelet rotates its token file."""

    async def load(self) -> SimpleNamespace:
        from kubernetes_asyncio.config import ConfigException
        from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

        token, authority = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
        loaded = SimpleNamespace(api_key={})
        try:
            InClusterConfigLoader(str(token), str(authority), try_refresh_token=False).load_and_set(loaded)
        except (ConfigException, OSError) as error:
            raise self.input_error(f"cannot load the service account of the pod: {error}") from None
        return loaded

    async def refresh(self) -> SimpleNamespace | None:
        return await self.load()

    def input_error(self, problem: str) -> InputError:
        return InputError(str(SERVICE_ACCOUNT), problem)


def _has_at_most_a_token(context: KubeconfigContext) -> bool:
    """Whether there is nothing to evaluate: no certificates, and no credentials but a token in the kubeconfig."""
    user, cluster = context.user.value, context.cluster.value
    return not (
        user.exec is not None
        or user.auth_provider is not None
        or user.token_file
        or user.username
        or user.client_certificate
        or user.client_certificate_data
        or cluster.certificate_authority
        or cluster.certificate_authority_data
    )


def _kubeconfig_tls(cluster: Located[KubeconfigCluster], loaded: SimpleNamespace) -> ssl.SSLContext:
    try:
        context = _tls_context(getattr(loaded, "ssl_ca_cert", None))
    except ssl.SSLError as error:
        key = "certificate-authority-data" if cluster.value.certificate_authority_data else "certificate-authority"
        raise cluster.input_error(key, f"expected certificates in PEM: {error}") from None
    if cluster.value.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _tls_context(authority: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    # Python 3.13 rejects certificates without certain extensions, which many clusters' authorities do not issue.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _impersonation(user: KubeconfigUser) -> CIMultiDict[str]:
    """The impersonation headers of a kubeconfig user (``as``, ``as-groups``, …)."""
    headers: CIMultiDict[str] = CIMultiDict()
    if user.impersonate:
        headers["Impersonate-User"] = user.impersonate
    if user.impersonate_uid:
        headers["Impersonate-Uid"] = user.impersonate_uid
    for group in user.impersonate_groups:
        headers.add("Impersonate-Group", group)
    for key, values in user.impersonate_extra.items():
        for value in values:  # the API server decodes keys, which often contain a slash
            headers.add(f"Impersonate-Extra-{quote(key, safe=_HEADER_NAME)}", value)
    return headers
