"""Extenders over HTTP (semantics 2.6, 5.5), each with connections, TLS settings and a timeout of its own.

The messages of the protocol are in :mod:`kubestow.api.extender`; :mod:`kubestow.scheduling.extenders.stages` applies
the results. Every failure becomes an ExtenderError: connection errors, timeouts, a status other than 200, a response
that is too long or malformed, and an error that the extender itself reports.

The rules for their ``tlsConfig`` are client-go's: data takes precedence over files; a certificate authority and
``insecure`` are mutually exclusive; ``enableHTTPS`` without a certificate authority disables verification. Files that
have changed are loaded again before the next request.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Self, TypeVar

import aiohttp
import msgspec
from msgspec import Raw

from kubestow import config
from kubestow.api import extender as wire
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.credentials import TLSFiles
from kubestow.client.rest.transport import JSON, USER_AGENT, describe_connection_error
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError, InputError, InvalidObject
from kubestow.framework.interface import Victims
from kubestow.http.addresses import proxy_from_environment
from kubestow.log_fields import fields
from kubestow.scheduling.extenders.stages import ExtenderFilterResponse, ExtenderVictims, PodGone

_log = logging.getLogger(__name__)

T = TypeVar("T")

_DEFAULT_TIMEOUT = 5.0
#: A response may repeat the objects of the request; reasons and other fields may add this many bytes.
_RESPONSE_ALLOWANCE = 2**24


class HTTPExtender:
    """Implements :class:`kubestow.scheduling.extenders.stages.Extender`. Use as ``async with``.

    Raises InputError for invalid TLS settings.
    """

    def __init__(self, settings: config.Extender, raw_objects: RawObjectCache) -> None:
        self.settings = settings
        self._raw_objects = raw_objects
        self._base = settings.url_prefix.rstrip("/")
        self._tls = _ExtenderTLS(settings)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=90),
            headers={"User-Agent": USER_AGENT},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self.settings.http_timeout.seconds or _DEFAULT_TIMEOUT),
            proxy=proxy_from_environment(self._base, os.environ),
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._session is not None
        await self._session.close()

    # -- verbs ---------------------------------------------------------------------------------------------------------

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        """The nodes that pass the filter verb. Raises ExtenderError, also for nodes that were not sent."""
        verb = self.settings.filter_verb
        result = await self._call(verb, self._extender_args(verb, pod, names), wire.FilterResult)
        if result.error:
            raise self._error(verb, result.error)
        passed = self._passed(verb, result)
        sent = frozenset(names)
        for name in passed:
            if name not in sent:
                problem = f'claims a filtered node "{name}" which is not found in the input node list'
                raise self._error(verb, f'extender "{self.settings.url_prefix}" {problem}')
        return ExtenderFilterResponse(passed, result.failed_nodes, result.failed_and_unresolvable_nodes)

    def _passed(self, verb: str, result: wire.FilterResult) -> Sequence[str]:
        """The node names of a result; an extender that is not ``nodeCacheCapable`` returns whole nodes."""
        if self.settings.node_cache_capable and result.node_names is not None:
            return result.node_names
        items = [] if result.nodes is None else result.nodes.items
        try:
            return [wire.name_of(node) for node in items]
        except InvalidObject as error:
            raise self._error(verb, f"malformed response: Nodes.items: {error}") from None

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """The scores of the prioritize verb by node name, not yet weighted. Raises ExtenderError."""
        verb = self.settings.prioritize_verb
        scores = await self._call(verb, self._extender_args(verb, pod, names), list[wire.HostPriority])
        return [(score.host, score.score) for score in scores]

    async def preempt(self, pod: PodInfo, candidates: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        """The preemption candidates that the extender accepts, with their victims. Raises ExtenderError."""
        verb = self.settings.preempt_verb
        raw_pod = self._pod(verb, pod)
        if self.settings.node_cache_capable:
            meta_victims = {
                name: wire.MetaVictims(
                    pods=[wire.MetaPod(uid=victim.uid) for victim in victims.pods],
                    num_pdb_violations=victims.violations,
                )
                for name, victims in candidates.items()
            }
            args = wire.PreemptionArgs(pod=raw_pod, node_name_to_meta_victims=meta_victims)
        else:
            all_victims = {name: self._victims(victims) for name, victims in candidates.items()}
            args = wire.PreemptionArgs(pod=raw_pod, node_name_to_victims=all_victims)
        result = await self._call(verb, args, wire.PreemptionResult)
        return {
            name: ExtenderVictims([victim.uid for victim in victims.pods], victims.num_pdb_violations)
            for name, victims in result.node_name_to_meta_victims.items()
        }

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod. Raises ExtenderError, in which case the pod may be bound nevertheless."""
        verb = self.settings.bind_verb
        args = wire.BindingArgs(pod_name=pod.name, pod_namespace=pod.namespace, pod_uid=pod.uid, node=node_name)
        result = await self._call(verb, args, wire.BindingResult)
        if result.error:
            raise self._error(verb, result.error)

    # -- arguments -----------------------------------------------------------------------------------------------------

    def _extender_args(self, verb: str, pod: PodInfo, names: Sequence[str]) -> wire.ExtenderArgs:
        if self.settings.node_cache_capable:
            return wire.ExtenderArgs(pod=self._pod(verb, pod), node_names=list(names))
        nodes = (self._raw_objects.node(name) for name in names)
        items = [node for node in nodes if node is not None]  # the others were deleted meanwhile
        return wire.ExtenderArgs(pod=self._pod(verb, pod), nodes=wire.NodeList(items=items))

    def _pod(self, verb: str, pod: PodInfo) -> Raw:
        raw_pod = self._raw_objects.pod(pod.namespace, pod.name, pod.uid)
        if raw_pod is None:
            raise PodGone(self.settings.url_prefix, verb, f"pod {pod.key} is gone")
        return raw_pod

    def _victims(self, victims: Victims) -> wire.Victims:
        pods = (self._raw_objects.pod(pod.namespace, pod.name, pod.uid) for pod in victims.pods)
        return wire.Victims(pods=[pod for pod in pods if pod is not None], num_pdb_violations=victims.violations)

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    async def _call(self, verb: str, args: msgspec.Struct, result: type[T]) -> T:
        """The decoded response. Retries once if an idle connection was closed, except for bind."""
        body = msgspec.json.encode(args)
        try:
            try:
                response = await self._send(verb, body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
                if verb == self.settings.bind_verb:
                    raise
                response = await self._send(verb, body)
            return wire.read(result, response)
        except InvalidObject as error:
            raise self._error(verb, f"malformed response: {error}") from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._error(verb, f'Post "{self._base}/{verb}": {_describe(error)}') from error

    async def _send(self, verb: str, body: bytes) -> bytes:
        assert self._session is not None, "the extender is used outside its async with"
        url = f"{self._base}/{verb}"
        server_name = self.settings.tls_config.server_name if self.settings.tls_config else ""
        async with self._session.post(
            url,
            data=body,
            headers={"Content-Type": JSON},
            ssl=self._tls.current(),  # others than those of an idle connection do not use it
            server_hostname=server_name or None,
            allow_redirects=False,  # to a host that the configuration does not name, with the pod
        ) as response:
            if response.status != 200:
                raise self._error(verb, f"failed {verb} with extender at URL {url}, code {response.status}")
            received, limit = bytearray(), len(body) + _RESPONSE_ALLOWANCE
            async for chunk in response.content.iter_any():
                received += chunk
                if len(received) > limit:
                    raise self._error(verb, f"response exceeds {limit} bytes")
            return bytes(received)

    def _error(self, verb: str, problem: str) -> ExtenderError:
        return ExtenderError(self.settings.url_prefix, verb, problem)


def _describe(error: Exception) -> str:
    """One line of text for an exception of aiohttp, of a connection, or of the operating system."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return describe_connection_error(error.certificate_error)
        case aiohttp.ClientConnectorDNSError():
            return describe_connection_error(error.os_error)
        case aiohttp.ServerDisconnectedError():
            return "connection closed before a response"
        case aiohttp.ClientPayloadError():
            return "connection closed in the middle of a response"
        case _:
            return describe_connection_error(error)


class _ExtenderTLS:
    """The TLS settings of an extender, loaded again when a file of them has changed.

    Raises InputError for invalid settings.
    """

    def __init__(self, settings: config.Extender) -> None:
        tls = settings.tls_config or config.ExtenderTLSConfig()
        self._settings = settings
        self._files = TLSFiles(
            None if tls.ca_data else tls.ca_file,
            None if tls.cert_data else tls.cert_file,
            None if tls.key_data else tls.key_file,
        )
        self._stamps = self._files.stamps()
        self._context = tls_context(settings)

    def current(self) -> ssl.SSLContext:
        """The context for a connection. A failure to load it is logged and keeps the former one."""
        stamps = self._files.stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = tls_context(self._settings)
            except InputError as error:
                text = "cannot reload the files of the TLS settings, continuing with the old ones: %s"
                _log.warning(text, error, extra=fields(extender=self._settings.url_prefix, err=str(error)))
        return self._context


def tls_context(settings: config.Extender) -> ssl.SSLContext:
    """The TLS context for connections to the extender. Raises InputError for invalid settings."""
    tls = settings.tls_config or config.ExtenderTLSConfig()
    has_authority = bool(tls.ca_data or tls.ca_file)
    if has_authority and tls.insecure:
        raise _input_error(settings, "specifying a root certificates file with the insecure flag is not allowed")
    try:
        context = ssl.create_default_context(cadata=_authority(tls) if has_authority else None)
        # Python 3.13 rejects certificates without certain extensions, which many clusters' authorities do not issue.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls.insecure or (settings.enable_https and not has_authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_data or tls.cert_file or tls.key_data or tls.key_file:
            _load_certificate(context, settings, tls)
    except OSError as error:  # includes ssl.SSLError
        subject = error.filename or "expected certificates and keys in PEM"
        raise _input_error(settings, f"{subject}: {error.strerror or error}") from None
    return context


def _authority(tls: config.ExtenderTLSConfig) -> str:
    data = tls.ca_data or Path(tls.ca_file).read_bytes()
    return data.decode("ascii", errors="replace")


def _load_certificate(context: ssl.SSLContext, settings: config.Extender, tls: config.ExtenderTLSConfig) -> None:
    certificate = tls.cert_data or (Path(tls.cert_file).read_bytes() if tls.cert_file else b"")
    key = tls.key_data or (Path(tls.key_file).read_bytes() if tls.key_file else b"")
    if not (certificate and key):
        raise _input_error(settings, "a client certificate and its key must be set together")
    with NamedTemporaryFile() as file:  # mode 0600; the ssl module loads certificates only from files
        file.write(certificate + b"\n" + key)
        file.flush()
        # With no password callback OpenSSL prompts on the terminal for the password of an encrypted key.
        context.load_cert_chain(file.name, password=lambda: b"")


def _input_error(settings: config.Extender, problem: str) -> InputError:
    return InputError(f"extender {settings.url_prefix}", problem, place="tlsConfig")
