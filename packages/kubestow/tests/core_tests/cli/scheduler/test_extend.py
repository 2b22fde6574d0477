"""The command line of ``kubestow extend``."""

from __future__ import annotations

import socket

import pytest

from kubestow.cli import main

WARNING = "warning: reachable from other machines: all clients have full access"
PLUGIN = "core_tests.extender.example_plugins:Colour"


def standard_error(capfd: pytest.CaptureFixture[str], address: str, port: int) -> list[str]:
    """The lines of a server that cannot listen on its address."""
    with pytest.raises(SystemExit):
        main(["extend", "--no-cache", "--plugin", PLUGIN, "--bind-address", address, "--port", str(port)])
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_a_server_without_client_authentication_warns_beyond_loopback(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert standard_error(capfd, address, 1).count(WARNING) == 1


def test_a_server_on_loopback_does_not_warn(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert WARNING not in standard_error(capfd, "127.0.0.1", other.getsockname()[1])
