"""`regard serve` before it serves: options become settings, and what is wrong is one line."""

import argparse
import importlib.util
import re
import signal
import socket
import subprocess
import sys

import pytest

from regard.cli import main
from regard.cli.serve import configure, given_settings
from regard.server.serve import address, bind, warnings
from regard.server.settings import ServerSettings
from regard.terminal import Parser
from tests.export.runs import random_recipe, random_run
from tests.server.fakes import FakeTranslator

PATIENCE = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return random_run(tmp_path_factory.mktemp("serve") / "en-it", random_recipe()).folder


def parse(*arguments: str) -> argparse.Namespace:
    parser = Parser("regard serve")
    configure(parser)
    return parser.parse_args(list(arguments))


def test_what_is_not_given_is_left_to_the_settings():
    assert given_settings(parse("runs/demo")) == ServerSettings()


def test_options_become_settings():
    options = parse(
        "a", "b", "--port", "8080", "--timeout", "2.5", "--engine", "torch", "--quiet",
        "--allow-host", "one", "--allow-host", "two", "--body-bytes", "5000",
    )  # fmt: skip
    expected = ServerSettings(
        port=8080, timeout=2.5, engine="torch", quiet=True, allow_host=("one", "two"), body_bytes=5000
    )
    assert options.runs == ["a", "b"]
    assert given_settings(options) == expected


def failure(capsys, *arguments):
    assert main(["serve", *map(str, arguments)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("regard: ")
    return lines[0]


def test_what_is_wrong_is_one_line(capsys, run, tmp_path, monkeypatch):
    assert "nothing to serve" in failure(capsys)
    assert 'did you mean "en-it"?' in failure(capsys, run.parent / "en-ti")
    assert "--port must be" in failure(capsys, run, "--port", "70000")
    assert "give an address of this machine" in failure(capsys, run, "--host", "no.such.host.invalid")
    assert "contains no key" in failure(capsys, run, "--port", "0", "--keys", _file(tmp_path / "keys.jsonl"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert failure(capsys, run).endswith('which is not installed: pip install "regard[serve]"')


def _file(path):
    path.write_text("")
    return path


def test_a_port_in_use_is_told_before_anything_is_loaded(capsys, run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1, port {port}" in failure(capsys, run, "--port", port)


def test_where_to_open_the_page():
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")):
        with bind(host, 0) as listener:
            assert address(listener) == f"http://{shown}:{listener.getsockname()[1]}"


class Rivals:
    """Runs that translate the same pair."""

    def __init__(self, *names):
        self.runs = [FakeTranslator(name) for name in names]

    def same_pair(self):
        return [self.runs] if self.runs else []


def test_what_may_not_be_meant_is_told():
    assert list(warnings(Rivals(), ServerSettings())) == []
    assert list(warnings(Rivals(), ServerSettings(host="0.0.0.0", keys="keys.jsonl"))) == []
    [warning] = warnings(Rivals(), ServerSettings(host="0.0.0.0"))
    assert warning.startswith("warning: with --host 0.0.0.0 and no --keys, everyone")
    [told] = warnings(Rivals("old", "new", "newer"), ServerSettings())
    assert told == "en to it: /translate uses old; to use new, newer, set model at /v1/translate"


def test_neither_torch_nor_the_web_server_is_imported_before_it_is_needed():
    code = "import sys, regard.cli.serve; sys.exit(bool({'torch', 'fastapi', 'uvicorn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ctrl_c_ends_it_in_peace(run):
    command = [sys.executable, "-m", "regard", "serve", str(run), "--port", "0", "--engine", "torch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline()
            assert re.fullmatch(r"serving en-it \(.*\); open http://127\.0\.0\.1:\d+ \(Ctrl-C stops\)\n", said)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
            assert process.stdout.read() == process.stderr.read() == ""
        finally:
            process.kill()  # else one that goes on would be waited for
