"""Evaluating: scores are sacreBLEU's, resampling is sacreBLEU's, and the command says it all in three ways."""

from __future__ import annotations

import json
import random
import re
import shutil
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from regard import config
from regard.cli import main
from regard.data.builtin import read_phrases
from regard.data.pairs import Pair
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run
from regard.tasks.translate import cli as cli_translate
from regard.tasks.translate import engine as fast
from regard.tasks.translate.evaluate import (
    BootstrapScore,
    System,
    by_length,
    compare,
    evaluation,
    interval,
    measure,
    p_value,
    score_all,
    score_translations,
    select_examples,
)
from regard.tasks.translate.translation import Translation
from regard.text.tokenizer import train_tokenizer

PAIRS = [Pair(phrase.source, phrase.target) for phrase in read_phrases("test")[:60]]
REFERENCES = [pair.target for pair in PAIRS]
SACRE = {"bleu": BLEU, "chrf": CHRF, "ter": TER}


def spoiled(share: float, seed: int = 1) -> list[str]:
    """The references, with another word in the place of this share of theirs."""
    draw = random.Random(seed)
    return [" ".join(word if draw.random() > share else "boh" for word in text.split()) for text in REFERENCES]


GOOD, BAD = spoiled(0.1), spoiled(0.25, seed=2)


def system(name: str, translations: list[str]) -> System:
    return System.of_texts(name, translations, PAIRS, "it")


# ---------------------------------------------------------------------------------------------------------------------
# Scores and resampling


@pytest.mark.parametrize("name", SACRE)
def test_scores_of_the_whole_of_parts_and_of_sentences_are_those_of_sacrebleu(name):
    found = measure(BAD, REFERENCES)[name]
    assert found.score() == pytest.approx(SACRE[name]().corpus_score(BAD, [REFERENCES]).score, abs=1e-9)
    part = SACRE[name]().corpus_score(BAD[5:31], [REFERENCES[5:31]]).score
    assert found._replace(counts_NC=found.counts_NC[5:31]).score() == pytest.approx(part, abs=1e-9)
    each = [
        SACRE[name]().corpus_score([text], [[reference]]).score for text, reference in zip(BAD, REFERENCES, strict=True)
    ]
    assert list(map(found.of_totals, found.counts_NC)) == pytest.approx(each, abs=1e-9)


