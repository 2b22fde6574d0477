"""HTTPS: certificates made here or given, and users who are known by theirs."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest

from kubestow.certificates import CertificateAuthority, KeyPair
from kubestow.devcluster.apiserver.requests import UserInfo
from kubestow.devcluster.apiserver.server import APIServerOptions
from kubestow.devcluster.apiserver.storage.database import Database
from kubestow.devcluster.apiserver.tls import TLS, hosts_of
from kubestow.devcluster.cluster import DevCluster
from kubestow.errors import InputError
from tests.devcluster.client import PODS, Client

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def trusting(tls: TLS, directory: Path, pair: KeyPair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=tls.trust.decode())
    if pair is not None:
        pair.write(directory / "client.crt", directory / "client.key")
        context.load_cert_chain(directory / "client.crt", directory / "client.key")
    return context


async def asked(server: DevCluster, context: ssl.SSLContext, token: str = "") -> tuple[int, str]:
    """The status of whoami, and the name."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as session,
        session.post(WHOAMI, json={}, ssl=context) as response,
    ):
        answer = await response.json()
        return response.status, answer["status"]["userInfo"]["username"] if response.status == 201 else ""


async def test_a_self_made_server_is_trusted_and_knows_its_administrator(tmp_path: Path) -> None:
    tls = TLS.self_made(hosts_of("127.0.0.1"))
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        assert server.url.startswith("https://")
        assert await asked(server, trusting(tls, tmp_path, tls.admin)) == (201, "kubernetes-admin")
        assert await asked(server, trusting(tls, tmp_path)) == (401, "")


async def test_a_token_does_as_well_as_a_certificate(tmp_path: Path) -> None:
    tls = TLS.self_made(hosts_of("127.0.0.1"))
    async with DevCluster(
        kubelets=False, apiserver=APIServerOptions(tls=tls, tokens={"secret": UserInfo("ann")})
    ) as server:
        assert await asked(server, trusting(tls, tmp_path), "secret") == (201, "ann")
        assert await asked(server, trusting(tls, tmp_path), "wrong") == (401, "")


async def test_a_certificate_of_a_stranger_ends_the_handshake(tmp_path: Path) -> None:
    tls = TLS.self_made(hosts_of("127.0.0.1"))
    stranger = CertificateAuthority.generate("stranger").issue_client_certificate(
        "kubernetes-admin", ["system:masters"]
    )
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        with pytest.raises(aiohttp.ClientError):
            await asked(server, trusting(tls, tmp_path, stranger))
        assert (await asked(server, trusting(tls, tmp_path, tls.admin)))[0] == 201


async def test_users_of_an_authority_given_are_known_by_their_certificates(tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("company")
    authority.issue_server_certificate(["127.0.0.1"]).write(tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    tls = TLS.of_files(tmp_path / "tls.crt", tmp_path / "tls.key", client_ca=tmp_path / "ca.crt")
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    authority.issue_client_certificate("ann").write(tmp_path / "ann.crt", tmp_path / "ann.key")
    context.load_cert_chain(tmp_path / "ann.crt", tmp_path / "ann.key")
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        assert await asked(server, context) == (201, "ann")


async def test_other_servers_of_the_cluster_are_told_whose_certificates_name_users(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    tls, versions = TLS.self_made(["127.0.0.1"]), []
    for _ in range(2):
        async with DevCluster(
            kubelets=False, apiserver=APIServerOptions(tls=tls), database=Database(tmp_path)
        ) as server:
            published = (await Client(server).get(path)).json
            assert published["data"] == {"client-ca-file": tls.trust.decode()}
            versions.append(published["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]
    async with DevCluster(kubelets=False, database=Database(tmp_path)) as server:
        assert (await Client(server).get(path)).status == 404


async def test_without_an_authority_for_clients_nobody_is_asked(tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("company")
    authority.issue_server_certificate(["127.0.0.1"]).write(tmp_path / "tls.crt", tmp_path / "tls.key")
    tls = TLS.of_files(tmp_path / "tls.crt", tmp_path / "tls.key")
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        assert await asked(server, context) == (201, "system:admin")


async def test_an_authority_is_kept_so_that_clients_go_on_trusting(tmp_path: Path) -> None:
    first = TLS.self_made(["127.0.0.1"], directory=tmp_path / "data" / "pki")
    again = TLS.self_made(["127.0.0.1"], directory=tmp_path / "data" / "pki")
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=again)) as server:
        assert (await asked(server, trusting(first, tmp_path, first.admin)))[0] == 201
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


async def test_plain_http_and_noise_get_no_answer_and_harm_nobody(tmp_path: Path) -> None:
    tls = TLS.self_made(hosts_of("127.0.0.1"))
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{server.apiserver.port}{PODS}")
        assert (await asked(server, trusting(tls, tmp_path, tls.admin)))[0] == 201


def test_a_server_that_listens_everywhere_is_reached_by_its_name_too() -> None:
    assert hosts_of("127.0.0.1") == ["localhost", "127.0.0.1", "::1"]
    assert hosts_of("10.1.2.3")[-1] == "10.1.2.3"
    assert len(hosts_of("0.0.0.0")) > 4


def test_files_that_are_no_certificates_are_one_line(tmp_path: Path) -> None:
    pair, other = [CertificateAuthority.generate("a").issue_server_certificate(["localhost"]) for _ in range(2)]
    pair.write(tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "junk").write_text("junk")
    (tmp_path / "other.key").write_bytes(other.key)
    for certificate, key, authorities, problem in (
        ("junk", "tls.key", None, "is not a certificate and its key in PEM"),
        ("tls.crt", "other.key", None, "KEY_VALUES_MISMATCH"),
        ("tls.crt", "tls.key", "junk", "junk: holds no certificates in PEM"),
        ("tls.crt", "none", None, "none: cannot be read"),
        ("tls.crt", "tls.key", "none", "none: cannot be read"),
    ):
        client_ca = None if authorities is None else tmp_path / authorities
        with pytest.raises(InputError, match=problem):
            TLS.of_files(tmp_path / certificate, tmp_path / key, client_ca=client_ca)
