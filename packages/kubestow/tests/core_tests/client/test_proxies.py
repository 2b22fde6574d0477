"""Proxy variables of the environment, by the rules of Go programs."""

from __future__ import annotations

import pytest

from kubestow.http.addresses import proxy_from_environment

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


def test_without_variables_there_is_no_proxy() -> None:
    assert proxy_from_environment("https://api.example:6443", {}) is None


def test_the_scheme_of_the_server_selects_the_variable() -> None:
    assert proxy_from_environment("https://api.example:6443", PROXY) == "http://proxy:3128"
    assert proxy_from_environment("http://api.example:8080", PROXY) is None


def test_a_proxy_without_a_scheme_is_an_http_proxy() -> None:
    assert proxy_from_environment("https://api.example", {"https_proxy": "proxy:3128"}) == "http://proxy:3128"


@pytest.mark.parametrize("server", ["https://localhost:6443", "https://127.0.0.1:6443", "https://[::1]:6443"])
def test_loopback_addresses_are_not_proxied(server: str) -> None:
    assert proxy_from_environment(server, PROXY) is None


@pytest.mark.parametrize(
    ("server", "exceptions"),
    [
        ("https://10.96.0.1", "example.com, 10.0.0.0/8"),
        ("https://10.96.0.1", "10.96.0.1"),
        ("https://[fd00::1]:443", "fd00::/8"),
        ("https://api.example.com", "example.com"),
        ("https://api.example.com", ".example.com"),
        ("https://api.example.com", "API.example.com:443"),
        ("https://api.example.com", "*"),
    ],
)
def test_servers_that_match_no_proxy_are_not_proxied(server: str, exceptions: str) -> None:
    assert proxy_from_environment(server, PROXY | {"NO_PROXY": exceptions}) is None


@pytest.mark.parametrize(
    ("server", "exceptions"),
    [
        ("https://192.168.0.1", "10.0.0.0/8"),
        ("https://example.com", ".example.com"),
        ("https://badexample.com", "example.com"),
        ("https://api.example.com", "api.example.com:8443"),
        ("https://10.0.0.1", "10.0.0.0/99,,0.0.1"),
    ],
)
def test_servers_that_do_not_match_no_proxy_are_proxied(server: str, exceptions: str) -> None:
    assert proxy_from_environment(server, PROXY | {"NO_PROXY": exceptions}) == "http://proxy:3128"
