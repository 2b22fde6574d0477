"""The composition root of ``kubestow extend``: profile, watch cache and HTTP server.

All options are validated before the server listens. The cache is filled while the server already runs, so that
``/readyz`` reports the progress.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kubestow import config
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import load_credentials
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.config import API_VERSION, KIND
from kubestow.errors import InputError
from kubestow.extender.binder import ExtenderBinder
from kubestow.extender.extender_server import ExtenderServer
from kubestow.extender.handle import ReadOnlyHandle
from kubestow.extender.profile_extender import ExtenderCapabilities, ProfileExtender
from kubestow.files import read_file
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.http.certificates import KeyPair
from kubestow.http.tls import ServerTLS, TLSOptions
from kubestow.process import WallClock
from kubestow.rules.minors import Minor
from kubestow.scheduling.events.resources import WATCHED, watched
from kubestow.scheduling.events.watch_cache import WatchCache


def minimal_configuration(names: list[str]) -> dict[str, object]:
    """A configuration with one profile of these plugins and the mandatory QueueSort and Bind plugins."""
    enabled = [{"name": name} for name in dict.fromkeys(["PrioritySort", *names, "DefaultBinder"])]
    profile = {
        "schedulerName": "extender",
        "plugins": {"multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}]}},
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}


@dataclass(frozen=True, slots=True)
class ExtenderApp:
    """A configured extender, ready to run."""

    cache: WatchCache
    profile: Profile
    capabilities: ExtenderCapabilities
    random: Random
    handle: ReadOnlyHandle

    @classmethod
    def of(
        cls,
        profile: config.KubeSchedulerProfile,
        registry: Registry,
        gates: config.FeatureGates,
        *,
        pod_group_apis: Iterable[PodGroupAPI] = (),
        node_cache_capable: bool,
        binds: bool = False,
        seed: int | None = None,
    ) -> ExtenderApp:
        """Build the extender of a profile. Raises InputError if the profile neither filters nor scores."""
        cache, random = WatchCache(pod_group_apis, gates=gates), Random(seed)
        handle = ReadOnlyHandle(cache.cluster, gates, random)
        built = build_profile(profile, registry, handle)
        capabilities = ExtenderCapabilities.of(built, node_cache_capable=node_cache_capable, binds=binds)
        if not capabilities.verbs:
            problem = "has neither Filter nor Score plugins, nothing to serve"
            raise InputError(f"profile {profile.scheduler_name}", problem)
        return cls(cache, built, capabilities, random, handle)

    @property
    def minor(self) -> Minor:
        """The minor version of Kubernetes that is emulated."""
        return self.handle.minor

    def partially_served(self) -> list[str]:
        """The plugins of the profile that also implement extension points without a counterpart in the protocol."""
        plugins = self.profile.runtime.plugins
        points = (plugins.pre_enqueue, plugins.reserve, plugins.permit, plugins.pre_bind)
        return sorted({plugin.name for point in points for plugin in point})

    async def run(
        self,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        kubeconfig: str,
        master: str,
        context: str = "",
        on_listening: Callable[[int], None],
        on_ready: Callable[[], None],
    ) -> None:
        """Wait for the API server, then serve until cancelled. Raises InputError, APIError and KubestowError."""
        extender = ProfileExtender(self.cache.cluster, self.profile)
        self.handle.start_periodic_work()
        async with AsyncExitStack() as stack:
            if not self.capabilities.node_cache_capable:
                server = ExtenderServer(extender, self.cache, self.capabilities)
                on_listening(await stack.enter_async_context(server.listen(host, port, tls)))
                on_ready()
                await asyncio.get_running_loop().create_future()
                return
            credentials = await load_credentials(kubeconfig, context=context, master=master)
            clock = WallClock()
            remote = ClusterClient(credentials, clock=clock, random=self.random)
            cluster = await stack.enter_async_context(remote)
            await cluster.wait_for_api_server()
            await cluster.versions.discover()
            binder = ExtenderBinder(cluster, self.cache, clock=clock, random=self.random)
            server = ExtenderServer(extender, self.cache, self.capabilities, binder.bind)
            on_listening(await stack.enter_async_context(server.listen(host, port, tls)))
            self.cache.on_synced = on_ready
            kinds = {kind for plugin in self.profile.plugins for kind in plugin.watched_kinds()}
            additional = [resource for resource in watched(kinds) if resource not in WATCHED]
            self.cache.expect(additional)
            await cluster.subscribe((*self.cache.watched, *additional), self.cache)


def server_tls(certificate: str, key: str, client_authority: str) -> ssl.SSLContext | None:
    """The TLS context of the server, None for plain HTTP. Raises InputError for invalid options and files."""
    if not certificate and not key:
        if client_authority:
            raise InputError("--client-ca-file", "requires --tls-cert-file and --tls-private-key-file")
        return None
    if not (certificate and key):
        raise InputError("--tls-cert-file, --tls-private-key-file", "must be set together")
    with _errors_of("--tls-cert-file"):
        tls = ServerTLS(TLSOptions(), pair=KeyPair.read(Path(certificate), Path(key)))
    if client_authority:
        with _errors_of("--client-ca-file"):
            tls.trust(read_file(Path(client_authority)), required=True)
    return tls.context


@contextmanager
def _errors_of(option: str) -> Iterator[None]:
    """InputErrors inside name the option."""
    try:
        yield
    except InputError as error:
        raise InputError(option, error.problem) from None
