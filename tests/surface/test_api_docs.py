"""The examples of docs/api.md work as they stand there."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.surface.serving import running, small_run

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
EXAMPLES = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with running(small_run(tmp_path_factory.mktemp("docs") / "demo").folder) as found:
        yield found


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_works(port, example, tmp_path):
    (tmp_path / "page.html").write_text("<p>I am <b>here</b>.</p>\n", encoding="utf-8")
    (tmp_path / ".curlrc").write_text("fail\nsilent\nshow-error\nmax-time = 60\n", encoding="utf-8")
    script = "set -e\n" + example.replace("http://localhost:5000", f"http://127.0.0.1:{port}")
    shell = ["bash", "-c", script]
    environment = {"CURL_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_route_has_an_example(port):
    shown = PAGE.read_text(encoding="utf-8")
    paths = httpx.get(f"http://127.0.0.1:{port}/openapi.json", timeout=60).json()["paths"]
    for path in paths.keys() - {"/download_file/{token}"}:
        assert f"http://localhost:5000{path.replace('{name}', 'demo')}" in shown, path
