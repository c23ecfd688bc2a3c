"""Requests made from the API's own description: no 5xx, and no answer that it does not describe."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS

from regard.server.app import create_app
from regard.server.settings import ServerSettings
from tests.server.fakes import FakeRuns
from tests.surface.serving import running, small_run

# The description cannot say which languages go together, so what it allows may still be refused with 400.
TOO_MUCH = {"positive_data_acceptance"}
EXAMPLES = 8
PATIENCE = 60


@pytest.fixture(scope="module")
def description():
    """What is described does not depend on the runs; what answers is a real server."""
    return schemathesis.openapi.from_dict(create_app(FakeRuns(), ServerSettings()).openapi())


@pytest.fixture(autouse=True)
def _named(request):
    request.node._nodeid = request.node.nodeid  # schemathesis reads it; newer versions of pytest do not have it


described = schemathesis.pytest.from_fixture("description")  # when it is tested, not when tests are collected


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(small_run(tmp_path_factory.mktemp("contract") / "en-it").folder) as port:
        yield f"http://127.0.0.1:{port}"


@described.parametrize()
@settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_the_server_keeps_its_contract(case, server):
    checks = [check for check in CHECKS.get_all() if check.__name__ not in TOO_MUCH]
    case.call_and_validate(base_url=server, checks=checks, timeout=PATIENCE)


def test_the_server_gives_the_same_description(server, description):
    assert httpx.get(f"{server}/openapi.json", timeout=PATIENCE).json() == description.raw_schema
