"""Word vectors as the first values of embeddings: coverage, scale, frozen rows, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from regard import models
from regard.cli import main
from regard.config import presets
from regard.data.vectors import read_vectors
from regard.run import Run
from tests.small_texts import train_arguments, write_texts
from tests.small_vectors import train_arguments as vector_arguments

FROZEN = ("tokenizer.kind=word", "train.freeze_embeddings=true", "train.weight_decay=0.1", "train.max_steps=6")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts, and a file of vectors of width 32 for words in lower case."""
    folder = tmp_path_factory.mktemp("start")
    texts = write_texts(folder / "texts.txt")
    words = sorted({word.strip(".,?!").lower() for word in texts.read_text().split()})[:40]
    matrix = np.random.default_rng(1).standard_normal((len(words), 32)) * 7
    lines = [f"{word} {' '.join(f'{value:.4f}' for value in row)}\n" for word, row in zip(words, matrix, strict=True)]
    (folder / "words.vec").write_text("".join(lines), encoding="utf-8")
    (folder / "strange.vec").write_text(f"xyzzy {'1 ' * 32}\n")
    (folder / "narrow.vec").write_text("the 1 2\n")
    return folder


def start(folder, out, *settings, file="words.vec"):
    vectors = f"train.embeddings={folder / file}"
    return main(train_arguments(folder / "texts.txt", out, vectors, *settings, arch="lstm-lm"))


@pytest.fixture(scope="module")
def run(folder):
    assert start(folder, folder / "run", *FROZEN) == 0
    return Run.open(folder / "run")


def rows_of(run, vectors):
    """Ids of tokens that have a vector, and these vectors."""
    words = {id: token.removeprefix("▁").lower() for id, token in enumerate(run.tokenizers[0].tokens)}
    return {id: vectors[word] for id, word in words.items() if word in vectors}


def test_frozen_rows_are_the_scaled_vectors_and_the_others_are_trained(run, folder):
    expected = rows_of(run, read_vectors(folder / "words.vec").vectors)
    rows = list(expected)
    table = run.load_network().embedding_tables()["source"].weight
    torch.manual_seed(run.recipe.train.seed)
    random = run.build_network().embedding_tables()["source"].weight.detach()
    given = torch.from_numpy(np.stack(list(expected.values())))
    scale = random.square().mean().sqrt() / given.square().mean().sqrt()
    torch.testing.assert_close(table[rows], given * scale)
    assert json.loads((run.folder / "frozen-rows.json").read_text()) == {"embed.tokens.weight": sorted(rows)}
    others = sorted(set(range(3, len(table) - 1)) - set(rows))
    assert others
    assert (table[others] != random[others]).any(1).all()
    words = run.tokenizers[0].size - 4
    facts = {"file": "words.vec", "words": words, "with_vectors": len(rows)}
    assert run.card["embeddings"] == {"source": facts}


def test_resuming_keeps_them_frozen_without_the_file(run, folder, tmp_path, capsys):
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    rows = list(rows_of(run, read_vectors(folder / "words.vec").vectors))
    before = run.load_network().embedding_tables()["source"].weight
    assert main(["resume", str(copy), "--set", "train.max_steps=8"]) == 0
    after = Run.open(copy).load_network().embedding_tables()["source"].weight
    assert torch.equal(before[rows], after[rows])
    assert not torch.equal(before, after)
    assert main(["resume", str(copy), "--set", "train.freeze_embeddings=false"]) == 2
    assert "train.freeze_embeddings cannot change" in capsys.readouterr().err
    (copy / "frozen-rows.json").write_text("[1]")
    assert main(["resume", str(copy), "--set", "train.max_steps=9"]) == 2
    assert "frozen-rows.json: the frozen rows cannot be read" in capsys.readouterr().err


