"""The recipe decides the arithmetic; the number of processes decides only the speed. And no process waits for the dead.

Real processes under torchrun, with gloo on the CPU.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from regard.cli import main
from tests import small_chats, small_marks, small_series, small_texts, small_vectors
from tests.processes import start
from tests.small_runs import SIZES, train_arguments, write_corpus

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc")

UPDATES = 50
ROUNDING = 1e-5
MUON_ROUNDING = (
    5e-5  # after 10 steps: Muon scales small directions of a gradient up, and their rounding errors with them
)
LIMIT = 60  # seconds in which the survivors must have ended
PLAIN = [
    "train.optimizer=adam",
    "train.cooldown=0",
    "tokenizer.subword_regularization=0",
    "model.dropout=0.3",
    "train.validate_every=50",
    "train.precision=float32",  # the rounding of bfloat16, which the plan takes where it pays, is coarser than the law
    # What is added to the keys of all places hardly changes attention: its gradient is nearly nothing but rounding,
    # which Adam's usual epsilon of 1e-9 would blow up to whole steps.
    "train.adam_epsilon=1e-6",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


def settings(*more, steps=UPDATES):
    return [*PLAIN, f"train.max_steps={steps}", "train.checkpoint_every=10", *more]


LAUNCHED = []


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    yield
    for process in LAUNCHED:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)
    LAUNCHED.clear()


def launch(command, *options, processes=2):
    """Start torchrun; `command` is what stands behind `python`, e.g. -m regard train."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*launcher, *options, *command], env=environment, stderr=subprocess.PIPE, text=True)
    LAUNCHED.append(process)
    return process


def finish(process, seconds=200):
    """Exit code and what was written to standard error."""
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, errors


def train_together(corpus, run, *more, processes=2, steps=UPDATES):
    code, errors = finish(
        launch(["-m", "regard", *train_arguments(corpus, run, *settings(*more, steps=steps))], processes=processes)
    )
    assert code == 0, errors
    return errors


