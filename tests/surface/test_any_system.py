"""The command line on a system that is not Linux: what other systems lack is taken away before anything is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.data.builtin import read_phrases

POORER = """
import builtins, ctypes, os, signal, sys
import portalocker  # sacrebleu's; it looks at the name of the system, which is not taken away here

for name in ("fcntl", "resource"):
    sys.modules[name] = None  # importing it is an ImportError
for name in ("sched_getaffinity", "fork"):
    delattr(os, name)
del signal.SIGHUP

class CDLL(ctypes.CDLL):
    def __init__(self, name, *args, **options):
        if name is None:
            raise TypeError("Windows has no handle for this process")
        super().__init__(name, *args, **options)

ctypes.CDLL = CDLL
real_open, real_rename, real_replace = os.open, os.rename, os.replace

def open_file(path, *args, **options):
    is_ours = sys._getframe(1).f_globals["__name__"] != "shutil"  # which opens no folder where it cannot
    if is_ours and not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(13, "a folder is no file", str(path))
    return real_open(path, *args, **options)

def refuse_mapped(path):
    with builtins.open("/proc/self/maps") as maps:
        if any(os.path.realpath(path) + "/" in line for line in maps):
            raise PermissionError(13, "a file in it is open", str(path))

def rename(path, target, **options):
    refuse_mapped(path)
    real_rename(path, target, **options)

def replace(path, target, **options):
    refuse_mapped(path)
    real_replace(path, target, **options)

os.open, os.rename, os.replace = open_file, rename, replace
"""

COMMANDS = """
from regard.cli import main

def run(*arguments):
    code = main(list(arguments))
    if code:
        raise SystemExit(f"{arguments} ended with {code}")

folder = sys.argv[1]
"""

SMALL = [
    "train.max_steps=2", "train.validate_every=2", "train.batch_tokens=256", "train.device=cpu", "model.width=16",
    "model.ffn_width=16", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "tokenizer.vocab_size=350",
]  # fmt: skip


def run_poorer(tmp_path: Path, script: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run commands in a process of their own, on the poorer system."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", POORER + COMMANDS + script, str(tmp_path)],
        capture_output=True, check=False, cwd=tmp_path, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="open maps are read from /proc")
def test_train_translate_and_info_need_nothing_that_only_linux_has(tmp_path):
    pairs = read_phrases()[:60]
    for side in ("source", "target"):
        lines = [getattr(phrase, side) for phrase in pairs]
        (tmp_path / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "in").write_text("I am here.\n", encoding="utf-8")
    script = f"""
settings = [word for setting in {SMALL!r} for word in ("--set", setting)]
run("train", "--source", "source", "--target", "target", "--out", "run", *settings)
assert not [name for name in os.listdir("run") if "store" in name]
for engine in ("torch", "ctranslate2"):
    run("translate", "run", "in", "--engine", engine, "--out", engine)
run("resume", "run", "--set", "train.max_steps=3")
run("translate", "run", "in", "--engine", "ctranslate2")
run("info", "run")
"""
    done = run_poorer(tmp_path, script)
    assert not done.returncode, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "torch").is_file()
    assert (tmp_path / "ctranslate2").is_file()


def test_output_is_utf8_whatever_the_systems_encoding(tmp_path):
    done = run_poorer(tmp_path, 'print("before"); main(["--help"]); print("\\u4f60\\u597d")', PYTHONIOENCODING="cp1252")
    assert not done.returncode, done.stderr.decode()
    assert "你好" in done.stdout.decode("utf-8")


def test_a_folder_with_an_open_file_is_renamed_once_it_is_closed(tmp_path, monkeypatch):
    from regard import system

    tries = []

    def rename(path, target):
        tries.append(path)
        if len(tries) < 3:
            raise PermissionError(13, "in use")

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(system.time, "sleep", lambda seconds: None)
    system.rename_folder(tmp_path / "a", tmp_path / "b")
    assert len(tries) == 3
