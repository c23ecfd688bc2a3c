"""The masked language model as a task: hiding tokens, training, filling blanks, scores, and runs that start from it."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.cli import main
from regard.data.batches import make_sources
from regard.run import Run
from regard.tasks.masked_language_model import api
from regard.tasks.masked_language_model.masking import MASK, Masking, choose
from regard.tasks.masked_language_model.scores import hide_all, hide_some
from regard.tasks.masked_language_model.settings import MaskedLanguageModelSettings
from regard.tasks.masked_language_model.training import TRAINING, MaskedTrainUnit, make_plan
from regard.tasks.start_from import adapt
from regard.text.tokenizer import EOS, UNK
from regard.training.device import Machine
from regard.training.plan import PlannedSetting
from tests import reviews, small_knowledge, tagged
from tests.small_texts import train_arguments, write_texts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    texts = write_texts(folder / "train.txt", 800)
    settings = ("train.max_steps=60", "train.validate_every=30", "train.batch_tokens=1024")
    assert main(train_arguments(texts, folder / "run", *settings, arch="masked-lm")) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def filler(run):
    return regard.load(run)


# Hiding


def masked(filler, seed=0, rows=64, **settings):
    """A batch of the same sentence many times, with hidden tokens."""
    ids = filler.tokenizer.encode("The old man and his wife see the small dog today.")
    masking = Masking(MaskedLanguageModelSettings(**settings), filler.tokenizer)
    source = make_sources([[*ids, UNK], ids[:3]] * (rows // 2), filler.tokenizer.pad)
    return masking.apply(source, np.arange(rows), np.random.default_rng(seed)), source


def test_a_share_of_the_tokens_is_chosen_and_most_of_them_are_hidden(filler):
    batch, source = masked(filler, rows=400, hidden_share=0.25)
    known = source.mask_BS & (source.ids_BS != EOS) & (source.ids_BS != UNK)
    assert not (batch.chosen_BS & ~known).any()
    wanted = torch.clamp((0.25 * known.sum(1)).round(), min=1).long()
    assert torch.equal(batch.chosen_BS.sum(1), wanted)
    assert batch.target_tokens == len(batch.target_N) == int(wanted.sum())
    assert torch.equal(batch.source.ids_BS[~batch.chosen_BS], source.ids_BS[~batch.chosen_BS])
    read, original = batch.source.ids_BS[batch.chosen_BS], batch.target_N
    assert (read == MASK).double().mean().item() == pytest.approx(0.8, abs=0.05)
    assert (read == original).double().mean().item() == pytest.approx(0.1, abs=0.04)


def test_without_random_and_kept_tokens_all_are_hidden(filler):
    batch, _ = masked(filler, kept_share=0.0, random_share=0.0)
    assert (batch.source.ids_BS[batch.chosen_BS] == MASK).all()


def test_whole_words_are_hidden_together(filler):
    batch, source = masked(filler, whole_words=True, hidden_share=0.3)
    starts = Masking(MaskedLanguageModelSettings(), filler.tokenizer).starts_V[source.ids_BS.numpy()]
    inside = ~starts & source.mask_BS.numpy() & (source.ids_BS.numpy() != EOS) & (source.ids_BS.numpy() != UNK)
    assert inside.any()  # there are words of several subwords
    chosen = batch.chosen_BS.numpy()
    assert (chosen[:, 1:] == chosen[:, :-1])[inside[:, 1:]].all()


def test_equal_keys_are_chosen_together_and_nothing_that_is_not_real():
    keys = np.array([[0.5, 0.1, 0.1, 0.9], [0.2, 0.3, 0.4, 0.1]], np.float32)
    real = np.array([[True, True, True, True], [True, True, False, False]])
    assert choose(keys, real, 0.25).tolist() == [[False, True, True, False], [True, False, False, False]]
    assert not choose(keys, np.zeros_like(real), 0.25).any()


def test_hidden_tokens_depend_on_seed_and_position_only(run):
    recipe = Run.open(run).recipe
    data, model = TRAINING.open_data(Run.open(run), print), Run.open(run).load_network()
    one, other = (MaskedTrainUnit(recipe, data, model) for _ in range(2))
    for position in (0, 7):
        other.batch(3)
        mine, theirs = one.batch(position), other.batch(position)
        assert torch.equal(mine.source.ids_BS, theirs.source.ids_BS)
        assert torch.equal(mine.chosen_BS, theirs.chosen_BS)
    epoch = one.stream.mark(10**4)
    row = {int(place): hidden for place, hidden in zip(one.batch(0).index_B, one.batch(0).chosen_BS, strict=True)}
    for position in range(epoch.position, epoch.position + 200):
        batch = one.batch(position)
        again = [
            (hidden, row[int(place)])
            for place, hidden in zip(batch.index_B, batch.chosen_BS, strict=True)
            if int(place) in row
        ]
        if any(new.tolist() != old.tolist() for new, old in again):
            return
    pytest.fail("the same tokens are hidden in every epoch")


def test_rows_of_a_batch_have_the_loss_of_the_batch(run):
    recipe, model = Run.open(run).recipe, Run.open(run).load_network()
    unit = MaskedTrainUnit(recipe, TRAINING.open_data(Run.open(run), print), model.eval())
    batch = unit.batch(0)
    parts = [unit.rows(batch, first, 2)[0] for first in range(2)]
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    total = sum(float(unit.loss(model, part).plain) for part in parts)
    assert total == pytest.approx(float(unit.loss(model, batch).plain), rel=1e-5)


# Scores


def test_every_token_is_hidden_once():
    ids = [5, 6, UNK, 7, 8, 9, 10]
    for share, copies in ((0.5, 2), (0.15, 6), (0.0, 6)):
        found = hide_all(ids, share)
        assert len(found) == copies
        assert sorted(place for one in found for place in one.hidden) == [0, 1, 3, 4, 5, 6]
    assert hide_all([UNK], 0.5) == hide_some([UNK], 0.5) == []
    assert hide_some(ids, 0.5)[0] in hide_all(ids, 0.5)


@torch.no_grad()
def test_scores_are_those_of_the_model(filler):
    """One token at a time, by a loop that uses no code of the task but the model."""
    text, total = "The old man sees the dog.", 0.0
    ids = filler.tokenizer.encode(text)
    for place, id in enumerate(ids):
        source = make_sources([[*ids[:place], UNK, *ids[place + 1 :]]], filler.tokenizer.pad)
        hidden = torch.zeros_like(source.mask_BS)
        hidden[0, place] = True
        total -= filler.model(source, hidden).log_softmax(-1)[0, id].item()
    [one, _] = filler.score([text, "Who is it?"], one_by_one=True)
    assert (one.negative_log_likelihood, one.tokens) == (pytest.approx(total, rel=1e-5), len(ids))
    [alone], together = filler.score([text]), filler.score(["Who is it?", text, ""])
    assert alone.negative_log_likelihood == pytest.approx(together[1].negative_log_likelihood, rel=1e-5)
    assert together[2].tokens == 0
    [quick] = filler.score([text], quick=True)
    assert 0 < quick.tokens < alone.tokens


def test_training_learns_and_its_scores_are_in_the_card(run):
    scores = Run.open(run).card["scores"]
    assert scores["test"]["perplexity"] == pytest.approx(math.exp(scores["test"]["loss"]))
    assert scores["test"]["loss"] < 0.85 * math.log(300)
    assert scores["test"]["accuracy"] > 0.1
    assert "hidden" in (run / "report.html").read_text(encoding="utf-8")


# Blanks


@pytest.mark.parametrize(
    ("given", "blanks"),
    [
        ("The old [MASK] sees the dog.", 1),
        ("[MASK] old man sees the [MASK].", 2),
        ("The dog is [MASK][MASK]", 2),
        ("[MASK]", 1),
    ],
)
def test_blanks_are_one_token_each_and_the_rest_stays(filler, given, blanks):
    [found] = filler.fill(given, best=3)
    assert len(found.blanks) == blanks
    assert all(len(one) == 3 and sum(each.probability for each in one) <= 1 for one in found.blanks)
    ids, places = filler._encode(given)
    assert [ids[place] for place in places] == [MASK] * blanks
    kept = "".join(part.replace(" ", "") for part in given.split("[MASK]"))
    rest = [id for place, id in enumerate(ids) if place not in places]
    assert filler.tokenizer.decode(rest).replace(" ", "") == kept


def test_the_space_before_a_blank_belongs_to_it(filler):
    start, end = filler.tokenizer.encode("The"), filler.tokenizer.encode("a.")[-1]
    assert filler._encode("The [MASK].") == ([*start, MASK, end], {len(start): True})


@torch.no_grad()
def test_candidates_are_the_most_probable_tokens(filler):
    ids, [blank] = filler._encode("The old [MASK] sees the dog.")
    source = make_sources([ids], filler.tokenizer.pad)
    hidden = torch.zeros_like(source.mask_BS)
    hidden[0, blank] = True
    logits = filler.model(source, hidden)[0]
    tokens = [filler.tokenizer.token(id) for id in range(filler.tokenizer.size)]
    logits[torch.tensor([token == "▁" or not token.startswith("▁") for token in tokens])] = float("-inf")
    best = filler.tokenizer.token(int(logits.argmax())).removeprefix("▁")
    [found] = filler.fill("The old [MASK] sees the dog.")
    assert found.blanks[0][0].text == best
    assert found.blanks[0][0].probability == pytest.approx(logits.softmax(0).max().item(), rel=1e-4)
    assert found.text.replace("The old", "").split(" sees")[0].strip() == best


def test_a_blank_without_a_space_before_it_continues_a_word(filler):
    [found] = filler.fill("The old[MASK] sees the dog [MASK][MASK].")
    assert found.text.startswith("The old")
    assert found.text[len("The old")] != " "
    assert len(found.blanks) == 3


def test_a_long_text_is_read_in_windows(filler):
    long = "The old man sees the dog. " * 40 + "Who [MASK] it?"
    [found, short] = filler.fill([long, "Who [MASK] it?"])
    assert found.text.startswith("The old man sees")
    assert len(found.blanks) == len(short.blanks) == 1


# Commands


def test_fill_and_evaluate(run, tmp_path, capsys):
    assert main(["fill", str(run), "The old [MASK] sees the dog.", "--best", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("The old ")
    assert second.startswith("  1:  ")
    texts = tmp_path / "blanks.txt"
    texts.write_text("The [MASK] man.\n\nWho is [MASK]?\n")
    assert main(["fill", str(run), str(texts), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["given"] for row in rows] == ["The [MASK] man.", "Who is [MASK]?"]
    assert [len(row["blanks"][0]) for row in rows] == [5, 5]
    texts.write_text("Who is it?\nThe dog is old.\n")
    found = []
    for flags in ([], ["--one-by-one"]):
        assert main(["evaluate", str(run), "--source", str(texts), "--json", *flags]) == 0
        found.append(json.loads(capsys.readouterr().out))
        assert found[-1]["perplexity"] == pytest.approx(math.exp(found[-1]["loss"]))
    assert found[0]["tokens"] == found[1]["tokens"]
    assert main(["evaluate", str(run), "--source", str(texts)]) == 0
    assert "perplexity per token" in capsys.readouterr().out


def test_the_server_answers_as_the_filler(filler):
    requests = api.Request(q=["The [MASK] man.", "Who is [MASK]?"], best=2).split()
    assert {api.batch_key(one) for one in requests} == {2}
    found = filler.fill(["The [MASK] man.", "Who is [MASK]?"], best=2)
    assert api.answer(filler, requests) == [one.as_dict() for one in found]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fill", "RUN", "no blank here"], "has no blank; write [MASK]"),
        (["fill", "RUN", "[MASK]", "--best", "0"], "--best must be at least 1"),
        (["write", "RUN", "The"], 'use "regard fill'),
        (["score", "RUN", "--source", "EMPTY"], 'use "regard fill'),
        (["evaluate", "RUN", "--source", "EMPTY"], "there is no text to score"),
        (["translate", "RUN", "a"], 'use "regard fill'),
        (["train", "--task", "language-model", "TEXTS", "--start-from", "RUN"], "has an encoder of this kind"),
        (["train", "--task", "tag", "CHUNKS", "--start-from", "RUN"], "has an encoder of this kind"),
        (["train", "--task", "classify", "REVIEWS", "--start-from", "RUN", "--arch", "han"], "transformer-classifier"),
        (
            ["train", "--task", "masked-language-model", "TEXTS", "--set", "masked-language-model.kept_share=0.95"],
            "are more than 1 together",
        ),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, capsys, arguments, message):
    (tmp_path / "empty.txt").write_text("\n \n")
    places = {"RUN": str(run), "EMPTY": str(tmp_path / "empty.txt"), "TEXTS": str(tmp_path / "a.txt")}
    places["CHUNKS"], places["REVIEWS"] = str(tmp_path / "a.conll"), str(tmp_path / "a.tsv")
    write_texts(tmp_path / "a.txt", 60)
    tagged.write_chunks(tmp_path / "a.conll")
    reviews.write_reviews(tmp_path / "a.tsv")
    assert main([places.get(word, word) for word in arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("regard: ")
    assert message in line


# Starting from it

OTHERS = {
    "classify": lambda folder: reviews.write_reviews(folder / "reviews.tsv", 60),
    "retrieve": lambda folder: small_knowledge.write_questions(folder / "faq.tsv"),
    "masked-language-model": lambda folder: write_texts(folder / "more.txt", 100),
}


@pytest.mark.parametrize("task", OTHERS)
def test_other_tasks_start_from_the_encoder(run, tmp_path, capsys, task):
    """After one step at a rate of almost zero, the encoder still has the weights of the masked language model."""
    quick = [
        "train.max_steps=1",
        "train.learning_rate=1e-9",
        "train.muon_learning_rate=1e-9",
        "train.precision=float32",
    ]
    words = [word for setting in quick for word in ("--set", setting)]
    arguments = ["train", "--task", task, str(OTHERS[task](tmp_path)), "--out", str(tmp_path / "run"), *words]
    assert main([*arguments, "--start-from", str(run)]) == 0
    made, base = Run.open(tmp_path / "run"), Run.open(run)
    assert made.tokenizers[0].hash() == base.tokenizers[0].hash()
    assert made.card["started_from"] == "run"
    mine, theirs = (load_file(folder / "weights.safetensors") for folder in (made.folder, base.folder))
    names = [name for name in theirs if name.startswith("encoder.")]
    assert len(names) > 10
    for name in names:
        torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=1e-6)


def test_the_plan_of_a_trained_encoder_has_fewer_steps_and_little_dropout():
    usual = {"train.learning_rate": 0.003, "train.max_steps": 101, "model.dropout": 0.3}
    found = adapt([PlannedSetting(name, value, "usual") for name, value in usual.items()])
    assert {one.name: one.value for one in found} == usual | {"train.max_steps": 50, "model.dropout": 0.1}


# Plan

MACHINE = Machine(device="cpu", cores=2, memory=8e9, peak=1e11)


def test_the_plan_depends_on_the_amount_of_text_and_the_time():
    chosen = [{one.name: one.value for one in make_plan(tokens, MACHINE, {})} for tokens in (11_000, 1_100_000, 11e7)]
    assert [plan["model.width"] for plan in chosen] == [128, 256, 512]
    quick = {one.name: one.value for one in make_plan(1_100_000, MACHINE, {"train": {"max_minutes": 2}})}
    assert quick["model.width"] == 128
    kept = {one.name: one.value for one in make_plan(1_100_000, MACHINE, {"model": {"encoder_layers": 1}})}
    assert "model.encoder_layers" not in kept
