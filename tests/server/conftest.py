"""One server that pretends, for all tests that leave its settings alone: to make one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.server.fakes import FakeFleet, client_of


@pytest.fixture(scope="module")
def _pretended() -> Iterator[tuple[FakeFleet, TestClient]]:
    fleet = FakeFleet()
    with client_of(fleet) as client:
        yield fleet, client


@pytest.fixture
def fleet(_pretended: tuple[FakeFleet, TestClient]) -> FakeFleet:
    """Runs that nothing has happened to."""
    for served in _pretended[0].served.values():
        served.reset()
    return _pretended[0]


@pytest.fixture
def client(_pretended: tuple[FakeFleet, TestClient], fleet: FakeFleet) -> TestClient:
    """A client of the server before them."""
    return _pretended[1]
