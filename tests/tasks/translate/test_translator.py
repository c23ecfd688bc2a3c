"""The translator over a model whose every word is known beforehand."""

import gzip
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from torch import nn

import regard
from regard import config, models
from regard.cli import main
from regard.data.builtin import read_phrases
from regard.errors import RunError, SettingsError
from regard.models import settings_of
from regard.models.base import EncoderOutput, Seq2Seq
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run
from regard.tasks.translate.translator import Translator, Workers
from regard.text.tokenizer import EOS, SOS, UNK, train_tokenizer

LINES = ["ein Hund und ein Kind rennen schnell", "die Katze schläft"]


class Scripted(Seq2Seq):
    """Writes what a table says should follow each word; the source is not read."""

    def __init__(self, follows, size):
        super().__init__()
        self.output = nn.Linear(1, size)
        self.logits = torch.full((size, size), -9.0)
        for before, after in follows.items():
            for token, share in after.items():
                self.logits[before, token] = math.log(share)

    def encode(self, source):
        return EncoderOutput(torch.zeros(*source.ids_BS.shape, 1), source.mask_BS)

    def start(self, memory):
        return torch.zeros(len(memory.mask_BS), 1)

    def step(self, token_BW, state, memory):
        return self.logits[token_BW], state

    def hidden(self, source, target_BT):
        raise NotImplementedError


@pytest.fixture
def words():
    return train_tokenizer(LINES, config.TokenizerSettings(kind="word", vocab_size=30), seed=1)


def scripted(words, follows, **options):
    """`follows`: a word, or "" for start and end, and what comes after it with which share."""
    ids = lambda word, special: words.encode(word)[0] if word else special  # noqa: E731
    table = {
        ids(before, SOS): {ids(after, EOS): share for after, share in row.items()} for before, row in follows.items()
    }
    return Translator(Scripted(table, words.size), words, words, **options)


SENSIBLE = {"": {"ein": 0.6, "die": 0.4}, "ein": {"Hund": 0.7, "Kind": 0.3}, "Hund": {"": 1}, "Kind": {"": 1},
            "die": {"Katze": 1}, "Katze": {"": 1}}  # fmt: skip


def test_an_answer_says_what_is_known(words):
    [answer] = scripted(words, SENSIBLE).translate("ein Hund", nbest=3)
    assert answer.text == "ein Hund"
    assert answer.tokens == ("▁ein", "▁Hund")
    assert answer.log_probs == pytest.approx([math.log(0.6), math.log(0.7), 0], abs=0.01)
    assert answer.log_prob == pytest.approx(math.log(0.42), abs=0.02)
    assert answer.score == pytest.approx(math.log(0.42) / 3, abs=0.01)
    assert [other.text for other in answer.alternatives] == ["die Katze", "ein Kind"]
    data = json.loads(json.dumps(answer.as_dict()))
    assert data["log_prob"] == answer.log_prob
    assert data["alternatives"][1]["log_prob"] == answer.alternatives[1].log_prob
    assert "tree" not in data


def test_a_tree_comes_when_asked_for(words):
    answers = scripted(words, SENSIBLE).translate(["ein", "", "die Katze"], tree=True, beam_size=2)
    assert answers[1].tree is None  # an empty line is not searched
    for answer in (answers[0], answers[2]):
        finished = [node for node in answer.as_dict()["tree"]["nodes"] if node["fate"] == "finished"]
        assert max(node["score"] for node in finished) == pytest.approx(answer.score)


LOOP = {"": {"ein": 1}, "ein": {"Hund": 1}, "Hund": {"und": 0.9, "": 0.1}, "und": {"ein": 1}}


@pytest.mark.parametrize("beam", [1, 3])
def test_a_loop_is_tried_again_with_safer_settings(words, beam):
    translator = scripted(words, LOOP)
    [first] = translator.translate("die Katze schläft schnell und", beam_size=beam, stop="exact", retry_failures=False)
    assert first.text.startswith("ein Hund und ein Hund und ein Hund und")
    assert first.flags == ("loops", "cut off")
    [answer] = translator.translate("die Katze schläft schnell und", beam_size=beam, stop="exact")
    assert answer.text == "ein Hund und ein Hund"
    assert answer.flags == ("retried",)


