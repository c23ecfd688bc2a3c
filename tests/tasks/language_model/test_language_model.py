"""The language model as a task: training, perplexity, writing, and what its commands refuse."""

import io
import json
import math
import sys

import pytest
import torch

import regard
from regard.cli import main
from regard.config import Corpus, DataSettings, Recipe
from regard.data.builtin import read_texts as read_builtin
from regard.errors import CorpusError, SettingsError
from regard.tasks.language_model.plan import make_plan
from regard.tasks.language_model.training import TRAINING
from regard.tasks.text_scores import TextScore, domain_differences, open_scorer, sum_scores, windows
from regard.tasks.texts import read_texts
from regard.text.tokenizer import EOS, SOS
from regard.training.device import Machine
from tests.small_texts import train_arguments, write_texts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    texts = write_texts(folder / "train.txt", 1500)
    assert main(train_arguments(texts, folder / "run", "train.max_steps=60", "train.validate_every=30")) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def generator(run):
    return regard.load(run)


def stepwise(generator, ids):
    """The negative log-likelihood of ids and EOS, token by token with a KV cache, by no code of the task."""
    model, total, token = generator.model, 0.0, SOS
    source = type("Source", (), {"ids_BS": torch.zeros(1, 1, dtype=torch.long), "mask_BS": torch.ones(1, 1).bool()})
    memory = model.encode(source)
    state = model.start(memory)
    for wanted in [*ids, EOS]:
        logits_BWV, state = model.step(torch.tensor([[token]]), state, memory)
        total -= logits_BWV[0, 0].log_softmax(-1)[wanted].item()
        token = wanted
    return total


def test_it_learns(run):
    card = json.loads((run / "card.json").read_text())
    test = card["scores"]["test"]
    assert test["perplexity"] < 60 < card["vocabulary"] / 4  # of 300 tokens that are equally likely before training
    assert test["word_perplexity"] == pytest.approx(math.exp(test["loss"] * test["tokens"] / test["words"]))
    assert test["character_perplexity"] == pytest.approx(math.exp(test["loss"] * test["tokens"] / test["characters"]))
    assert test["bits_per_byte"] == pytest.approx(test["loss"] * test["tokens"] / math.log(2) / test["bytes"])
    assert card["task"] == "language-model"
    last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
    assert last.keys() >= {"perplexity", "word_perplexity", "character_perplexity", "bits_per_byte"}


def test_the_score_is_the_sum_over_steps(generator):
    text = "The old man is in the kitchen."
    [score] = generator.score([text])
    ids = generator.tokenizer.encode(text)
    assert score.negative_log_likelihood == pytest.approx(stepwise(generator, ids), rel=1e-4)
    assert score[1:] == (len(ids) + 1, 8, len(text) + 1, len(text) + 1)


def test_the_prediction_of_a_text_is_that_of_its_tokens(generator):
    text = "The old man is in the kitchen."
    found = generator.predict_tokens(text, best=3)
    [score] = generator.score([text])
    assert [one.id for one in found] == [*generator.tokenizer.encode(text), EOS]
    assert -sum(one.log_prob for one in found) == pytest.approx(score.negative_log_likelihood, rel=1e-4)
    for one in found:
        assert [value for _, value in one.best] == sorted((value for _, value in one.best), reverse=True)
        assert (one.rank <= 3) == (one.id in dict(one.best))


def test_a_text_alone_has_its_score_in_any_company(generator):
    texts = ["Who is it?", "She sees the old house in the city and the garden.", "I am tired."]
    together = generator.score(texts)
    for text, score in zip(texts, together, strict=True):
        [alone] = generator.score([text])
        assert alone.negative_log_likelihood == pytest.approx(score.negative_log_likelihood, rel=1e-4)
    assert sum_scores(together).tokens == sum(score.tokens for score in together)


def test_a_long_text_is_scored_in_windows(generator):
    text = "The dog is old. " * 100
    ids = generator.tokenizer.encode(text)
    parts = windows(ids, generator.max_length)
    assert [len(part) for part in parts[:-1]] == [250] * (len(parts) - 1)
    assert len(parts) > 1
    [score] = generator.score([text])
    assert score.tokens == len(ids) + len(parts)
    assert score.negative_log_likelihood == pytest.approx(sum(stepwise(generator, part) for part in parts), rel=1e-3)


