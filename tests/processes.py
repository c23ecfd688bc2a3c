"""Commands in processes of their own that start at once.

A new interpreter takes many seconds to import all that training needs. These processes are forked from one that has
imported it already, has one thread, and has run nothing. What it means to start from nothing is tested elsewhere.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import reduction
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])


class Descriptor:
    """An open file that a process inherits."""

    def __init__(self, number: int):
        self.number = number

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.number),)


def _received(copy: Any) -> int:
    number: int = copy.detach()
    return number


class Started:
    """A command that runs; what `subprocess.Popen` can do, as far as tests need it."""

    def __init__(self, arguments: list[str], files: list[int], folder: str | Path, environment: dict[str, str]):
        streams = [Descriptor(number) for number in files]
        self.process = CONTEXT.Process(target=_become, args=(arguments, streams, str(folder), environment))
        self.process.start()
        assert self.process.pid is not None
        self.pid: int = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("regard", timeout or 0)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def start(*arguments: str | Path, errors: str | Path = os.devnull, **environment: str) -> Started:
    """`regard` with these arguments; what it writes to standard error is added to a file."""
    with open(os.devnull, "r+b") as nothing, open(errors, "ab") as told:
        files = [nothing.fileno(), nothing.fileno(), told.fileno()]
        return Started(list(map(str, arguments)), files, ".", os.environ | environment)


def run(*arguments: str | Path, given: str = "", folder: str | Path = ".") -> subprocess.CompletedProcess[str]:
    """`regard` with these arguments, to its end."""
    words = list(map(str, arguments))
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given.encode())
        stdin.seek(0)
        files = [stdin, stdout, stderr]
        code = Started(words, [file.fileno() for file in files], folder, dict(os.environ)).wait()
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(words, code, stdout.read().decode(), stderr.read().decode())


def call(function: Callable[..., object], *arguments: object) -> int:
    """The exit code of a process that calls a function of a module."""
    process = CONTEXT.Process(target=function, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _become(arguments: list[str], streams: list[int], folder: str, environment: dict[str, str]) -> None:
    """Be `python -m regard` with these arguments."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[:] = ["regard", *arguments]
    try:
        runpy.run_module("regard", run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # which processes of multiprocessing leave out