def test_vectors_of_a_run_and_their_export(folder, tmp_path, capsys):
    more = ("model.width=32", "train.max_steps=4")
    assert main(vector_arguments(folder / "texts.txt", tmp_path / "vectors", *more)) == 0
    vectors = Run.open(tmp_path / "vectors")
    for layout in ("text", "binary"):
        out = tmp_path / layout
        assert main(["export", str(vectors.folder), "--to", "word2vec", "--layout", layout, "--out", str(out)]) == 0
    text, binary = read_vectors(tmp_path / "text" / "vectors.txt"), read_vectors(tmp_path / "binary" / "vectors.bin")
    table = vectors.load_network().words.weight
    assert list(text.vectors) == list(binary.vectors)
    for id, vector in rows_of(vectors, binary.vectors).items():
        assert torch.equal(torch.from_numpy(vector), table[id]) or vectors.tokenizers[0].tokens[id][0] != "▁"
    arguments = ("tokenizer.lowercase=true", "train.max_steps=1")
    capsys.readouterr()
    assert start(folder, tmp_path / "text-model", *arguments, file=tmp_path / "text" / "vectors.txt") == 0
    assert start(folder, tmp_path / "model", *arguments, file=vectors.folder) == 0
    assert "words have vectors; the others start at random" in capsys.readouterr().err
    runs = [Run.open(tmp_path / name) for name in ("model", "text-model")]
    tables = [run.load_network().embedding_tables()["source"].weight for run in runs]
    torch.testing.assert_close(*tables, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "file", "message"),
    [
        (("tokenizer.kind=bpe",), "words.vec", 'set tokenizer.kind to "word", not "bpe"'),
        ((), "missing.vec", "missing.vec"),
        ((), "narrow.vec", "have 2 numbers, and the embeddings of the network 32; set model.width to 2"),
        ((), "strange.vec", "no word of the vocabulary has a vector in"),
        (("train.target_embeddings=words.vec",), "words.vec", "has no embeddings of a target"),
        (("train.start_from=elsewhere",), "words.vec", "elsewhere"),
        (("train.freeze_embeddings=true", "train.fsdp=true", "train.optimizer=adam"), "words.vec", "train.fsdp"),
        (("train.freeze_embeddings=true", "train.embeddings="), "words.vec", "there are no vectors to freeze"),
    ],
)
def test_what_does_not_fit_is_one_line(folder, tmp_path, capsys, monkeypatch, settings, file, message):
    monkeypatch.chdir(folder)
    assert start(folder, tmp_path / "run", *settings, file=file) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert not (tmp_path / "run").exists()


def test_duplicates_are_told(folder, tmp_path, capsys):
    line = (folder / "words.vec").read_text().splitlines()[0]
    (tmp_path / "twice.vec").write_text((folder / "words.vec").read_text() + line + "\n")
    assert start(folder, tmp_path / "run", "train.max_steps=1", file=tmp_path / "twice.vec") == 0
    assert "1 words occur several times" in capsys.readouterr().err


def test_fine_tuning_takes_no_vectors_and_freezes_nothing(run, folder, tmp_path, capsys):
    base = ["finetune", str(run.folder), "--source", str(folder / "texts.txt"), "--out", str(tmp_path / "run")]
    assert main([*base, "--set", f"train.embeddings={folder / 'words.vec'}"]) == 2
    assert "all weights come from the base" in capsys.readouterr().err
    few = ["--set", "train.max_steps=1", "--set", "train.validate_every=1", "--force"]
    assert main([*base, *few]) in (0, 1)
    assert not Run.open(tmp_path / "run").recipe.train.freeze_embeddings


WITHOUT = ("bigru-crf", "transformer-crf")
"""Taggers encode words from their characters."""


@pytest.mark.parametrize("arch", presets())
def test_the_tables_of_every_architecture(arch):
    settings = presets()[arch]
    sizes = dict.fromkeys(models.size_names(settings), 11) | {"target_vocabulary": 13}
    sizes = {name: size for name, size in sizes.items() if name in models.size_names(settings)}
    if settings.needs_joint_vocabulary:
        sizes["target_vocabulary"] = 11
    with torch.device("meta"):
        model = models.build(settings, **sizes)
    tables = model.embedding_tables()
    if arch in WITHOUT:
        assert not tables
        return
    assert tables["source"].num_embeddings == 11
    if settings.kind == "seq2seq":
        assert tables["target"].num_embeddings == sizes["target_vocabulary"]
    else:
        assert tables.keys() == {"source"}
    parameters = {id(parameter) for parameter in model.parameters()}
    assert all(id(table.weight) in parameters for table in tables.values())