def test_an_empty_text_has_the_probability_of_its_end(generator):
    [score] = generator.score([""])
    assert score.tokens == 1
    assert score.negative_log_likelihood == pytest.approx(stepwise(generator, []), rel=1e-4)


def test_texts_begin_as_asked_and_depend_on_the_seed(generator):
    [one] = generator.write("The old man", seed=3)
    assert one.text.startswith("The old man")
    assert [one] == generator.write("The old man", seed=3)
    drawn = {generator.write("The old man", seed=seed, temperature=2.0)[0].text for seed in range(5)}
    assert len(drawn) > 1
    [many] = generator.write("Who", nbest=4, temperature=2.0)
    assert len(many.alternatives) == 3


def test_a_text_does_not_depend_on_the_others(generator):
    beginnings = ["Who", "The old man and his wife", "", "She"]
    together = [one.text for one in generator.write(beginnings, seed=5)]
    assert together == [generator.write(one, seed=5)[0].text for one in beginnings]


@pytest.mark.parametrize("search", [{"temperature": 0.0}, {"seed": 4}])
def test_a_stream_is_the_text_in_pieces(generator, search):
    pieces = list(generator.stream("The old", **search))
    assert "".join(pieces) == generator.write("The old", **search)[0].text
    assert len(pieces) > 2


def test_a_beam_finds_a_text_at_least_as_probable_as_greedy(generator):
    def probability(**search):
        [found] = generator.write("Who", length_penalty=0.0, **search)
        return found.score

    assert probability(beam_size=8) >= probability(temperature=0.0)
    with pytest.raises(SettingsError, match="cannot stream"):
        generator.stream("Who", beam_size=8)


def test_the_limit_counts_new_tokens(generator):
    [one] = generator.write("The old man", max_length_extra=2, min_length=30, temperature=0.0)
    assert len(one.tokens) == len(generator.tokenizer.encode("The old man")) + 2
    assert not one.finished


# Commands


