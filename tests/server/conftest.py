"""One server without models for all tests that need no other settings: creating one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.server.fakes import FakeRuns, client_of


@pytest.fixture(scope="module")
def _pretended() -> Iterator[tuple[FakeRuns, TestClient]]:
    runs = FakeRuns()
    with client_of(runs) as client:
        yield runs, client


@pytest.fixture
def runs(_pretended: tuple[FakeRuns, TestClient]) -> FakeRuns:
    """Runs that nothing has happened to."""
    for served in _pretended[0].served.values():
        served.reset()
    return _pretended[0]


@pytest.fixture
def client(_pretended: tuple[FakeRuns, TestClient], runs: FakeRuns) -> TestClient:
    """A client of the server before them."""
    return _pretended[1]
