"""What holds for every answer: headers, errors as JSON, figures, and logs that hold nothing of what a user wrote."""

import logging
import re

import pytest

from tests.server.fakes import FakeRuns, client_of

SECRET = "my secret sentence"


ANSWERS = {
    "page": ("GET", "/", 200),
    "asset": ("GET", "/page/common/theme.css", 200),
    "health": ("GET", "/health", 200),
    "reference": ("GET", "/docs", 200),
    "nothing there": ("GET", "/nothing", 404),
    "nothing in v1": ("GET", "/v1/nothing", 404),
    "wrong method": ("DELETE", "/translate", 405),
    "no body": ("POST", "/v1/translate", 415),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_every_answer_carries_the_headers(client, case):
    method, path, status = ANSWERS[case]
    answer = client.request(method, path)
    assert answer.status_code == status
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"


def test_errors_have_the_form_that_clients_of_the_path_expect(client):
    assert client.get("/nothing").json() == {"error": "there is nothing at this address; see /docs"}
    error = client.get("/v1/nothing").json()["error"]
    assert error == {
        "message": "there is nothing at this address; see /docs", "type": "invalid_request_error",
        "param": None, "code": None,
    }  # fmt: skip
    refused = client.put("/translate")
    assert refused.status_code == 405
    assert "POST" in refused.headers["allow"]
    assert refused.json() == {"error": "this method is not allowed here; see /docs"}


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/page/__init__.py"])
def test_no_path_leads_into_the_file_system(client, path):
    assert client.get(path).status_code == 404


def test_what_nobody_expected_is_told_to_the_log_without_the_text(caplog):
    runs = FakeRuns()
    runs["en-it"].trouble = KeyError(SECRET)
    logging.getLogger("regard.server").propagate = True
    with client_of(runs) as client, caplog.at_level(logging.INFO, "regard.server"):
        answer = client.post("/translate?q=also", json={"q": SECRET, "source": "en", "target": "it"})
    assert answer.status_code == 500
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    assert answer.json()["error"].startswith("internal error")
    assert "KeyError" in caplog.text
    assert "fakes.py" in caplog.text
    assert SECRET not in caplog.text
    assert re.search(r"POST /translate 500 [\d.]+ ms", caplog.text)
    assert "also" not in caplog.text


def test_a_log_line_stays_one_line(client, caplog):
    logging.getLogger("regard.server").propagate = True
    with caplog.at_level(logging.INFO, "regard.server"):
        client.get("/a%0ab%1b[31m")
    assert "GET /a%0ab%1b" in caplog.messages[-1]
    assert "\n" not in caplog.messages[-1]


def test_metrics_count_requests_by_route_and_never_by_what_clients_make_up():
    with client_of() as client:
        client.post("/translate", json={"q": "one two", "source": "en", "target": "it"})
        client.get("/made-up-by-a-client")
        figures = client.get("/metrics")
    assert figures.headers["content-type"].startswith("text/plain")
    assert 'regard_requests_total{method="POST",route="/translate",status="200"} 1.0' in figures.text
    assert 'regard_requests_total{method="GET",route="other",status="404"} 1.0' in figures.text
    assert 'regard_tokens_total{model="en-it"} 2.0' in figures.text
    assert "regard_request_seconds_bucket" in figures.text
    assert "made-up" not in figures.text


def test_the_fleet_is_closed_once_when_the_server_stops():
    runs = FakeRuns()
    with client_of(runs):
        assert runs.closed == 0
    assert runs.closed == 1


def test_the_reference_loads_nothing_from_elsewhere(client):
    page = client.get("/docs").text
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(https?:)?//", page)
    for path in ("/translate", "/v1/translate", "/v1/chat/completions", "/translate_file"):
        assert f"POST {path}</code>" in page
    for sheet in re.findall(r'href="(page/[^"]+)"', page):
        assert client.get(f"/{sheet}").status_code == 200


def test_the_description_names_our_errors_and_not_the_framework_s(client):
    api = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in api["components"]["schemas"]
    for path, operations in api["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"], path
            assert operation["description"], path
    kinds = api["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert set(kinds) == {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"}
    assert "security" not in api["paths"]["/translate"]["post"]


def test_telemetry_stays_off_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with client_of() as client:
        assert client.get("/health").json() == {"status": "ok"}
