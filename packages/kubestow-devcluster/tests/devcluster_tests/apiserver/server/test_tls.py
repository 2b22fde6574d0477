"""HTTPS: certificates of the self-signed CA or from files, and authentication by client certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest

from devcluster_tests.client import PODS, Client
from kubestow.errors import InputError
from kubestow.http.certificates import CertificateAuthority, KeyPair
from kubestow.http.messages import UserInfo
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.apiserver.server.pki import TLS, serving_hosts
from kubestow_devcluster.apiserver.storage.database import Database
from kubestow_devcluster.cluster import DevCluster

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def client_context(tls: TLS, directory: Path, pair: KeyPair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=tls.ca_bundle.decode())
    if pair is not None:
        pair.write(directory / "client.crt", directory / "client.key")
        context.load_cert_chain(directory / "client.crt", directory / "client.key")
    return context


async def whoami(server: DevCluster, context: ssl.SSLContext, token: str = "") -> tuple[int, str]:
    """The status code of a SelfSubjectReview, and the user name."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as session,
        session.post(WHOAMI, json={}, ssl=context) as response,
    ):
        review = await response.json()
        return response.status, review["status"]["userInfo"]["username"] if response.status == 201 else ""


async def test_a_self_signed_server_authenticates_its_administrator(tmp_path: Path) -> None:
    tls = TLS.self_signed(serving_hosts("127.0.0.1"))
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        assert server.url.startswith("https://")
        assert await whoami(server, client_context(tls, tmp_path, tls.admin)) == (201, "kubernetes-admin")
        assert await whoami(server, client_context(tls, tmp_path)) == (401, "")


async def test_a_token_authenticates_without_a_certificate(tmp_path: Path) -> None:
    tls = TLS.self_signed(serving_hosts("127.0.0.1"))
    async with DevCluster(
        kubelets=False, apiserver=APIServerOptions(tls=tls, tokens={"secret": UserInfo("ann")})
    ) as server:
        assert await whoami(server, client_context(tls, tmp_path), "secret") == (201, "ann")
        assert await whoami(server, client_context(tls, tmp_path), "wrong") == (401, "")


async def test_a_certificate_of_an_unknown_ca_fails_the_handshake(tmp_path: Path) -> None:
    tls = TLS.self_signed(serving_hosts("127.0.0.1"))
    unknown = CertificateAuthority.generate("unknown").issue_client_certificate("kubernetes-admin", ["system:masters"])
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        with pytest.raises(aiohttp.ClientError):
            await whoami(server, client_context(tls, tmp_path, unknown))
        assert (await whoami(server, client_context(tls, tmp_path, tls.admin)))[0] == 201


async def test_client_certificates_of_a_given_ca_are_authenticated(tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("ca")
    authority.issue_server_certificate(["127.0.0.1"]).write(tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    tls = TLS.from_files(tmp_path / "tls.crt", tmp_path / "tls.key", client_ca=tmp_path / "ca.crt")
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    authority.issue_client_certificate("ann").write(tmp_path / "ann.crt", tmp_path / "ann.key")
    context.load_cert_chain(tmp_path / "ann.crt", tmp_path / "ann.key")
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        assert await whoami(server, context) == (201, "ann")


async def test_the_client_ca_is_published_in_a_config_map(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    tls, versions = TLS.self_signed(["127.0.0.1"]), []
    for _ in range(2):
        async with DevCluster(
            kubelets=False, apiserver=APIServerOptions(tls=tls), database=Database(tmp_path)
        ) as server:
            published = (await Client(server).get(path)).json
            assert published["data"] == {"client-ca-file": tls.ca_bundle.decode()}
            versions.append(published["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]
    async with DevCluster(kubelets=False, database=Database(tmp_path)) as server:
        assert (await Client(server).get(path)).status == 404


async def test_without_a_client_ca_all_requests_are_accepted(tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("ca")
    authority.issue_server_certificate(["127.0.0.1"]).write(tmp_path / "tls.crt", tmp_path / "tls.key")
    tls = TLS.from_files(tmp_path / "tls.crt", tmp_path / "tls.key")
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        assert await whoami(server, context) == (201, "system:admin")


async def test_a_stored_ca_is_used_again(tmp_path: Path) -> None:
    first = TLS.self_signed(["127.0.0.1"], directory=tmp_path / "data" / "pki")
    again = TLS.self_signed(["127.0.0.1"], directory=tmp_path / "data" / "pki")
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=again)) as server:
        assert (await whoami(server, client_context(first, tmp_path, first.admin)))[0] == 201
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


async def test_plain_http_is_rejected_and_the_server_keeps_serving(tmp_path: Path) -> None:
    tls = TLS.self_signed(serving_hosts("127.0.0.1"))
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tls=tls)) as server:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{server.apiserver.port}{PODS}")
        assert (await whoami(server, client_context(tls, tmp_path, tls.admin)))[0] == 201


def test_a_server_on_all_interfaces_is_reached_by_its_host_name() -> None:
    assert serving_hosts("127.0.0.1") == ["localhost", "127.0.0.1", "::1"]
    assert serving_hosts("10.1.2.3")[-1] == "10.1.2.3"
    assert len(serving_hosts("0.0.0.0")) > 4


def test_invalid_certificate_files_are_one_line_errors(tmp_path: Path) -> None:
    pair, other = [CertificateAuthority.generate("a").issue_server_certificate(["localhost"]) for _ in range(2)]
    pair.write(tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "junk").write_text("junk")
    (tmp_path / "other.key").write_bytes(other.key)
    for certificate, key, authorities, problem in (
        ("junk", "tls.key", None, "is not a certificate and its key in PEM"),
        ("tls.crt", "other.key", None, "KEY_VALUES_MISMATCH"),
        ("tls.crt", "tls.key", "junk", "junk: contains no certificates in PEM"),
        ("tls.crt", "none", None, "none: cannot be read"),
        ("tls.crt", "tls.key", "none", "none: cannot be read"),
    ):
        client_ca = None if authorities is None else tmp_path / authorities
        with pytest.raises(InputError, match=problem):
            TLS.from_files(tmp_path / certificate, tmp_path / key, client_ca=client_ca)
