"""Unknown words of a word vocabulary are translated through attention and a dictionary (PosUnk)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import main
from regard.config import SearchSettings
from regard.config.recipe import make_recipe
from regard.data.pairs import Pair
from regard.errors import RunError, SettingsError
from regard.run import DICTIONARY, Run
from regard.tasks.train import check
from regard.tasks.translate.engine import choose_engine
from regard.tasks.translate.evaluate import score_translations
from regard.tasks.translate.translator import Translator

FREQUENT, RARE = 12, 150
SETTINGS = [
    "tokenizer.kind=word",
    "tokenizer.vocab_size=18",  # the frequent words and the special tokens: no rare word
    "model.width=32",
    "model.embedding_width=32",
    "model.dropout=0.0",
    "train.batch_tokens=512",
    "train.learning_rate=0.008",
    "train.warmup_steps=20",
    "train.regularization_warmup=0",
    "train.ema_decay=0.9",
    "train.validate_every=100",
    "train.checkpoint_every=100",
    "train.patience=0",
    "train.metric=loss",  # BLEU is low and noisy while the rare words are not replaced
    "search.beam_size=2",
]


def make_pairs(count: int, seed: int) -> list[Pair]:
    """Sentences of frequent words and one rare word, translated word by word: the order of the words stays."""
    draw, found = random.Random(seed), []
    for number in range(count):
        words = [f"a{draw.randrange(FREQUENT)}" for _ in range(draw.randint(4, 7))]
        words.insert(draw.randint(0, len(words)), f"rare{number % RARE}")
        target = [word.replace("a", "b", 1) if word[0] == "a" else word.replace("rare", "selten") for word in words]
        found.append(Pair(" ".join(words), " ".join(target)))
    return found


def write(path: Path, pairs: list[Pair]) -> str:
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
    return str(path)


def train(folder: Path, out: Path, steps: int, *more: str) -> int:
    train_file = write(folder / "train.tsv", make_pairs(900, 1))
    valid_file = write(folder / "valid.tsv", make_pairs(30, 2))
    arguments = [
        "train",
        "--source",
        train_file,
        "--valid-source",
        valid_file,
        "--arch",
        "luong-general",
        "--out",
        str(out),
    ]
    for setting in (*SETTINGS, f"train.max_steps={steps}", *more):
        arguments += ["--set", setting]
    return main(arguments)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    assert train(folder, folder / "run", 300) == 0
    return folder / "run"


def test_bleu_rises_when_unknown_words_are_replaced(run: Path) -> None:
    """Without replacement, copied (Zhou et al. 2016), and by the dictionary (Luong et al. 2015)."""
    test, translator = make_pairs(100, 3), regard.load(run)
    assert isinstance(translator, Translator)

    def bleu(**search: bool) -> float:
        found = translator.translate([pair.source for pair in test], **search)
        return score_translations([one.text for one in found], [pair.target for pair in test])["bleu"]

    without, with_dictionary = bleu(), bleu(replace_unknown=True)
    translator.dictionary = {}
    copied = bleu(replace_unknown=True)
    assert with_dictionary > 80
    assert max(without, copied) < 40


def test_the_dictionary_is_a_file_of_the_run(run: Path) -> None:
    lines = (run / DICTIONARY).read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines)
    entries = dict(line.split("\t") for line in lines)
    assert entries == Run.open(run).dictionary
    right = {f"rare{number}": f"selten{number}" for number in range(RARE)}
    assert sum(entries.get(word) == other for word, other in right.items()) >= 0.97 * RARE
    assert DICTIONARY in Run.open(run).checksums.read()


def test_a_damaged_dictionary_is_refused_and_a_missing_one_is_not_needed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, text = run / DICTIONARY, "a1 rare7 a2"
    content = path.read_bytes()
    try:
        path.write_bytes(content.replace(b"selten7\n", b"selten8\n"))
        assert main(["translate", str(run), text, "--replace-unknown"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "dictionary.tsv: damaged or changed" in line
        path.write_bytes(b"rare7 selten7\n")
        opened = Run.open(run)
        opened.checksums.accept([DICTIONARY])
        with pytest.raises(
            RunError, match=r"dictionary\.tsv: cannot read the dictionary .*unknown words are then copi"
        ):
            _ = opened.dictionary
        path.unlink()
        assert Run.open(run).dictionary == {}
    finally:
        Run.open(run).write_dictionary(dict(line.split("\t") for line in content.decode().splitlines()))
    assert path.read_bytes() == content


def test_fine_tuning_adds_to_the_dictionary(run: Path, tmp_path: Path) -> None:
    new = [
        Pair(pair.source.replace("rare", "new"), pair.target.replace("selten", "neu")) for pair in make_pairs(300, 4)
    ]
    out = tmp_path / "tuned"
    arguments = ["finetune", str(run), "--source", write(tmp_path / "new.tsv", new), "--out", str(out)]
    assert main([*arguments, "--set", "train.max_steps=2", "--set", "train.validate_every=2"]) == 0
    before, after = Run.open(run).dictionary, Run.open(out).dictionary
    assert before.keys() < after.keys()
    assert after["new7"] == "neu7"
    assert after["rare7"] == before["rare7"]


def test_other_vocabularies_have_no_dictionary(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "subwords"
    assert train(tmp_path, out, 1, "tokenizer.kind=character", "tokenizer.vocab_size=40") == 0
    assert not (out / DICTIONARY).exists()
    with pytest.raises(SettingsError, match=r"search\.replace_unknown needs a word vocabulary"):
        regard.load(out).translate("a1 a2", replace_unknown=True)


def test_ctranslate2_leaves_it_to_torch(run: Path) -> None:
    opened, search = Run.open(run), SearchSettings(replace_unknown=True)
    assert choose_engine("auto", opened, search) == "torch"
    with pytest.raises(
        SettingsError, match=r"CTranslate2 does not support search\.replace_unknown; use --engine torch"
    ):
        choose_engine("ctranslate2", opened, search)


@pytest.mark.parametrize(
    ("arch", "search", "problem"),
    [
        ("bytenet", {"replace_unknown": True}, "need a model with cross-attention"),
        ("seq2seq-lstm", {"coverage_penalty": 0.2}, "need a model with cross-attention"),
        ("deep-att", {"replace_unknown": True}, "needs a word vocabulary"),
        ("deep-att", {"coverage_penalty": 0.2, "beam_size": 1}, "needs a beam search"),
    ],
)
def test_search_that_does_not_fit_is_refused_before_training(arch: str, search: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        check(make_recipe({"model": {"arch": arch}, "search": search}))
    check(
        make_recipe({"model": {"arch": "deep-att"}, "tokenizer": {"kind": "word"}, "search": {"replace_unknown": True}})
    )