def test_an_empty_output_is_tried_again(words):
    follows = {"": {"": 0.9, "ein": 0.1}, "ein": {"": 1}}
    answers = scripted(words, follows).translate(["die Katze", ""])
    assert [answer.text for answer in answers] == ["ein", ""]
    assert [answer.flags for answer in answers] == [("retried",), ()]
    assert scripted(words, follows).translate("die Katze", retry_failures=False)[0].flags == ("empty",)


def test_what_stays_bad_stays_flagged(words):
    [answer] = scripted(words, {"": {"": 1}}).translate("die Katze", suppress_tokens=words.tokens[3:-1])
    assert answer.flags == ("empty", "retried")


def test_settings_reach_the_search(words):
    translator = scripted(words, SENSIBLE)
    said = lambda **search: translator.translate("ein", **search)[0].text  # noqa: E731
    assert said() == "ein Hund"
    assert said(suppress_tokens=("▁Hund",)) == "die Katze"
    assert said(prefix="die") == "die Katze"
    assert said(prefix="ein Kind") == "ein Kind"
    assert len(translator.translate("ein", min_length=4)[0].tokens) >= 4
    assert said(sample=True, temperature=0.0) == "ein Hund"
    assert {said(sample=True, seed=seed) for seed in range(20)} >= {"ein Hund", "ein Kind", "die Katze"}
    assert said(sample=True, seed=3) == said(sample=True, seed=3)
    two = translator.translate(["ein", "die"], prefix=["die", ""])
    assert [answer.text for answer in two] == ["die Katze", "ein Hund"]


def test_scores_of_given_targets(words):
    translator = scripted(words, SENSIBLE)
    found = translator.score(["ein", "", "die"], ["ein Kind", "die Katze", ""])
    assert [answer.log_prob for answer in found[:2]] == pytest.approx([math.log(0.18), math.log(0.4)], abs=0.02)
    assert found[2].log_prob < -5
    [searched] = translator.translate("ein")
    [scored] = translator.score(["ein"], [searched.text])
    assert scored.score == pytest.approx(searched.score, abs=1e-6)
    assert scored.tokens == searched.tokens


@pytest.mark.parametrize(
    "search",
    [
        {"coverage_penalty": 0.4, "length_penalty": 0.7},
        {"repetition_penalty": 1.5},
        {"coverage_penalty": 0.4, "repetition_penalty": 1.3, "length_penalty_form": "gnmt"},
    ],
)
@pytest.mark.parametrize("arch", ["transformer-tiny", "bahdanau"])
def test_a_searched_score_is_the_score_of_its_text(words, arch, search):
    torch.manual_seed(3)
    model = (
        models.build(settings_of(arch), source_vocabulary=words.size, target_vocabulary=words.size)
        .eval()
        .requires_grad_(False)
    )
    translator = Translator(model, words, words)
    sources = ["ein Hund", "die Katze schläft schnell und ein Kind"]
    answers = translator.translate(sources, retry_failures=False, beam_size=20, nbest=20, **search)
    searched = [one for answer in answers for one in (answer, *answer.alternatives) if one.finished]
    assert searched
    scored = translator.score([one.source for one in searched], [one.text for one in searched], **search)
    plain = translator.score([one.source for one in searched], [one.text for one in searched])
    for one, again in zip(searched, scored, strict=True):
        assert again.tokens == one.tokens
        assert again.score == pytest.approx(one.score, abs=1e-4)
    assert any(abs(again.score - without.score) > 0.01 for again, without in zip(scored, plain, strict=True))


