"""Plugins: an architecture in a file of its own trains, resumes and translates; without the file a run is refused."""

import itertools
import json
import shutil
from pathlib import Path

import pytest

from tests.processes import run as regard  # a plugin changes the registry of the process that imports it

FILE = Path(__file__).with_name("toy_architecture.py")
SETTINGS = [
    "train.cooldown=0", "train.patience=0", "train.validate_every=15", "train.checkpoint_every=15",
    "train.batch_tokens=256",
    "train.device=cpu", "tokenizer.kind=word", "train.metric=loss", "model.width=24",
]  # fmt: skip


def overrides(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copy(FILE, tmp_path_factory.mktemp("plugin") / "toy_arch.py"))


@pytest.fixture(scope="module")
def run(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(plugin, tmp_path_factory.mktemp("toy"), steps=30)


def train(plugin: Path, folder: Path, steps: int) -> Path:
    """A run on all sentences of three of six words."""
    words = {"one": "uno", "two": "due", "red": "rossi", "big": "grandi", "cats": "gatti", "dogs": "cani"}
    lines = list(itertools.product(words, repeat=3))
    (folder / "a.en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / "a.it").write_text("".join(" ".join(words[word] for word in line) + "\n" for line in lines))
    sides = ["--source", folder / "a.en", "--target", folder / "a.it", "--out", folder / "run"]
    settings = overrides(*SETTINGS, f"train.max_steps={steps}")
    done = regard("--plugin", plugin, "train", "--arch", "toy", *sides, *settings)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_the_run_names_its_plugin(run: Path) -> None:
    card = json.loads((run / "card.json").read_text())
    assert (card["arch"], card["plugins"]) == ("toy", ["toy_arch"])


def test_it_translates_in_one_process_and_in_two(plugin: Path, run: Path) -> None:
    found = [
        regard("--plugin", plugin, "translate", run, "--workers", str(workers), given="one cats\ntwo dogs\n")
        for workers in (1, 2)
    ]
    assert [done.returncode for done in found] == [0, 0], found[-1].stderr
    assert found[0].stdout == found[1].stdout
    assert len(found[0].stdout.splitlines()) == 2


def test_interrupted_and_resumed_equals_never_interrupted(plugin: Path, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    done = regard(f"--plugin={plugin}", "resume", copy, *overrides("train.max_steps=45"))
    assert done.returncode == 0, done.stderr
    whole = train(plugin, tmp_path, steps=45)
    last = [sorted((one / "checkpoints").glob("*.safetensors"))[-1].read_bytes() for one in (copy, whole)]
    assert last[0] == last[1]


def test_without_the_plugin_one_line_names_it(run: Path) -> None:
    for command in (["translate", run], ["resume", run], ["inspect", run, "one cats"]):
        done = regard(*command, given="one cats\n")
        assert done.returncode == 2
        assert done.stderr.strip().splitlines() == [
            f'regard: {run}: needs the plugin "toy_arch": regard --plugin toy_arch.py COMMAND ...'
            " (in Python: import toy_arch)"
        ]


def test_without_the_plugin_the_card_is_shown(run: Path) -> None:
    done = regard("info", run)
    assert done.returncode == 0, done.stderr
    assert "toy_arch" in done.stdout


def test_the_architecture_is_described(plugin: Path) -> None:
    done = regard("--plugin", plugin, "info", "--arch", "toy")
    assert done.returncode == 0, done.stderr
    assert "Width of embeddings and states." in done.stdout
    told = json.loads(regard("--plugin", plugin, "info", "--arch", "toy", "--json").stdout)
    assert (told["about"], told["settings"]["width"]) == ("a toy", 32)
    assert regard("info", "--arch", "toy").returncode == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.py", None, "there is no such Python file"),
        ("notes.txt", "", "there is no such Python file"),
        ("my-model.py", "", "is not a valid name for a Python module; rename the file"),
        ("json.py", "", 'there is another module with the name "json"; rename the file'),
        ("broken.py", "import nothing_at_all", "cannot be imported (ModuleNotFoundError: No module named"),
        ("wrong.py", "def f(:", "cannot be imported (SyntaxError"),
    ],
)
def test_a_bad_plugin_is_one_line(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    done = regard("--plugin", tmp_path / name, "info", "--arch", "han")
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert line.startswith(f"regard: --plugin {tmp_path / name}: ")
    assert message in line
