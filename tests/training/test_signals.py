"""Signals that ask training to save and stop."""

import os
import signal
import subprocess
import sys
import time

import pytest

from regard.errors import Terminated
from regard.training.signals import StopRequest, interruptible

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")

SCRIPT = """
import sys, time
from pathlib import Path
from regard.training.signals import StopRequest
folder = Path(sys.argv[1])
with StopRequest() as stop:
    (folder / "ready").touch()
    until = time.monotonic() + 60
    while not stop.requested and time.monotonic() < until:
        time.sleep(0.01)
    print("a line for the terminal", file=sys.stderr, flush=True)
    (folder / "saved").write_text(str(stop.terminated))
"""


@pytest.mark.parametrize(("number", "kind"), [("SIGHUP", Terminated), ("SIGTERM", Terminated)])
def test_a_signal_requests_a_stop(number, kind):
    number = getattr(signal, number)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), number)
            assert stop.requested
            assert type(stop.interruption()) is kind
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_nohup_is_respected():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_commands_respect_nohup_too():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        with pytest.raises(Terminated), interruptible():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_system_without_the_signal(monkeypatch):
    monkeypatch.setattr("regard.training.signals.STOP_SIGNALS", (signal.SIGINT, signal.SIGTERM))
    monkeypatch.setattr("regard.training.signals.HANGUP", None)
    before = signal.getsignal(signal.SIGHUP)
    with StopRequest():
        assert signal.getsignal(signal.SIGHUP) == before


def test_a_closed_terminal_lets_training_save(tmp_path):
    import pty

    master, slave = pty.openpty()

    def take_terminal():  # so that closing it is told by SIGHUP
        import fcntl
        import termios

        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=take_terminal
    )
    os.close(slave)
    until = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.close(master)
    assert process.wait(60) == 0
    assert (tmp_path / "saved").read_text() == "True"