def test_a_prefix_is_never_cut(words):
    prefix = "die Katze schläft schnell und ein Kind und ein Hund"
    [answer] = scripted(words, SENSIBLE).translate("ein", prefix=prefix, max_length_ratio=1.0, max_length_extra=0)
    assert answer.text.startswith(prefix)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": "ein Pferd"}, 'the prefix "ein Pferd" contains a word that is not in the vocabulary'),
        ({"prefix": "ein", "max_source_tokens": 1}, "with a prefix, it cannot be cut into pieces; shorten it"),
        ({"tree": True, "max_source_tokens": 1}, "with a search tree, it cannot be cut into pieces; shorten it"),
        ({"suppress_tokens": ("▁Hnd",)}, 'the target vocabulary has no token "▁Hnd"; did you mean "▁Hund"'),
        ({"nbest": 9}, "nbest = 9 needs search.beam_size of at least 9"),
        ({"nbest": 0}, "nbest must be at least 1"),
        ({"tree": True, "beam_size": 1}, "only a beam search has a search tree"),
        ({"coverage_penalty": 0.2, "beam_size": 1}, "search.coverage_penalty needs a beam"),
        ({"coverage_penalty": 0.2}, "need a model with cross-attention"),
        ({"prefix": ["a", "b"]}, "2 prefixes for 1 texts"),
        ({"top_p": 0.0}, r"search.top_p must be above 0"),
    ],
)
def test_what_cannot_be_done_is_told(words, options, message):
    with pytest.raises(SettingsError, match=message):
        scripted(words, SENSIBLE).translate(["ein Hund"], **options)


def test_unknown_words_are_replaced_by_what_was_looked_at(words):
    torch.manual_seed(5)
    settings = TransformerSettings(
        width=16, heads=2, ffn_width=16, encoder_layers=1, decoder_layers=1, tie_embeddings="none"
    )
    model = (
        models.build(settings, source_vocabulary=words.size, target_vocabulary=words.size).eval().requires_grad_(False)
    )
    with torch.no_grad():
        model.output.weight[UNK] = 0.5 * model.output.weight[UNK] + 1.0  # it likes to say what it does not know
        model.norm = nn.LayerNorm(16).requires_grad_(False)
    translator = Translator(model, words, words)
    text = "Rover und Waldi rennen"
    [answer] = translator.translate([text], replace_unknown=True, suppress_tokens=words.tokens[3:-1], min_length=2)
    assert "<unk>" in answer.tokens
    assert answer.text
    assert set(answer.text.split(" ")) <= set(text.split(" "))
    weights = translator.trace(text, "⁇ " * len(answer.tokens)).attention("decoder.0.cross").mean(0)
    looked = weights[: len(answer.tokens), :-1].argmax(-1).tolist()
    assert answer.text.split(" ") == [text.split(" ")[place] for place in looked]
    letters = train_tokenizer(LINES, config.TokenizerSettings(kind="character", vocab_size=60), seed=1)
    with pytest.raises(SettingsError, match="needs a word vocabulary"):
        Translator(model, letters, letters).translate(["a"], replace_unknown=True)


