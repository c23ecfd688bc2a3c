"""Killed and resumed equals never killed, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from regard.cli import main
from tests.small_runs import train_arguments, write_corpus

STEPS = "train.max_steps=24"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted, and its data."""
    folder = tmp_path_factory.mktemp("whole")
    write_corpus(folder)
    assert main(train_arguments(folder, folder / "run", STEPS)) == 0
    return folder


def weights(run):
    return (run / "weights.safetensors").read_bytes()


def last_state(run):
    return sorted((run / "states").glob("*.safetensors"))[-1].read_bytes()


def scores(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in line if key not in ("seconds", "tokens_per_second")} for line in lines]


def assert_same(run, reference):
    assert last_state(run) == last_state(reference)
    assert weights(run) == weights(reference)
    assert scores(run) == scores(reference)


def start(arguments):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.Popen([sys.executable, "-m", "regard", *arguments], env=environment, stderr=subprocess.DEVNULL)


def wait_for(path, process, seconds=60):
    until = time.monotonic() + seconds
    while not path.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_changes_nothing(whole, tmp_path, number):
    run = tmp_path / "run"
    process = start(train_arguments(whole, run, STEPS))
    wait_for(run / "states" / "00000006.json", process)
    process.send_signal(number)
    code = process.wait(timeout=60)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert main(["resume", str(run)]) == 0
    assert_same(run, whole / "run")


def test_a_truncated_newest_state_falls_back(whole, tmp_path, capsys):
    run = tmp_path / "run"
    process = start(train_arguments(whole, run, STEPS))
    wait_for(run / "states" / "00000009.json", process)
    process.kill()
    process.wait(timeout=60)
    newest = sorted((run / "states").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    assert main(["resume", str(run)]) == 0
    assert "is damaged" in capsys.readouterr().err
    assert_same(run, whole / "run")


def test_resuming_a_finished_run_with_a_later_end_goes_on(whole, tmp_path):
    run, longer = tmp_path / "run", tmp_path / "longer"
    assert main(train_arguments(whole, run, "train.max_steps=12")) == 0
    assert main(["resume", str(run), "--set", "train.max_steps=24"]) == 0
    assert main(train_arguments(whole, longer, STEPS)) == 0
    assert last_state(run) == last_state(longer)


def test_a_second_process_is_refused_and_the_recipe_stays(whole, tmp_path, capsys):
    run = tmp_path / "run"
    process = start(train_arguments(whole, run, "train.max_steps=5000"))
    wait_for(run / "states" / "00000003.json", process)
    try:
        recipe = (run / "recipe.toml").read_bytes()
        assert main(["resume", str(run), "--set", "train.max_steps=7"]) == 2
        assert "another process is training in this folder" in capsys.readouterr().err
        assert (run / "recipe.toml").read_bytes() == recipe
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.slow
def test_killed_twenty_times_at_random_moments(whole, tmp_path):
    run = tmp_path / "run"
    chance = random.Random(1)
    arguments = train_arguments(whole, run, STEPS, "train.state_every=1")
    kills = 0
    process = start(arguments)
    wait_for(run / "states" / "00000000.json", process)
    while kills < 20:
        time.sleep(chance.uniform(0.0, 0.6))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        kills += 1
        process = start(["resume", str(run)])
        time.sleep(2.5)  # the start-up itself; what follows hits preparation, updates, validations and writes
    process.wait()
    if process.returncode:
        assert main(["resume", str(run)]) == 0
    assert kills >= 5
    assert last_state(run) == last_state(whole / "run")
    assert weights(run) == weights(whole / "run")
