"""A language model in translation: shallow fusion, reranking, the comparison of weights, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch

import regard
from regard.cli import main
from regard.config import SearchSettings
from regard.config.recipe import make_recipe
from regard.errors import SettingsError
from regard.run import Run
from regard.tasks.text_scores import score_texts
from regard.tasks.translate.language_model import open_language_model
from tests.export.runs import random_recipe, random_run, sentences, tokenizer

SEARCH = {"beam_size": 4, "max_length_ratio": 1.0, "max_length_extra": 4, "retry_failures": False, "stop": "exact"}
WEIGHT = 0.7


def write_language_model(folder, language):
    """A language model with random weights."""
    own = tokenizer("bpe", language)
    table = {
        "data": {"task": "language-model"},
        "tokenizer": {"vocab_size": own.size},
        "model": {"arch": "transformer-lm", "layers": 1, "width": 16, "heads": 2, "ffn_width": 32},
    }
    run = Run.create(folder)
    run.write_recipe(make_recipe(table))
    run.write_tokenizers(own, own)
    run.write_sizes(vocabulary=own.size)
    torch.manual_seed(3)
    model = run.build_network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    run.write_weights(dict(model.named_parameters()))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    recipe = random_recipe(data={"source_language": "en", "target_language": "it"}, search=SEARCH)
    random_run(folder / "en-it", recipe)
    write_language_model(folder / "same", "both")
    write_language_model(folder / "other", "target")
    return folder


def prior(folder, texts):
    """Log-probabilities of texts by the language model."""
    model = open_language_model(folder)
    return [-one.negative_log_likelihood for one in score_texts(model.model, model.tokenizer, texts, 250)]


def test_fusion_adds_the_log_probabilities_of_every_token(runs):
    texts = sentences(4)
    plain = regard.load(runs / "en-it")
    fused = translator(runs, "same")
    for one, alone in zip(fused.translate(texts, lm_weight=WEIGHT), plain.translate(texts), strict=True):
        ids = [fused.target.tokens.index(token) for token in one.tokens]
        assert len(one.log_probs) == len(ids) + one.finished
        assert one.score == pytest.approx(one.log_prob / len(one.log_probs), rel=1e-4)
        assert alone.score > one.score
        if one.finished and fused.target.encode(one.text) == ids:
            [given] = plain.score([one.source], [one.text])
            [of_text] = prior(runs / "same", [one.text])
            assert one.log_prob == pytest.approx(given.log_prob + WEIGHT * of_text, rel=0.02)


def translator(runs, name):
    from regard.tasks.translate.translator import load

    return load(runs / "en-it", lm=runs / name)


def test_without_weight_the_language_model_changes_nothing(runs):
    texts = sentences(6)
    expected = [one.text for one in regard.load(runs / "en-it").translate(texts)]
    for name, use in (("same", "fusion"), ("other", "rerank")):
        found = translator(runs, name).translate(texts, lm_weight=0.0, lm_use=use)
        assert [one.text for one in found] == expected


def test_reranking_sorts_the_hypotheses(runs):
    """Any vocabulary will do. The score is that of the translator plus the weighted log-probability of the text."""
    texts = sentences(4)
    plain = regard.load(runs / "en-it").translate(texts, nbest=4)
    found = translator(runs, "other").translate(texts, nbest=4, lm_weight=WEIGHT, lm_use="rerank")
    changed = 0
    for one, before in zip(found, plain, strict=True):
        hypotheses = [before, *before.alternatives]
        priors = prior(runs / "other", [each.text for each in hypotheses])
        wanted = [
            each.score + WEIGHT * value / len(each.log_probs) for each, value in zip(hypotheses, priors, strict=True)
        ]
        assert [each.score for each in (one, *one.alternatives)] == pytest.approx(
            sorted(wanted, reverse=True), rel=1e-3
        )
        assert one.tokens == hypotheses[wanted.index(max(wanted))].tokens
        changed += one.tokens != before.tokens
    assert changed


def test_commands(runs, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{text}\tQuesta casa.\n" for text in sentences(3)))
    ours, lm = str(runs / "en-it"), str(runs / "same")
    assert main(["translate", ours, "I am here.", "--lm", lm, "--lm-weight", "0.7", "--scores"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    [expected] = translator(runs, "same").translate(["I am here."], lm_weight=WEIGHT)
    assert line.split("\t")[2] == expected.text
    assert main(["evaluate", ours, "--source", str(pairs), "--lm", lm, "--compare-with", ours, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "en-it + same"
    assert main(["evaluate", ours, "--source", str(pairs), "--lm", lm, "--tune-lm-weight", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["lm_weight"] for row in rows] == [0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4]
    assert all(row["chrf"] >= 0 for row in rows)


BAD = {
    "another vocabulary": (["--lm", "other"], "train the language model with --tokenizer-from"),
    "no language model": (["--lm", "en-it"], "not a language model"),
    "nothing there": (["--lm", "none"], "no such run folder"),
    "a weight alone": (["--lm-weight", "0.2"], "name its run with --lm"),
    "no hypotheses": (["--lm", "other", "--lm-use", "rerank", "--beam", "1"], "set search.beam_size above 1"),
    "the other engine": (["--lm", "same", "--engine", "ctranslate2"], "CTranslate2 does not support --lm"),
    "a negative weight": (["--lm", "same", "--lm-weight", "-1"], "search.lm_weight"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(runs, capsys, case):
    words, message = BAD[case]
    places = {name: str(runs / name) for name in ("same", "other", "en-it", "none")}
    assert main(["translate", str(runs / "en-it"), "I am here.", *(places.get(word, word) for word in words)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("regard: ")
    assert message in line


def test_in_python_another_vocabulary_is_refused(runs):
    with pytest.raises(SettingsError, match="its vocabulary differs"):
        translator(runs, "other").translate("I am here.")
    assert replace(SearchSettings(), lm_use="rerank").lm_weight == 0.2
