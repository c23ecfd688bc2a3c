"""What a run takes from another run: its tokenizer, and the weights of its encoder."""

import pytest

from regard.cli import main
from regard.run import Run
from tests.export.runs import random_recipe, random_run
from tests.small_texts import train_arguments, write_texts


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    """Runs with random weights: one with a joint vocabulary, one with two vocabularies."""
    folder = tmp_path_factory.mktemp("translators")
    random_run(folder / "joint", random_recipe())
    random_run(folder / "two", random_recipe({"tie_embeddings": "target"}, tokenizer={"joint": False}))
    return folder


def without_size(arguments):
    """The arguments without `--set tokenizer.vocab_size=...`."""
    place = next(place for place, word in enumerate(arguments) if word.startswith("tokenizer.vocab_size"))
    return arguments[: place - 1] + arguments[place + 1 :]


@pytest.mark.parametrize("name", ["joint", "two"])
def test_a_language_model_takes_the_target_vocabulary(translators, tmp_path, name):
    texts = write_texts(tmp_path / "texts.txt", 60)
    arguments = without_size(train_arguments(texts, tmp_path / "run", "train.max_steps=1"))
    assert main([*arguments, "--tokenizer-from", str(translators / name)]) == 0
    run, wanted = Run.open(tmp_path / "run"), Run.open(translators / name).tokenizers[1]
    assert run.tokenizers[0].hash() == wanted.hash()
    assert run.recipe.tokenizer.vocab_size == wanted.size == run.sizes["vocabulary"]


BAD = {
    "another size": (["--tokenizer-from", "joint", "--set", "tokenizer.vocab_size=300"], "tokenizer.vocab_size = 300"),
    "another kind": (
        ["--tokenizer-from", "joint", "--set", "tokenizer.kind=word"],
        "tokenizer.kind = word: the run in",
    ),
    "nothing there": (["--tokenizer-from", "none"], "there is no such run folder"),
    "both": (["--tokenizer-from", "joint", "--start-from", "joint"], "the tokenizer comes from the run in"),
    "no encoder": (["--start-from", "joint"], "has no encoder to start from"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(translators, tmp_path, capsys, case):
    words, message = BAD[case]
    texts = write_texts(tmp_path / "texts.txt", 60)
    given = [str(translators / word) if word in ("joint", "none") else word for word in words]
    assert main(["train", "--task", "language-model", str(texts), "--out", str(tmp_path / "run"), *given]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("regard: ")
    assert message in line
    assert not (tmp_path / "run").exists()