def worker(launcher, rank, seconds=30):
    """The process id of a rank, from the environment that torchrun gave it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                parent = place.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                environment = place.joinpath("environ").read_bytes().split(b"\0")
                if parent == str(launcher.pid) and f"RANK={rank}".encode() in environment:
                    return int(place.name)
            except OSError:
                continue
        time.sleep(0.05)
    raise AssertionError(f"rank {rank} did not start")


def wait_for(path, process, seconds=120):
    until = time.monotonic() + seconds
    while not path.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert path.exists()


def last_state(run):
    return load_file(sorted((run / "checkpoints").glob("*.safetensors"))[-1])


def assert_close(run, other, rounding=ROUNDING):
    found, expected = last_state(run), last_state(other)
    assert found.keys() == expected.keys()
    gaps = {name: (found[name] - expected[name]).abs().max().item() for name in expected if "optimizer" not in name}
    worst = max(gaps, key=gaps.get)
    assert gaps[worst] <= rounding, f"{worst} differs by {gaps[worst]:.1e}"


@pytest.fixture(scope="module")
def one(corpus):
    """Runs of one process, by their settings."""
    made = {}

    def run(*more):
        if more not in made:
            folder = corpus / f"one-{len(made)}"
            assert main(train_arguments(corpus, folder, *settings(*more))) == 0
            made[more] = folder
        return made[more]

    return run


@pytest.mark.parametrize(
    "way",
    [pytest.param("train.gradient_accumulation=1", marks=pytest.mark.slow), "train.gradient_accumulation=2"],
)
def test_two_processes_reach_the_weights_of_one(corpus, one, tmp_path, way):
    """Rows of a batch shared out, or whole batches. With the environment that torchrun gives, but without torchrun."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    arguments, errors = train_arguments(corpus, tmp_path / "run", *settings(way)), tmp_path / "errors"
    processes = [start(*arguments, errors=errors, RANK=rank, LOCAL_RANK=rank, **group) for rank in "01"]
    try:
        codes = [process.wait(200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], errors.read_text()
    assert errors.read_text().count("finished: 50 steps done") == 1  # only the first process speaks
    assert_close(tmp_path / "run", one(way))


@pytest.mark.slow
def test_torchrun_starts_them(corpus, one, tmp_path):
    assert train_together(corpus, tmp_path / "run").count("finished: 50 steps done") == 1
    assert_close(tmp_path / "run", one())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gnmt", "self-critical", "minimum-risk"])
def test_reward_fine_tuning_too(corpus, one, tmp_path, method):
    """Ten steps, because a rounding error may change a sampled token, from where on the samples differ."""
    said = settings(f"translate.method={method}", "train.batch_tokens=256", "train.validate_every=10", steps=10)
    said = [setting for setting in said if not setting.startswith(("model.", "tokenizer."))]
    base = ["finetune", str(one()), "--objective", "reward", *(word for each in said for word in ("--set", each))]
    assert main([*base, "--out", str(tmp_path / "one")]) == 0
    code, errors = finish(launch(["-m", "regard", *base, "--out", str(tmp_path / "two")]))
    assert code == 0, errors
    assert_close(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "more"),
    [
        (3, ["train.gradient_accumulation=2"]),
        (2, ["train.gradient_accumulation=3", "train.r_drop=3", "train.ema_decay=0"]),
        (2, ["train.optimizer=muon", "tokenizer.subword_regularization=0.1", "train.max_steps=10"]),
        (2, ["train.fsdp=true"]),
        (2, ["train.fsdp=true", "train.gradient_accumulation=2", "train.clip_norm=0.1", "model.tie_embeddings=none"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_so_do_other_numbers_and_ways(corpus, one, tmp_path, processes, more):
    train_together(corpus, tmp_path / "run", *more, processes=processes)
    alone = one(*(setting for setting in more if "fsdp" not in setting))
    assert_close(tmp_path / "run", alone, MUON_ROUNDING if "train.optimizer=muon" in more else ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("arch", SIZES)
@pytest.mark.parametrize("more", ["train.gradient_accumulation=1", "train.fsdp=true"])
def test_other_architectures_too(corpus, tmp_path, arch, more):
    sizes = [*SIZES[arch], *settings(steps=12)]
    two = train_arguments(corpus, tmp_path / "two", *sizes, more, arch=arch)
    code, errors = finish(launch(["-m", "regard", *two]))
    assert code == 0, errors
    assert main(train_arguments(corpus, tmp_path / "one", *sizes, arch=arch)) == 0
    assert_close(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("train.gradient_accumulation=2", "train.clip_norm=0.1", "model.experts=6")])
def test_experts_on_different_processes(corpus, tmp_path, more):
    """The weights of one process; and one process goes on with all experts."""
    arch = "transformer-moe"
    sizes = [*SIZES[arch], *settings(steps=12), *more]
    two = train_arguments(corpus, tmp_path / "two", *sizes, "train.expert_parallel=true", arch=arch)
    code, errors = finish(launch(["-m", "regard", *two]))
    assert code == 0, errors
    assert main(train_arguments(corpus, tmp_path / "one", *sizes, arch=arch)) == 0
    assert_close(tmp_path / "two", tmp_path / "one")
    later = ["--set", "train.max_steps=16", "--set", "train.expert_parallel=false"]
    assert main(["resume", str(tmp_path / "two"), *later]) == 0
    code, errors = finish(
        launch(
            [
                "-m",
                "regard",
                "resume",
                str(tmp_path / "one"),
                "--set",
                "train.max_steps=16",
                "--set",
                "train.expert_parallel=true",
            ]
        )
    )
    assert code == 0, errors
    assert_close(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_experts_that_cannot_be_divided_are_one_line(corpus, tmp_path):
    for arch, problem in (("transformer-moe", "3 experts cannot be divided among 2"), ("bahdanau", "a model with exp")):
        more = ["model.experts=3"] if arch == "transformer-moe" else []
        sizes = [*SIZES[arch], *settings(steps=4), "train.expert_parallel=true", *more]
        code, errors = finish(launch(["-m", "regard", *train_arguments(corpus, tmp_path / arch, *sizes, arch=arch)]))
        assert code != 0
        assert problem in errors


def assert_both_learn_the_same(one, two, folder):
    """Train with the arguments `one` in this process and with `two` in two, in folders of these names; compare."""
    code, errors = finish(launch(["-m", "regard", *two]))
    assert code == 0, errors
    assert main(one) == 0
    assert_close(folder / "two", folder / "one")


@pytest.mark.slow
def test_pictures_too(tmp_path):
    pictures = small_marks.write_folder(tmp_path / "marks", 60)
    one, two = (small_marks.train_arguments(pictures, tmp_path / name, *settings(steps=12)) for name in ("one", "two"))
    assert_both_learn_the_same(one, two, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("arch", small_texts.SIZES)
def test_language_models_too(tmp_path, arch):
    texts = small_texts.write_texts(tmp_path / "texts.txt")
    one, two = (
        small_texts.train_arguments(texts, tmp_path / name, *settings(steps=12), arch=arch) for name in ("one", "two")
    )
    assert_both_learn_the_same(one, two, tmp_path)


@pytest.mark.slow
def test_frames_too(tmp_path):
    data = small_series.write_series(tmp_path / "series.npz")
    steady = ["train.max_steps=12", "train.cooldown=0", "train.adam_epsilon=1e-6"]
    one, two = (small_series.train_arguments(data, tmp_path / name, *steady) for name in ("one", "two"))
    assert_both_learn_the_same(one, two, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("arch", small_chats.SIZES)
def test_conversations_too(tmp_path, arch):
    dialogues = small_chats.write_dialogues(tmp_path / "dialogues.jsonl")
    one, two = (
        small_chats.chat_arguments(dialogues, tmp_path / name, arch, *settings(steps=12)) for name in ("one", "two")
    )
    assert_both_learn_the_same(one, two, tmp_path)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes_and_another_layout(corpus, one, tmp_path):
    run = tmp_path / "run"
    train_together(corpus, run, "train.fsdp=true", steps=20)
    steps = [(1, 30, "false"), (2, 40, "false"), (2, UPDATES, "true")]
    for processes, end, shard in steps:
        command = ["resume", str(run), "--set", f"train.max_steps={end}", "--set", f"train.fsdp={shard}"]
        if processes == 1:
            assert main(command) == 0
        else:
            code, errors = finish(launch(["-m", "regard", *command]))
            assert code == 0, errors
    assert_close(run, one())


@pytest.mark.slow
def test_a_killed_process_ends_the_other_with_its_name(corpus, tmp_path):
    run = tmp_path / "run"
    process = launch(["-m", "regard", *train_arguments(corpus, run, *settings(steps=100_000))])
    wait_for(run / "checkpoints" / "00000010.json", process)
    victim = worker(process, 1)
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    code, errors = finish(process, LIMIT)
    assert time.monotonic() - began < LIMIT
    assert code != 0
    [line] = re.findall(r"^regard: .*$", errors, re.M)
    assert line.startswith("regard: process 1 of 2 (host ")
    assert f"pid {victim}) does not respond; all processes end: " in line
    assert f'"regard resume {run}"' in line
    assert main(["resume", str(run), "--set", "train.max_steps=12"]) == 0  # nothing is locked, nothing is damaged


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_frozen_process_ends_the_other(corpus, tmp_path, rank):
    run = tmp_path / "run"
    process = launch(["-m", "regard", *train_arguments(corpus, run, *settings(steps=100_000))])
    wait_for(run / "checkpoints" / "00000010.json", process)
    victim, survivor = worker(process, rank), worker(process, 1 - rank)
    os.kill(victim, signal.SIGSTOP)
    began = time.monotonic()
    try:
        while Path(f"/proc/{survivor}").exists() and time.monotonic() - began < LIMIT:
            time.sleep(0.1)
        assert time.monotonic() - began < LIMIT
        code, errors = finish(process)  # torchrun gives the frozen one half a minute more
    finally:
        if process.poll() is None:
            os.kill(victim, signal.SIGKILL)
    assert code != 0
    assert f"process {rank} of 2" in errors
    assert f"pid {victim}" in errors


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_starts_it_again_and_nothing_is_lost(corpus, one, tmp_path, rank):
    run = tmp_path / "run"
    process = launch(["-m", "regard", *train_arguments(corpus, run, *settings())], "--max-restarts", "1")
    wait_for(run / "checkpoints" / "00000010.json", process)
    os.kill(worker(process, rank), signal.SIGKILL)
    code, errors = finish(process)
    assert code == 0, errors
    assert f"restarted: continuing in {run}" in errors
    assert re.search(r"continuing from step \d0", errors)
    assert_close(run, one())


@pytest.mark.slow
def test_killed_while_the_data_is_prepared_it_is_prepared_anew(corpus, one, tmp_path):
    run = tmp_path / "run"
    process = launch(["-m", "regard", *train_arguments(corpus, run, *settings())], "--max-restarts", "1")
    wait_for(run / ".launch", process)
    os.kill(worker(process, 0), signal.SIGKILL)
    code, errors = finish(process)
    assert code == 0, errors
    assert_close(run, one())


@pytest.mark.slow
def test_a_folder_that_another_launch_made_is_left_alone(corpus, one, tmp_path):
    before = (one() / "recipe.toml").read_bytes()
    process = launch(["-m", "regard", *train_arguments(corpus, one(), *settings())], "--max-restarts", "1")
    code, errors = finish(process)
    assert code != 0
    assert len(re.findall(r"^regard: .*exists already; choose another --out", errors, re.M)) == 2  # at each start
    assert (one() / "recipe.toml").read_bytes() == before


FAILING = """
import os, sys
from regard.cli import main
from regard.errors import TrainingError
from regard.tasks.translate.training import TranslateTrainUnit

batch = TranslateTrainUnit.batch

def fail(self, position):
    if position == 7 and os.environ["RANK"] in sys.argv[1]:
        raise {error}("this process has had enough")
    return batch(self, position)

TranslateTrainUnit.batch = fail
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("error", ["TrainingError", "ValueError"])
@pytest.mark.parametrize("ranks", ["0", "1", "01"])
def test_an_error_on_one_process_ends_all_with_one_line(corpus, tmp_path, error, ranks):
    script = tmp_path / "failing.py"
    script.write_text(FAILING.format(error=error))
    began = time.monotonic()
    code, errors = finish(launch([str(script), ranks, *train_arguments(corpus, tmp_path / "run", *settings())]))
    assert time.monotonic() - began < LIMIT
    assert code != 0
    assert len(re.findall(r": this process has had enough$", errors, re.M)) == 1
    assert "does not respond" not in errors
    codes = re.findall(r"exitcode\s+: (-?\d+)", errors)
    assert len(codes) == 2
    assert "0" not in codes


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["launcher", "worker"])
def test_asked_to_stop_they_save_and_leave_together(corpus, one, tmp_path, whom):
    run = tmp_path / "run"
    process = launch(["-m", "regard", *train_arguments(corpus, run, *settings())])
    wait_for(run / "checkpoints" / "00000010.json", process)
    os.kill(process.pid if whom == "launcher" else worker(process, 1), signal.SIGTERM)
    code, errors = finish(process, LIMIT)
    assert code != 0
    assert errors.count("stopped at step") == 1
    assert main(["resume", str(run)]) == 0
    assert_close(run, one())


@pytest.mark.slow
@pytest.mark.parametrize("more", ["train.gradient_accumulation=1", "train.gradient_accumulation=2"])
def test_word_vectors_with_sparse_gradients_too(tmp_path, more):
    texts = small_texts.write_texts(tmp_path / "texts.txt")
    one, two = (
        small_vectors.train_arguments(texts, tmp_path / name, "train.max_steps=12", more) for name in ("one", "two")
    )
    assert finish(launch(["-m", "regard", *two]))[0] == 0
    assert main(one) == 0
    assert_close(tmp_path / "two", tmp_path / "one")
