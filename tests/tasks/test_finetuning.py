"""Fine-tuning tells what it costs: the base's held-out examples before and after, and whether new data fits."""

import json
import random
import shutil

import numpy as np
import pytest

from regard.cli import main
from regard.config import TokenizerSettings
from regard.data.builtin import read_phrases
from regard.run import BASE, Run
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.finetuning import compare, coverage, describe_interval, misfits_of
from regard.text.tokenizer import train_tokenizer
from tests.kept.make import KEPT

FORMAT_1 = KEPT / "format-1"
RATE = {"retrieve": 0.3}


def write_wrong(base, folder):
    """Training data for the task of a run, made of its held-out examples, but with wrong answers."""
    task, records = base.recipe.data.task, base.held_out_records()
    if task == "translate":
        lines, name = [f"{one['source']}\t{one['target'][::-1]}" for one in records], "new.tsv"
    elif task == "chat":
        turns = [[one["source"].split("\n")[0], one["target"][::-1]] for one in records]
        lines, name = [json.dumps({"turns": pair}) for pair in turns], "new.jsonl"
    elif task == "classify":
        swapped = dict(zip(base.labels, reversed(base.labels), strict=True))
        rows = [{"label": swapped[one["labels"][0]], "text": one["text"]} for one in records]
        lines, name = [json.dumps(one) for one in rows], "new.jsonl"
    elif task == "tag":
        wrong = {tag: "O" for one in records for tag in one["tags"]}
        sentences = (
            [f"{word} {wrong[tag]}" for word, tag in zip(one["tokens"], one["tags"], strict=True)] for one in records
        )
        blocks = ["\n".join(one) for one in sentences]
        blocks[0] = "\n".join(map(" ".join, zip(records[0]["tokens"], records[0]["tags"], strict=True)))  # some spans
        lines, name = [f"{block}\n" for block in blocks], "new.conll"
    elif task == "retrieve":
        answers = [one["target"] for one in records]
        rows = [
            (f"{one['source']} {k}", answers[(n + k) % len(answers)]) for n, one in enumerate(records) for k in range(3)
        ]
        lines, name = [f"{question}\t{answer}" for question, answer in rows], "new.tsv"
    else:
        lines, name = [one["text"][::-1] for one in records], "new.txt"
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("task", ["chat", "classify", "tag", "retrieve", "language-model"])
def test_fine_tuning_that_makes_a_run_worse_is_told_and_fails(task, tmp_path, capsys):
    base = Run.open(shutil.copytree(FORMAT_1 / task, tmp_path / "base"))
    new, out = write_wrong(base, tmp_path), tmp_path / "tuned"
    arguments = ["finetune", str(base.folder), "--source", str(new), "--out", str(out)]
    arguments += ["--set", "train.max_steps=20", "--set", "train.validate_every=20", "--set", "train.warmup_steps=1"]
    arguments += ["--set", f"train.learning_rate={RATE.get(task, 0.03)}"]
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert f"held-out examples of {base.folder}: " in told
    assert "warning: fine-tuning made the run worse on what base was trained for" in told
    found = Run.open(out).card["comparison"]
    low, high = found["interval"]
    assert found["is_worse"]
    assert low > 0 if found["score"] == "perplexity" else high < 0
    assert found["examples"] == len(base.held_out_records())
    assert main(["verify", str(out)]) == 0
    assert main(["resume", str(out), "--force"]) == 0
    assert main(["resume", str(out)]) == 1


def test_fine_tuning_on_the_same_kind_of_data_succeeds(tmp_path, capsys):
    base = shutil.copytree(FORMAT_1 / "translate", tmp_path / "base")
    lines = [f"{phrase.source}\t{phrase.target}\n" for phrase in read_phrases()[:60]]
    (tmp_path / "new.tsv").write_text("".join(lines), encoding="utf-8")
    arguments = ["finetune", str(base), "--source", str(tmp_path / "new.tsv"), "--out", str(tmp_path / "tuned")]
    assert main([*arguments, "--set", "train.max_steps=2", "--set", "train.precision=float32"]) == 0
    told = capsys.readouterr().err
    assert "warning" not in told
    assert (
        "base: BLEU 0.0 before, 0.0 after fine-tuning  on 20 examples; difference 0.0, 95 % interval 0.0 to 0.0" in told
    )
    assert "(fewer than 20 examples: not reliable)" in told  # of the few validation and test pairs
    stored = json.loads((tmp_path / "tuned" / BASE).read_text(encoding="utf-8"))
    assert (
        stored["settings"]["search"] == {"max_length_ratio": 1.0, "max_length_extra": 5} | stored["settings"]["search"]
    )


