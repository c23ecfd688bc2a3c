"""The run folder: made, refused, locked, and never half-written."""

import json
import os
import tomllib

import pytest
import torch

from regard import tasks
from regard.cli import main
from regard.config import Recipe
from regard.config import recipe as recipes
from regard.config.recipe import make_recipe
from regard.errors import RegardError, RunError
from regard.files import write_atomically
from regard.run import Run
from regard.text.tokenizer import VocabularyTokenizer


def test_create_refuses_what_exists_and_discard_removes_what_it_made(tmp_path):
    run = Run.create(tmp_path / "runs" / "one")
    assert (tmp_path / "runs" / "one").is_dir()
    run.discard()
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(RunError, match=r"exists already; choose another --out$"):
        Run.create(tmp_path / "mine")
    Run.create(tmp_path / "made").write_recipe(Recipe())
    (tmp_path / "made" / "checkpoints").mkdir()
    with pytest.raises(RunError, match="regard resume"):
        Run.create(tmp_path / "made")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the run folder"):
        Run.create(tmp_path / "file" / "run")


def test_open_names_the_nearest_run(tmp_path):
    Run.create(tmp_path / "en-de").write_recipe(Recipe())
    with pytest.raises(RunError, match='did you mean "en-de"'):
        Run.open(tmp_path / "en-dd")


def test_the_recipe_reads_back(tmp_path):
    run = Run.create(tmp_path / "run")
    recipe = make_recipe({"data": {"train": [{"source": "a.en", "target": "a.no"}], "target_language": "no"}})
    run.write_recipe(recipe)
    assert Run.open(run.folder).recipe == recipe


def test_a_recipe_has_the_sections_of_its_task_the_format_and_the_sizes(tmp_path):
    run = Run.create(tmp_path / "run")
    run.write_recipe(make_recipe({"data": {"task": "tag"}}))
    assert run.sizes == {}
    with pytest.raises(RunError, match=r"section \[sizes\] is missing"):
        run.build_network()
    run.write_sizes(vocabulary=30, labels=5)
    stored = tomllib.loads((run.folder / "recipe.toml").read_text())
    assert list(stored) == ["format", "data", "tokenizer", "model", "train", "tag", "sizes"]
    assert stored["format"] == 1
    opened = Run.open(run.folder)
    assert opened.sizes == {"vocabulary": 30, "labels": 5}
    assert opened.build_network().output.out_features == 5
    opened.write_recipe(opened.recipe)
    assert Run.open(run.folder).sizes == {"vocabulary": 30, "labels": 5}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("format = 2", "has format 2, written by a newer version; this version of Regard reads formats up to 1"),
        ('format = "x"', "format must be a whole number of at least 1, not 'x'"),
        ("format = 0", "format must be a whole number of at least 1, not 0"),
        ("format = 1\nsizes = 3", "[sizes] must hold whole numbers above 0"),
        ("format = 1\n[sizes]\nvocabulary = 0", "[sizes] must hold whole numbers above 0"),
    ],
)
def test_a_run_of_another_format_is_one_line(tmp_path, capsys, line, problem):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.toml").write_text(line + "\n")
    with pytest.raises(RegardError) as caught:
        _ = Run.open(tmp_path / "run").sizes
    assert str(caught.value).startswith(f"{tmp_path / 'run' / 'recipe.toml'}: {problem}")
    assert "\n" not in str(caught.value)
    if "format 2" in problem:
        assert main(["tag", str(tmp_path / "run")]) == 2
        assert problem in capsys.readouterr().err


def test_a_run_of_an_older_format_is_migrated_in_memory(tmp_path, monkeypatch):
    def rename(table):
        return table | {"train": {"seed": table["train"]["chance"]}}

    (tmp_path / "recipe.toml").write_text("format = 1\n[train]\nchance = 7\n")
    monkeypatch.setattr(recipes, "FORMAT", 3)
    monkeypatch.setattr(recipes, "MIGRATIONS", {1: rename, 2: lambda table: table | {"data": {"task": "tag"}}})
    opened = Run.open(tmp_path).recipe
    assert (opened.train.seed, opened.data.task) == (7, "tag")
    assert "chance" in (tmp_path / "recipe.toml").read_text()


def test_every_older_format_has_a_migration():
    assert sorted(recipes.MIGRATIONS) == list(range(1, recipes.FORMAT))


def test_only_one_process_may_train(tmp_path):
    run = Run.create(tmp_path / "run")
    with run.locked():
        child = os.fork()
        if child == 0:
            try:
                with Run(run.folder).locked():
                    os._exit(0)
            except RunError:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with run.locked():
        pass


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "card.json"
    write_atomically(path, b"first")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_weights_that_do_not_exist_yet_are_told(tmp_path):
    run = Run.create(tmp_path / "run")
    run.write_recipe(Recipe())
    with pytest.raises(RunError, match="continues its training"):
        run.load_model()
    run.write_weights({"a": torch.ones(2)})
    assert (run.folder / "weights.safetensors").stat().st_mode & 0o777 == 0o644


def test_metrics_leave_out_what_training_went_back_from(tmp_path):
    steps = [10, 20, 20, 30, 40, 20, 30]  # the fifth is the last before it went back to update 20
    lines = [json.dumps({"kind": "step", "step": step, "number": number}) for number, step in enumerate(steps)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"cut off']))
    assert [line["number"] for line in Run(tmp_path).metrics()] == [0, 1, 2, 5, 6]


TINY = {
    "model": {
        "arch": "transformer-tiny",
        "width": 16,
        "heads": 2,
        "ffn_width": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
}


def tiny_run(folder, change=lambda name, weight: weight):
    """A run with tokenizers and untrained weights, which `change` may replace."""
    run = Run.create(folder)
    run.write_recipe(make_recipe(TINY))
    tokenizer = VocabularyTokenizer("word", False, ["a", "b"], [])
    run.write_tokenizers(tokenizer, tokenizer)
    run.write_sizes(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size)
    weights = run.build_network().named_parameters()
    run.write_weights({name: change(name, weight.detach()) for name, weight in weights})
    run.write_card({})
    return Run.open(folder)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("model.width", 65_536), ("model.ffn_width", 65_536), ("sizes.source_vocabulary", 10**12)],
)
def test_a_recipe_cannot_ask_for_memory_that_the_weights_do_not_need(tmp_path, setting, value):
    """A network of these sizes needs 50 GB and more: it must be refused before it is built."""
    run = tiny_run(tmp_path / "run")
    section, key = setting.split(".")
    if section == "sizes":
        run.write_sizes(**run.sizes | {key: value, "target_vocabulary": value})
    else:
        run.write_recipe(make_recipe({"model": TINY["model"] | {key: value}}), run.sizes)
    with pytest.raises(RunError, match="weights do not fit the recipe"):
        Run.open(run.folder).load_network()


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_no_numbers_are_refused(tmp_path, value):
    run = tiny_run(tmp_path / "run", lambda name, weight: weight * float(value) if weight.dim() == 2 else weight)
    with pytest.raises(RunError, match=r"has values that are not finite numbers; take the file"):
        run.load_network()


@pytest.mark.parametrize("search", [{}, {"beam_size": 1}, {"beam_groups": 2, "beam_size": 2}, {"sample": True}])
def test_weights_that_overflow_are_told_when_they_are_used(tmp_path, search):
    run = tiny_run(tmp_path / "run", lambda name, weight: torch.full_like(weight, 3e38))
    with pytest.raises(RegardError, match="the model computes values that are not finite numbers"):
        tasks.load(run).translate(["a b"], **search)