# ---------------------------------------------------------------------------------------------------------------------
# Run folders


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two untrained runs with one vocabulary, and one with another."""
    folder = tmp_path_factory.mktemp("runs")
    lines = [side for phrase in read_phrases()[:200] for side in (phrase.source, phrase.target)]
    small = TransformerSettings(
        "transformer-tiny", encoder_layers=1, decoder_layers=1, width=16, heads=2, ffn_width=16, dropout=0.0, norm="pre"
    )  # fmt: skip
    for name, size, seed in (("a", 400, 1), ("b", 400, 2), ("c", 420, 3)):
        run = Run.create(folder / name)
        data = config.DataSettings(source_language="en", target_language="it")
        run.write_recipe(config.Recipe(data=data, tokenizer=config.TokenizerSettings(vocab_size=size), model=small))
        tokenizer = train_tokenizer(lines, config.TokenizerSettings(vocab_size=size), seed=1)
        run.write_tokenizers(tokenizer, tokenizer)
        run.write_sizes(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size)
        torch.manual_seed(seed)
        run.write_weights(dict(run.build_network().named_parameters()))
    (folder / "in.en").write_text("I am trendy\n\nShe reads a book.\n", encoding="utf-8")
    (folder / "in.it").write_text("Io sono alla moda\nsì\nLegge un libro.\n", encoding="utf-8")
    return folder


def output(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_an_ensemble_of_runs(runs, capsys):
    alone = regard.load(runs / "a").translate("I am trendy", retry_failures=False)[0]
    twins = regard.load(runs / "a", runs / "a").translate("I am trendy", retry_failures=False)[0]
    both = regard.load(runs / "a", runs / "b").translate("I am trendy", retry_failures=False)[0]
    assert twins.text == alone.text
    assert twins.score == pytest.approx(alone.score, abs=1e-4)
    assert both.log_probs != pytest.approx(alone.log_probs, abs=1e-2)
    lines = output(
        capsys,
        "translate",
        runs / "a",
        runs / "in.en",
        "--ensemble",
        runs / "b",
        "--json",
        "--set",
        "search.retry_failures=false",
    )
    assert json.loads(lines[0])["text"] == both.text
    with pytest.raises(RunError, match="its vocabulary differs from that of"):
        regard.load(runs / "a", runs / "c")


def test_the_texts_do_not_depend_on_the_batch_size(runs):
    texts = [phrase.source for phrase in read_phrases()[:12]]
    translator = regard.load(runs / "a")
    short = {"max_length_ratio": 0.5, "max_length_extra": 3, "retry_failures": False}
    for options in ({}, {"beam_size": 1}, {"sample": True, "temperature": 0.5}):
        found = {
            size: [answer.text for answer in translator.translate(texts, batch_tokens=size, **short, **options)]
            for size in (1, 60, 2000)
        }
        assert found[1] == found[60] == found[2000]


def test_the_score_command(runs, capsys):
    arguments = ("score", runs / "a", "--source", runs / "in.en", "--target", runs / "in.it")
    head, *rows = output(capsys, *arguments)
    assert head.split("\t") == ["log-probability", "per token", "score", "target"]
    answers = [json.loads(line) for line in output(capsys, *arguments, "--json")]
    for row, answer in zip(rows, answers, strict=True):
        total, each, score, text = row.split("\t")
        assert float(total) == pytest.approx(answer["log_prob"], abs=1e-4)
        assert float(each) == pytest.approx(answer["log_prob"] / len(answer["log_probs"]), abs=1e-4)
        assert float(score) == pytest.approx(answer["score"], abs=1e-4)
        assert text == answer["text"]
    assert [answer["text"] for answer in answers] == ["Io sono alla moda", "sì", "Legge un libro."]


def test_scores_and_flags_are_printed(runs, capsys):
    lines = output(capsys, "translate", runs / "a", runs / "in.en", "--scores", "--nbest", "2", "--beam", "3")
    assert len(lines) == 2 + 1 + 2
    number, score, flags, _ = lines[0].split("\t")
    assert number == "1"
    assert float(score) < 0
    assert flags
    assert lines[2] == "2\t0.0000\t-\t"
    [first, *_] = output(capsys, "translate", runs / "a", runs / "in.en", "--json", "--search-tree", "--prefix", "Io")
    assert json.loads(first)["tree"]["nodes"]
    assert json.loads(first)["text"].startswith("Io")
    counted = json.loads("\n".join(output(capsys, "evaluate", runs / "a", "--source", runs / "in.en",
                                          "--target", runs / "in.it", "--json", "--beam", "2")))  # fmt: skip
    assert all(count >= 1 for count in counted["flags"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nbest", "7"], "--nbest 7 needs --beam 7 or more, not 5"),
        (["--search-tree"], "--search-tree is printed as JSON: add --json"),
        (["--set", "train.seed=2"], "a trained run takes only search settings"),
        (["--set", "search.stop=never"], 'search.stop cannot be "never"'),
        (["--set", "search.bem=2"], 'did you mean "search.beam_size"?'),
        (["--top-p", "3"], "search.top_p must be above 0 and at most 1"),
        (["--ensemble", "nowhere"], "there is no such run folder"),
    ],
)
def test_bad_options_are_told_in_one_line(runs, capsys, arguments, message):
    assert main(["translate", str(runs / "a"), str(runs / "in.en"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("more", [[], ["--format", "html"]])
def test_standard_input_that_cannot_be_read_is_told_in_one_line(runs, more):
    command = f"exec {sys.executable} -m regard translate {runs / 'a'} {' '.join(more)}"
    for stdin, message in (("<&-", "is closed; name a file, or pipe text in"), ("0>/dev/null", "cannot be read (")):
        done = subprocess.run(["sh", "-c", f"{command} {stdin}"], capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr.startswith(f"regard: standard input: {message}")
        assert len(done.stderr.splitlines()) == 1


def test_options_are_checked_together_with_the_settings_of_the_run(runs, tmp_path, capsys):
    shutil.copytree(runs / "a", tmp_path / "six")
    run = Run.open(tmp_path / "six")
    run.write_recipe(replace(run.recipe, search=config.SearchSettings(beam_size=6)))
    output(capsys, "translate", run.folder, runs / "in.en", "--set", "search.beam_groups=3")
    output(capsys, "score", run.folder, "--source", runs / "in.en", "--target", runs / "in.it", "--set",
           "search.beam_groups=3")  # fmt: skip
    assert main(["translate", str(run.folder), str(runs / "in.en"), "--set", "search.beam_groups=5"]) == 2
    assert "options: search.beam_size 6 is not a multiple of search.beam_groups 5" in capsys.readouterr().err


def spoilt(runs, folder, content):
    """Run a, with other weights; none, if there is no content."""
    shutil.copytree(runs / "a", folder)
    (folder / "weights.safetensors").unlink()
    if content is not None:
        (folder / "weights.safetensors").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("nowhere", "there is no such run folder"),
        ("c", "its vocabulary differs from that of"),
        ("cut", "weights.safetensors: damaged ("),
        ("begun", "has no weights.safetensors yet"),
    ],
)
def test_what_is_wrong_with_a_run_is_told_once_and_not_by_every_worker(runs, tmp_path, capfd, other, message):
    spoilt(runs, tmp_path / "cut", (runs / "a" / "weights.safetensors").read_bytes()[:-9])
    spoilt(runs, tmp_path / "begun", None)
    other = runs / other if other == "c" else tmp_path / other
    assert main(["translate", str(runs / "a"), str(runs / "in.en"), "--workers", "2", "--ensemble", str(other)]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("engine", ["auto", "torch", "ctranslate2"])
def test_a_run_that_has_just_begun_is_told(runs, tmp_path, capsys, engine):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    run = spoilt(runs, tmp_path / "begun", None)
    arguments = ["translate", str(run), str(runs / "in.en"), "--out", str(tmp_path / "out.it"), "--engine", engine]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error == f'regard: {run}: has no weights.safetensors yet; "regard resume {run}" continues its training\n'
    assert not list(tmp_path.glob("out.it*"))


def test_a_worker_that_cannot_open_the_run_says_why(runs, tmp_path, capfd):
    content = safetensors.torch.save({"unknown": torch.ones(2)})
    workers = Workers([spoilt(runs, tmp_path / "other", content)], 1)
    try:
        with pytest.raises(RunError, match="damaged or changed"):
            workers.translate(["I am trendy"])
    finally:
        workers.close()
    assert capfd.readouterr().err == ""


def test_a_worker_that_is_ended_is_told(runs):
    workers = Workers([runs / "a"], 1, "; --workers 1 needs less memory")
    try:
        workers._pool.submit(os._exit, 1)  # as when the system ends it
        with pytest.raises(RunError, match=r"one of 1 worker processes was killed.*; --workers 1 needs less memory"):
            workers.translate(["I am trendy"])
    finally:
        workers.close()


def test_long_lines_are_refused_by_their_number(runs, tmp_path, capsys):
    (tmp_path / "a.en").write_text("I am here.\n" * 2 + "I am here. " * 30 + "\n", encoding="utf-8")
    options = ["--set", "search.long_lines=refuse", "--set", "search.max_source_tokens=40", "--engine", "torch"]
    assert main(["translate", str(runs / "a"), str(tmp_path / "a.en"), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"regard: {tmp_path / 'a.en'}:3 has ")
    assert error.count("\n") == 1


def test_of_an_empty_file_an_empty_one_is_made(runs, tmp_path):
    (tmp_path / "a.en").touch()
    assert main(["translate", str(runs / "a"), str(tmp_path / "a.en"), "--out", str(tmp_path / "a.it")]) == 0
    assert (tmp_path / "a.it").read_bytes() == b""
    (tmp_path / "b.en.gz").write_bytes(gzip.compress(b""))
    assert main(["translate", str(runs / "a"), str(tmp_path / "b.en.gz")]) == 0