def test_another_language_and_unknown_characters_are_said_before_training(tmp_path, capsys):
    base = shutil.copytree(FORMAT_1 / "translate", tmp_path / "base")
    phrases = read_phrases()[:60]
    cyrillic = str.maketrans("abcdefghijklmnoprstuvyz", "абцдефгхийклмнопрстувыз")
    (tmp_path / "new.en").write_text("".join(f"{one.source}\n" for one in phrases), encoding="utf-8")
    (tmp_path / "new.ru").write_text(
        "".join(f"{one.target.translate(cyrillic)}\n" for one in phrases), encoding="utf-8"
    )
    arguments = ["finetune", str(base), "--source", str(tmp_path / "new.en"), "--target", str(tmp_path / "new.ru")]
    assert main([*arguments, "--dry-run"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    language, script, unknown = told
    assert language == (
        f"warning: the target language of {base} is Italian, that of the new data is Russian; "
        "train a new run for another language"
    )
    assert script.startswith("warning: the new targets are written in Cyrillic, the held-out texts of ")
    assert "of the tokens of the new targets are not in the vocabulary" in unknown
    assert 'e.g. "' in unknown


def test_text_that_is_split_into_many_tokens_is_said():
    texts = [phrase.source for phrase in read_phrases()[:300]]
    tokenizer = train_tokenizer(texts, TokenizerSettings(vocab_size=600), 1)
    draw = random.Random(1)
    other = ["".join(draw.choices("bcdfghklmnprstvw", k=40)) for _ in range(40)]
    [told] = misfits_of("the new texts", "base", other, texts, tokenizer)
    assert told.startswith("the new texts do not fit the vocabulary of base: they have ")
    assert not list(misfits_of("the new texts", "base", texts[:50], texts[50:], tokenizer))


@pytest.mark.parametrize(("kind", "unknown"), [("bpe", {"ж", "щ"}), ("character", {"ж", "щ"}), ("word", set())])
def test_coverage_counts_unknown_tokens_and_characters(kind, unknown):
    texts = [phrase.source for phrase in read_phrases()[:300]]
    tokenizer = train_tokenizer(texts, TokenizerSettings(kind=kind, vocab_size=40 if kind == "character" else 400), 1)
    assert coverage(tokenizer, ["the the the"]).unknown == 0
    found = coverage(tokenizer, ["жжщ"])
    assert found.unknown > 0.7
    assert set(found.unseen) == unknown


def test_a_run_is_worse_if_the_whole_interval_is_on_the_wrong_side():
    right = np.random.default_rng(1).random(400) < 0.8
    much, little = right & (np.arange(400) % 2 == 0), right.copy()
    little[np.flatnonzero(right)[:1]] = False

    def accuracy(values, **more):
        return ratio_metric("accuracy", ((value, 1) for value in values), **more)

    assert compare(accuracy(right), accuracy(much))["is_worse"]
    assert not compare(accuracy(right), accuracy(little))["is_worse"]
    assert not compare(accuracy(much), accuracy(right))["is_worse"]
    assert compare(accuracy(much, lower_is_better=True), accuracy(right, lower_is_better=True))["is_worse"]
    few = compare(accuracy(right[:19]), accuracy(~right[:19]))
    assert few["interval"] is None
    assert not few["is_worse"]


def test_scores_carry_their_interval():
    assert (
        describe_interval("tag", {"intervals": {"span_f1": [0.5, 0.75]}})
        == "  (95 % interval of span F1: 50.00% to 75.00%)"
    )
    assert describe_interval("tag", {}) == ""
