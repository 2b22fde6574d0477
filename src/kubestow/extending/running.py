"""An extender put together and run: the profile it serves, the cluster it knows, and the service.

Everything that was given is checked before anything listens; the cluster is read while the service is up already, so
that whoever watches its health sees it fill.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random

from kubestow import config
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import load_credentials
from kubestow.config import API_VERSION, KIND
from kubestow.errors import InputError
from kubestow.extending.binding import Binding
from kubestow.extending.handle import ReadingHandle
from kubestow.extending.mirror import Mirror
from kubestow.extending.opinions import Opinions
from kubestow.extending.service import Service
from kubestow.extending.stanza import Offer
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.scheduling.events.resources import WATCHED, watched
from kubestow.scheduling.ports import Resource
from kubestow.wall_clock import WallClock

__all__ = ["Extending", "alone", "server_tls"]


def alone(names: list[str]) -> dict[str, object]:
    """A configuration whose only profile has these plugins and what no profile can do without."""
    enabled = [{"name": name} for name in dict.fromkeys(["PrioritySort", *names, "DefaultBinder"])]
    profile = {
        "schedulerName": "extender",
        "plugins": {"multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}]}},
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}


@dataclass(frozen=True, slots=True)
class Extending:
    """An extender that could be started: everything but the addresses."""

    mirror: Mirror
    profile: Profile
    offer: Offer
    random: Random

    @classmethod
    def of(
        cls,
        profile: config.KubeSchedulerProfile,
        registry: Registry,
        gates: config.FeatureGates,
        *,
        cached: bool,
        binds: bool = False,
        seed: int | None = None,
    ) -> Extending:
        """A profile's filters and scores. Raises InputError when there is nothing to serve."""
        mirror, random = Mirror(), Random(seed)
        built = build_profile(profile, registry, ReadingHandle(mirror.cluster, gates, random))
        offer = Offer.of(built, cached=cached, binds=binds)
        if not offer.verbs:
            raise InputError(f"profile {profile.scheduler_name}", "neither filters nor scores; nothing to serve")
        return cls(mirror, built, offer, random)

    def unserved(self) -> list[str]:
        """The plugins of the profile that take part elsewhere too, in what the protocol has no word for."""
        points = (self.profile.pre_enqueue, self.profile.reserve, self.profile.permit, self.profile.pre_bind)
        return sorted({plugin.name for plugins in points for plugin in plugins})

    async def run(
        self,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        kubeconfig: str,
        master: str,
        on_listening: Callable[[int], None],
        on_ready: Callable[[], None],
    ) -> None:
        """Serve until cancelled, once the API server answers. Raises InputError, APIError and KubestowError."""
        opinions = Opinions(self.mirror.cluster, self.profile)
        async with AsyncExitStack() as stack:
            if not self.offer.cached:
                service = Service(opinions, self.mirror, self.offer)
                on_listening(await stack.enter_async_context(service.listening(host, port, tls)))
                on_ready()
                await asyncio.get_running_loop().create_future()
                return
            credentials = await load_credentials(kubeconfig, master=master)
            clock = WallClock()
            remote = ClusterClient(credentials, clock=clock, random=self.random)
            cluster = await stack.enter_async_context(remote)
            await cluster.wait_for_api_server()
            binding = Binding(cluster, self.mirror, clock=clock, random=self.random)
            service = Service(opinions, self.mirror, self.offer, binding.bind)
            on_listening(await stack.enter_async_context(service.listening(host, port, tls)))
            self.mirror.on_synced = on_ready
            own = self._own_kinds()
            self.mirror.expect(own)
            await cluster.subscribe((*WATCHED, *own), self.mirror)

    def _own_kinds(self) -> list[Resource]:
        """What plugins want to read beside what is watched anyway. Raises KubestowError."""
        kinds = {kind for plugin in self.profile.plugins for kind in plugin.watched_kinds()}
        return [resource for resource in watched(kinds) if resource not in WATCHED]


def server_tls(certificate: str, key: str, client_authority: str) -> ssl.SSLContext | None:
    """What the service is served with, None for plain HTTP. Raises InputError for files that cannot be used."""
    if not certificate and not key:
        if client_authority:
            raise InputError("--client-ca-file", "goes with --tls-cert-file and --tls-private-key-file")
        return None
    if not (certificate and key):
        raise InputError("--tls-cert-file", "goes together with --tls-private-key-file")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load("--tls-cert-file", lambda: context.load_cert_chain(certificate, key, password=lambda: b""))
    if client_authority:
        _load("--client-ca-file", lambda: context.load_verify_locations(client_authority))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load(option: str, load: Callable[[], None]) -> None:
    try:
        load()
    except ssl.SSLError:
        raise InputError(option, "expected certificates and an unencrypted key that belongs to them, in PEM") from None
    except OSError as error:
        raise InputError(option, f"cannot be read: {error.strerror or error}") from None