def test_write_evaluate_and_score(run, tmp_path, capsys, monkeypatch):
    assert main(["write", str(run), "The old man", "--count", "2", "--max-tokens", "5"]) == 0
    assert [line[:11] for line in capsys.readouterr().out.splitlines()] == ["The old man"] * 2
    beginnings = tmp_path / "beginnings.txt"
    beginnings.write_text("Who\nShe\n")
    assert main(["write", str(run), str(beginnings), "--json", "--beam", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["beginning"] for row in rows] == ["Who", "She"]
    texts = tmp_path / "test.txt"
    texts.write_text("Who is it?\n\nThe dog is old.\n")
    assert main(["evaluate", str(run), "--source", str(texts), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["texts"] == 2
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert main(["score", str(run), "--source", str(texts)]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[3] for line in lines] == ["Who is it?", "The dog is old."]
    assert -sum(float(line[0]) for line in lines) == pytest.approx(found["loss"] * found["tokens"], rel=1e-3)
    assert main(["score", str(run), "--source", str(texts), "--json"]) == 0
    for row in map(json.loads, capsys.readouterr().out.splitlines()):
        assert len(row["token_log_probs"]) == row["tokens"]
        assert sum(value for _, value in row["token_log_probs"]) == pytest.approx(row["log_probability"], rel=1e-4)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Who is it?\n")))
    assert main(["evaluate", str(run)]) == 0
    assert "perplexity per character" in capsys.readouterr().out


def test_a_corpus_is_cleaned_by_two_models(run, generator, tmp_path, capsys):
    """The same model twice: all differences are 0, so no pair is more probable in the domain."""
    pairs, out = tmp_path / "pairs.tsv", tmp_path / "kept.tsv"
    pairs.write_text("Who is it?\tChi?\nThe dog is old.\tIl cane.\n")
    scorer = open_scorer(run)
    assert domain_differences(scorer, scorer, ["Who is it?"]) == [0.0]
    command = ["data", "clean", "--source", str(pairs), "--out", str(out), "--in-domain", str(run)]
    assert main([*command, "--general", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"]["domain"] == 2
    for words, message in (([], "--general is missing"), (["--general", str(run), "--keep", "2"], "--keep must be")):
        assert main([*command, *words, "--force"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["write", "RUN", "--count", "0"], "--count must be at least 1"),
        (["write", "RUN", "--temperature", "-1"], "search.temperature"),
        (["evaluate", "RUN", "--source", "missing.txt"], "missing.txt"),
        (["score", "RUN", "--source", "EMPTY"], "there is no text to score"),
        (["evaluate", "RUN", "--source", "PAIRS"], "texts cannot be read from this format"),
        (["evaluate", "RUN", "--target", "PAIRS"], "unknown option --target"),
        (["translate", "RUN", "a"], 'use "regard write'),
        (["train", "--task", "language-model", "EMPTY", "--target", "PAIRS"], "leave out --target"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, capsys, arguments, message):
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    places = {"RUN": str(run), "EMPTY": str(tmp_path / "empty.txt"), "PAIRS": str(tmp_path / "pairs.tsv")}
    assert main([places.get(word, word) for word in arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("regard: ")
    assert message in line


# Data and plan


def test_texts_come_as_lines_json_or_a_built_in_corpus(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n two \n")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two", "id": 3}\n')
    assert read_texts(Corpus(str(tmp_path / "a.txt"))) == ["one", " two "]
    assert read_texts(Corpus(str(tmp_path / "a.jsonl"))) == ["one", "two"]
    assert read_texts(Corpus("smalltalk:valid")) == list(read_builtin("smalltalk:valid"))
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"words": "two"}\n')
    with pytest.raises(CorpusError, match=r"b.jsonl:2: no \"text\" here"):
        read_texts(Corpus(str(tmp_path / "b.jsonl")))


def test_no_text_is_in_two_parts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"text {number % 80}\n" for number in range(400)))
    parts = TRAINING.read(Recipe(DataSettings(train=(Corpus(str(path)),))))
    sets = [set(parts.train()), *map(set, parts.held_out.values())]
    assert all(sets)
    assert sum(map(len, sets)) == len(set.union(*sets))


MACHINE = Machine(device="cpu", cores=2, memory=8e9, peak=1e11)


def plan_of(tokens, **given):
    return {one.name: one.value for one in make_plan(tokens, MACHINE, given)}


def test_more_data_gets_a_larger_network():
    chosen = [plan_of(tokens) for tokens in (11_000, 1_100_000, 11e7)]
    assert [plan["model.width"] for plan in chosen] == [128, 256, 512]
    assert [plan["model.width"] % plan["model.heads"] for plan in chosen] == [0, 0, 0]
    kept = plan_of(1_100_000, model={"width": 100})
    assert "model.width" not in kept
    assert (kept["model.heads"], kept["model.ffn_width"]) == (1, 400)


def test_little_time_gets_a_smaller_network():
    """10 minutes at 50 GFLOP/s: 256 wide, 4 layers (25 MFLOP per token): 0.4 million tokens are read 3 times."""
    chosen = [plan_of(400_000, train={"max_minutes": minutes})["model.width"] for minutes in (2, 10, 60)]
    assert chosen == [128, 192, 256]


def test_an_lstm_gets_settings_of_its_own():
    chosen = plan_of(1_100_000, model={"arch": "lstm-lm"})
    assert not chosen.keys() & {"model.heads", "model.ffn_width", "train.zero_init_residual"}
    assert (chosen["model.layers"], chosen["train.learning_rate"]) == (2, 0.003)


def test_scores_add_up():
    both = sum_scores([TextScore(2.0, 1, 1, 4, 4), TextScore(4.0, 2, 2, 4, 5)])
    assert both == TextScore(6.0, 3, 3, 8, 9)
    assert both.as_dict()["perplexity"] == pytest.approx(math.exp(2.0))
    with pytest.raises(SettingsError):
        sum_scores([])
