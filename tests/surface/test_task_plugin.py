"""A task in a single file outside the package: it trains, resumes, loads and answers without a change to Regard."""

import json
import random
import shutil
from pathlib import Path

import pytest

import regard
from regard import registry, tasks
from regard.cli import main
from regard.run import Run
from tests.processes import run as in_own_process

SETTINGS = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=20", "train.batch_tokens=400"]


@pytest.fixture(scope="module", autouse=True)
def plugin():
    before = dict(registry.TASKS), dict(registry.ARCHITECTURES)
    from tests.surface import toy_task

    registry.TASKS["toy-language"] = registry.ARCHITECTURES["toy-sum"] = toy_task.__name__
    yield toy_task
    for table, entries in zip((registry.TASKS, registry.ARCHITECTURES), before, strict=True):
        table.clear()
        table.update(entries)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two languages that share no letter."""
    chance = random.Random(1)
    lines = [
        f"{label}\t{' '.join(''.join(chance.choices(letters, k=4)) for _ in range(3))}"
        for label, letters in [("ab", "abcd"), ("xy", "wxyz")] * 40
    ]
    path = tmp_path_factory.mktemp("toy") / "lines.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def train(data, out, *settings):
    options = [part for one in (*SETTINGS, *settings) for part in ("--set", one)]
    return main(["train", "--task", "toy-language", str(data), "--out", str(out), *options])


@pytest.fixture(scope="module")
def trained(data):
    assert train(data, data.parent / "run") == 0
    return data.parent / "run"


def test_it_trains_and_its_run_is_like_any_other(trained):
    run = Run.open(trained)
    assert run.is_finished
    assert run.card["task"] == "toy-language"
    assert run.card["scores"]["test"]["accuracy"] == 1.0
    assert run.recipe.task.max_characters == 50
    assert run.sizes["labels"] == 2
    assert run.held_out_records()[0].keys() == {"label", "text"}
    page = (trained / "report.html").read_text()
    assert "Languages of lines" in page
    assert "parameters" in page


def test_it_loads_and_is_public(trained, plugin):
    guesser = regard.load(trained)
    assert isinstance(guesser, plugin.ToyGuesser)
    assert guesser.guess(["abba", "xyz zyx"]) == ["ab", "xy"]
    assert regard.ToyGuesser is plugin.ToyGuesser
    assert "ToyGuesser" in regard.__all__
    assert tasks.has_part("toy-language", "report")
    assert not tasks.has_part("toy-language", "api")


def test_it_has_its_command(trained, capsys):
    assert main(["toy-language", str(trained), "dada", "wxwx"]) == 0
    assert capsys.readouterr().out.split() == ["ab", "xy"]
    assert main(["--help"]) == 0
    assert "toy-language" in capsys.readouterr().out


def test_it_resumes_exactly(trained, data, tmp_path):
    assert train(data, tmp_path / "half", "train.max_steps=20") == 0
    assert main(["resume", str(tmp_path / "half"), "--set", "train.max_steps=40"]) == 0
    weights = [(folder / "weights.safetensors").read_bytes() for folder in (trained, tmp_path / "half")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("toy-language.max_character=5", "unknown setting"),
        ("train.metric=bleu", 'is not a metric of data.task = "toy-language"; choose from accuracy'),
        ("train.r_drop=0.1", "train.r_drop is not supported"),
        ("model.arch=han", "choose from toy-sum"),
        ("tag.column=1", '[tag] is for data.task = "tag"'),
    ],
)
def test_settings_are_checked_as_those_of_any_task(data, tmp_path, capsys, setting, problem):
    assert train(data, tmp_path / "run", setting) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_the_plugin_its_run_is_one_line(trained, tmp_path, monkeypatch, capsys):
    shutil.copytree(trained, tmp_path / "run")
    monkeypatch.delitem(registry.TASKS, "toy-language")
    monkeypatch.delitem(registry.ARCHITECTURES, "toy-sum")
    assert main(["translate", str(tmp_path / "run")]) == 2
    assert 'there is no task "toy-language"' in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "card.json").read_text())["task"] == "toy-language"


def test_on_the_command_line_it_comes_with_plugin(data, tmp_path):
    """In processes of their own, which import nothing but the given file."""
    file = Path(shutil.copy(Path(__file__).with_name("toy_task.py"), tmp_path / "my_task.py"))
    settings = [part for one in SETTINGS for part in ("--set", one)]
    command = ["train", "--task", "toy-language", data, "--out", tmp_path / "run", *settings]
    done = in_own_process("--plugin", file, *command)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "card.json").read_text())["plugins"] == ["my_task"]
    assert in_own_process("--plugin", file, "toy-language", tmp_path / "run", "abab").stdout == "ab\n"
    for command in ("translate", "info"):
        refused = in_own_process(command, tmp_path / "run")
        assert refused.returncode == 2
        assert 'needs the plugin "my_task": regard --plugin my_task.py' in refused.stderr
    assert json.loads(in_own_process("info", tmp_path / "run", "--json").stdout)["task"] == "toy-language"
