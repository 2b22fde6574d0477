"""A server in memory for each test, with nothing simulated, and a client of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

import pytest

from devcluster_tests.client import Client
from kubestow_devcluster.cluster import DevCluster


@pytest.fixture
def server() -> DevCluster:
    return DevCluster(kubelets=False, random=Random(7), clock=lambda: datetime(2026, 11, 20, 19, 20, tzinfo=UTC))


@pytest.fixture
def client(server: DevCluster) -> Client:
    return Client(server)


@pytest.fixture
def no_errors_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which an error is logged; controllers log unexpected exceptions and continue."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