def test_p_values_and_intervals_are_those_of_sacrebleu(monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    test = PairedTest(
        [("bad", BAD), ("good", GOOD)], {name: metric() for name, metric in SACRE.items()}, [REFERENCES], "bs"
    )
    _, expected = test()
    good, bad = score_all([measure(GOOD, REFERENCES), measure(BAD, REFERENCES)])
    for name, theirs in zip(SACRE, ("BLEU", "chrF2", "TER"), strict=True):
        baseline, result = expected[theirs]
        found = compare(name, good[name], bad[name])
        assert found.difference == pytest.approx(result.score - baseline.score, abs=1e-6)
        assert found.p == pytest.approx(result.p_value, abs=1e-9)
        for one, theirs_of in ((good, result), (bad, baseline)):
            low, high = interval(one[name].resampled_R)
            assert (high - low) / 2 == pytest.approx(theirs_of.ci, abs=1e-4)  # theirs are summed in float32
            assert one[name].resampled_R.mean() == pytest.approx(theirs_of.mean, abs=1e-4)
        assert found.interval[0] < found.difference < found.interval[1]
        assert found.better == 0


def test_systems_that_say_the_same_do_not_differ():
    for found in evaluation(PAIRS, system("a", GOOD), system("b", GOOD))["differences"].values():
        assert found == {"difference": 0.0, "interval": (0.0, 0.0), "p": 1.0, "better": None}


def test_a_low_ter_is_the_better_one():
    few, many = BootstrapScore(10.0, np.linspace(9, 11, 1000)), BootstrapScore(30.0, np.linspace(29, 31, 1000))
    assert compare("ter", few, many).better == 0
    assert compare("bleu", few, many).better == 1


def test_few_sentences_have_no_interval():
    found = evaluation(PAIRS[:19], System("a", GOOD[:19], [()] * 19))
    assert found["intervals"] == {"bleu": None, "chrf": None, "ter": None}
    assert interval(np.empty(0)) is None


resamples = st.lists(st.floats(-50, 50), min_size=2, max_size=40).map(np.array)


@given(st.floats(-50, 50), resamples)
def test_a_p_value_is_a_share_and_has_no_sides(apart, apart_R):
    p = p_value(apart, apart_R)
    assert 0 < p <= 1
    assert p == p_value(-apart, -apart_R)


@given(st.lists(st.integers(0, 80), min_size=1, max_size=30))
def test_each_sentence_is_in_the_one_bucket_of_its_length(lengths):
    groups = by_length(["w " * length for length in lengths])
    assert sorted(place for rows in groups.values() for place in rows) == list(range(len(lengths)))
    for name, rows in groups.items():
        low, high = {"0": (0, 0), "over 50": (51, 80)}.get(name) or map(int, name.split("-"))
        assert all(low <= lengths[place] <= high for place in rows)


# ---------------------------------------------------------------------------------------------------------------------
# The whole evaluation


def test_an_evaluation_of_one_system():
    found = evaluation(PAIRS, system("a", BAD))
    scores = score_translations(BAD, REFERENCES)
    for name in ("bleu", "chrf", "ter"):
        assert found[name] == pytest.approx(scores[name], abs=1e-9)
        low, high = found["intervals"][name]
        assert low < found[name] < high
    assert (found["sentences"], found["signatures"]) == (60, scores["signatures"])
    assert found["against"] is found["differences"] is found["verdict"] is None
    assert sum(bucket["sentences"] for bucket in found["buckets"]) == 60
    assert [line["translation"] for line in found["lines"]] == BAD
    assert json.loads(json.dumps(found))["lines"] == found["lines"]


def test_an_evaluation_of_two_systems():
    found = evaluation(PAIRS, system("good", GOOD), system("bad", BAD))
    assert found["title"] == "good against bad"
    assert found["against"]["bleu"] == pytest.approx(score_translations(BAD, REFERENCES)["bleu"])
    assert {one["better"] for one in found["differences"].values()} == {"good"}
    assert found["verdict"] == "good is better than bad by BLEU, chrF and TER."
    for line in found["lines"]:
        assert line["difference"] == pytest.approx(line["chrf"] - line["against"]["chrf"], abs=0.01)
    sizes = [abs(line["difference"]) for _, line in select_examples(found["lines"], 60)]
    assert sizes == sorted(sizes, reverse=True)
    turned = evaluation(PAIRS, system("bad", BAD), system("good", GOOD))
    assert turned["verdict"] == found["verdict"]
    assert turned["differences"]["bleu"]["p"] == found["differences"]["bleu"]["p"]


def test_a_verdict_goes_by_places_not_by_names():
    found = evaluation(PAIRS, system("same", GOOD), system("same", BAD))
    assert found["verdict"] == "same is better than same by BLEU, chrF and TER."


def test_verdicts_say_what_chance_may_have_made():
    twice = evaluation(PAIRS, system("a", GOOD), system("b", GOOD))
    assert twice["verdict"] == "a and b have the same score by every metric."
    found = evaluation(PAIRS[:3], System("a", GOOD[:3], [()] * 3), System("b", BAD[:3], [()] * 3))
    assert found["verdict"] == "Fewer than 20 sentences are too few to compare a and b."


def test_translations_made_elsewhere_are_flagged_too():
    pairs = [Pair("a b c", "x"), Pair("", ""), Pair("Hello", "Ciao")]
    found = System.of_texts("theirs", ["", "", "no no no no no"], pairs, "it")
    assert list(found.flags) == [("empty",), (), ("loops",)]
    counted = evaluation(pairs, System("a", ["", "", ""], [("empty",), ("loops",), ("loops", "empty", "loops")]))
    assert list(counted["flags"].items()) == [("loops", 3), ("empty", 2)]


# ---------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A test set, two files of translations, and two untrained runs, the second for another language."""
    folder = tmp_path_factory.mktemp("evaluate")
    sources = [pair.source for pair in PAIRS]
    for name, lines in {
        "t.en": sources,
        "t.it": REFERENCES,
        "good.it": GOOD,
        "bad.it": BAD,
        "short.it": BAD[:7],
    }.items():
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (folder / "empty.it").write_text("")
    lines = [side for phrase in read_phrases()[:200] for side in (phrase.source, phrase.target)]
    tokenizer = train_tokenizer(lines, config.TokenizerSettings(vocab_size=400), seed=1)
    model = TransformerSettings(
        "transformer-tiny", encoder_layers=1, decoder_layers=1, width=16, heads=2, ffn_width=16, dropout=0.0, norm="pre"
    )
    for name, language in (("a", "it"), ("b", "de")):
        run = Run.create(folder / name)
        data = config.DataSettings(source_language="en", target_language=language)
        run.write_recipe(config.Recipe(data=data, tokenizer=config.TokenizerSettings(vocab_size=400), model=model))
        run.write_tokenizers(tokenizer, tokenizer)
        run.write_sizes(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size)
        torch.manual_seed(ord(name))
        run.write_weights(dict(run.build_network().named_parameters()))
    return folder


@pytest.fixture
def evaluate(folder: Path, monkeypatch, capsys):
    """Runs `regard evaluate` in that folder; gives exit code, output and errors."""
    monkeypatch.chdir(folder)

    def call(*words: str, test: tuple[str, ...] = ("--source", "t.en", "--target", "t.it")) -> tuple[int, str, str]:
        code = main(["evaluate", *words, *test])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_two_runs_as_json(evaluate):
    code, out, _ = evaluate("a", "--compare-with", "b", "--json", "--beam", "1", "--set", "search.max_length_extra=2")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert {"bleu", "chrf", "ter", "signatures", "flags"} <= set(found)
    assert (found["name"], found["against"]["name"]) == ("a", "b")
    assert found["made"]["search"]["beam_size"] == found["against"]["made"]["search"]["beam_size"] == 1
    assert found["languages"] == {"source": "en", "target": "it"}
    assert found["notes"] == [
        "the runs were trained for different languages: en to it and en to de",
        "a was translated by PyTorch, float32",
        "b was translated by PyTorch, float32",
    ]
    assert found["test"] == {"source": "t.en", "target": "t.it"}


def test_an_ensemble_can_be_compared_with_its_first_run(evaluate):
    code, out, _ = evaluate("a", "--ensemble", "b", "--compare-with", "a", "--json", "--beam", "1")
    assert code == 0
    found = json.loads(out)
    assert (found["made"]["ensemble"], found["against"]["made"]["ensemble"]) == (["b"], [])
    assert (found["name"], found["against"]["name"], found["title"]) == ("a + b", "a", "a + b against a")
    assert found["notes"] == [f"{name} was translated by PyTorch, float32" for name in ("a + b", "a")]
    assert "a + b and a" in found["verdict"] or "a + b is better than a by" in found["verdict"]


def test_runs_of_one_name_are_told_apart_by_their_paths(evaluate, folder):
    shutil.copytree(folder / "b", folder / "z" / "a")
    code, out, _ = evaluate("a", "--ensemble", "z/a", "--compare-with", "b", "--json", "--beam", "1")
    found = json.loads(out)
    assert code == 0
    assert (found["name"], found["against"]["name"]) == ("a + z/a", "b")


@pytest.mark.parametrize(
    "options", [[], ["--set", "search.stop=exact"], ["--ensemble", "b"], ["--no-repeat-ngram-size", "3"]]
)
@pytest.mark.parametrize("engine", ["auto", "torch", "ctranslate2"])
def test_the_engine_is_the_one_that_translates(evaluate, monkeypatch, capsys, engine, options):
    """Whichever `regard translate` takes, or the same refusal."""
    opened = []

    def open_fast(*_, **__):
        opened.append("ctranslate2")
        return types.SimpleNamespace(translate=answer)

    def open_torch(*_, **__):
        opened.append("torch")
        return answer

    def answer(texts, **_):
        return [Translation(text, "x", 0.0, (), (), True) for text in texts]

    monkeypatch.setattr(fast, "load_fast", open_fast)
    monkeypatch.setattr(cli_translate, "by_torch", open_torch)
    code, _, err = evaluate("a", "--engine", engine, *options)
    translated = main(["translate", "a", "t.en", "--engine", engine, *options])
    assert (code, err) == (translated, capsys.readouterr().err)
    assert len(opened) == (0 if code else 2)
    assert len(set(opened)) <= 1


def test_a_run_in_a_folder_that_cannot_be_written_is_evaluated_with_torch(evaluate, monkeypatch):
    monkeypatch.setattr("regard.tasks.translate.engine.os.access", lambda path, mode: False)
    code, out, err = evaluate("a", "--engine", "auto", "--json", "--beam", "1")
    assert (code, json.loads(out)["made"]["engine"]) == (0, "PyTorch, float32")
    problem = "a/ctranslate2-int8: the model converted for CTranslate2 cannot be written (no permission)"
    assert err == f"{problem}; translating with torch\n"
    code, _, err = evaluate("a", "--engine", "ctranslate2")
    assert (code, err) == (2, f"regard: {problem}\n")


def test_a_file_against_a_run_in_plain_lines_and_as_a_page(evaluate, folder):
    code, out, err = evaluate(
        "good.it", "--compare-with", "a", "--beam", "1", "--examples", "2", "--page", "scores.html"
    )
    assert (code, err) == (0, "")
    tables = [[row.split("\t") for row in part.splitlines()] for part in out.split("\n\n")]
    assert tables[0][0] == ["metric", "good.it", "95 %", "a", "95 %", "difference", "95 %", "p", "signature"]
    assert [row[0] for row in tables[0][1:]] == ["BLEU", "chrF", "TER"]
    assert float(tables[0][1][1]) == pytest.approx(score_translations(GOOD, REFERENCES)["bleu"], abs=0.005)
    assert tables[1][0][:4] == ["words", "sentences", "BLEU good.it", "BLEU a"]
    assert len(tables[-2]) == 3
    assert "good.it is better than a by" in out
    assert out.endswith("Open scores.html in a browser.\n")
    assert "<title>good.it against a · Regard</title>" in (folder / "scores.html").read_text(encoding="utf-8")


def test_on_a_terminal_the_words_amiss_stand_out(evaluate, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    code, out, _ = evaluate("good.it", "--compare-with", "bad.it", "--examples", "1")
    text = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert code == 0
    assert "good.it against bad.it  60 sentences" in text
    assert "largest differences by chrF" in text
    assert "Intervals contain 95 % of 1,000 resamples, seed 12345." in text
    [line] = [line for _, line in select_examples(evaluation(PAIRS, system("", GOOD), system("", BAD))["lines"], 1)]
    assert line["reference"] in text
    code, out, _ = evaluate("bad.it", "--examples", "60")
    assert "\x1b[33m" in out  # yellow: words that are not in the reference


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["short.it"], "short.it:7: the file ends after 7 lines, but t.en has 60; the two must match line by line"),
        (["a", "--compare-with", "short.it"], "short.it:7: the file ends after 7 lines"),
        (["empty.it"], "empty.it: the file is empty"),
        (["a", "--compare-with", "./a"], "--compare-with ./a: this is the same as a; give another run or file"),
        (["bad.it", "--compare-with", "bad.it"], "the same as bad.it"),
        (["goof.it"], 'goof.it: there is no such run folder; did you mean "good.it"?'),
        (["good.it", "--beam", "3"], "search settings are only for runs"),
        (["good.it", "--ensemble", "a", "--compare-with", "b"], "--ensemble: good.it is a file of translations"),
        (["good.it", "--page", "t.it"], "--page t.it: give the name of an HTML file, e.g. t.html"),
        (["good.it", "--page", "no/t.html"], "there is no folder no"),
        (["good.it", "--examples", "-1"], "--examples must be 0 or more, not -1"),
    ],
)
def test_bad_input_is_told_in_one_line(evaluate, folder, words, message):
    before = sorted(folder.iterdir())
    code, out, err = evaluate(*words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err
    assert sorted(folder.iterdir()) == before


def test_a_test_set_that_is_uneven_or_empty_is_refused(evaluate):
    for target, message in (("short.it", "short.it:7: ends here"), ("empty.it", "empty.it: the file is empty")):
        code, _, err = evaluate("good.it", test=("--source", "t.en", "--target", target))
        assert code == 2
        assert message in err
