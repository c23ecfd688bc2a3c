"""Retrieval inside: what is held out and paired, how texts of an answer join, what is chosen, and exact order."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import models
from regard.config import Corpus, DataSettings, Recipe, TokenizerSettings
from regard.data.pairs import Pair
from regard.errors import CorpusError, RunError, SettingsError
from regard.models.transformer_settings import TextEncoderSettings
from regard.tasks.retrieve.data import KnowledgeEntry, PreparedKnowledge, TrainingKnowledge
from regard.tasks.retrieve.index import POWER, KnowledgeIndex, MatchScores
from regard.tasks.retrieve.retriever import Retriever
from regard.tasks.retrieve.scores import find_weight, rank, right_entries, score, tune
from regard.tasks.retrieve.settings import RetrieveSettings
from regard.tasks.retrieve.training import RetrieveTrainUnit
from regard.text.tokenizer import train_tokenizer
from tests.small_faq import cafe
from tests.small_knowledge import ENTRIES, questions, write_questions

WORDS = RetrieveSettings(method="bm25", match_answers=False)
SHOP = [
    KnowledgeEntry(("When do you open?", "Opening hours?"), "At six."),
    KnowledgeEntry(("Can I pay by card?",), "Yes, by card."),
    KnowledgeEntry(("Do you sell cake?", "Is there cake?", "Cake?"), "On Fridays."),
]


# ---------------------------------------------------------------------------------------------------------------------
# Searching


def test_ties_go_against_us():
    """Scores that say nothing must not count as found."""
    assert rank(np.zeros((1, 4), np.float32), [2]).tolist() == [4]
    scores = np.array([[0.1, 0.9, 0.5], [0.7, 0.2, 0.2]], np.float32)
    assert rank(scores, [2, 0]).tolist() == [2, 1]
    found = score(scores, [2, 0], 0.8)
    assert (found.recall_1, found.recall_5, found.mrr, found.answered) == (0.5, 1.0, 0.75, 0.5)


def test_texts_of_an_answer_speak_together():
    index = KnowledgeIndex(SHOP, WORDS)
    assert index.owner_T.tolist() == [0, 0, 1, 2, 2, 2]
    by_text = np.array([[0.5, 0.0, 0.5, 0.4, 0.4, 0.4]], np.float32)
    [[first, second, third]] = index.by_entry(["?"], MatchScores(None, by_text)).dense
    assert first == pytest.approx((0.5**POWER / 2) ** (1 / POWER))
    assert second == pytest.approx(0.5)
    assert third == pytest.approx(0.4)
    many = KnowledgeIndex(
        [KnowledgeEntry(tuple(f"question {place}" for place in range(9)), "x"), KnowledgeEntry(("y",), "z")], WORDS
    )
    scores = np.array([[0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1, 0.1, 0.95]], np.float32)
    [[several, one]] = many.by_entry(["?"], MatchScores(None, scores)).dense
    assert (several, one) == (pytest.approx(0.9), pytest.approx(0.95))  # how many an answer has is no merit


def test_a_question_known_word_for_word_finds_its_answer():
    entries = [
        KnowledgeEntry(tuple(f"Do you sell cake number {place}?" for place in range(9)), "Yes."),
        KnowledgeEntry(("Cake?",), "No."),
    ]
    [[best, _], *_] = Retriever(KnowledgeIndex(entries, WORDS)).search(["cake?"], k=2)
    assert (best.answer, best.score) == ("No.", 1.0)


def test_an_entry_without_texts_is_never_near():
    index = KnowledgeIndex([KnowledgeEntry((), "At six."), *SHOP[1:]], WORDS)
    assert index.by_entry(["At six"], index.compare(["At six"])).bm25[0, 0] == 0


@given(st.floats(0, 1))
def test_weights_add_up(weight):
    bm25, dense = np.float32([[0.2, 0.8], [0.1, 0.0]]), np.float32([[0.6, 0.1], [0.2, 0.4]])
    compared = MatchScores(bm25, dense)
    rest = 1 - weight
    first, second = weight * 0.6 + rest * 0.8, weight * 0.4 + rest * 0.1  # of the best of each method
    expected = [
        [(weight + rest / 4) * first, (weight / 6 + rest) * first],
        [(weight / 2 + rest) * second, weight * second],
    ]
    np.testing.assert_allclose(compared.total(weight), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(compared.by("bm25").total(weight), bm25)
    np.testing.assert_array_equal(compared.by("dense").total(weight), dense)
    assert not MatchScores(np.zeros_like(bm25), np.zeros_like(dense)).total(weight).any()


def test_search_and_reply():
    retriever = Retriever(KnowledgeIndex(SHOP, replace(WORDS, threshold=0.1)))
    [[best, second], _] = retriever.search(["paying with a card", "cake"], k=2)
    assert (best.answer, best.question) == ("Yes, by card.", "Can I pay by card?")
    assert best.score == best.bm25 >= second.score
    assert best.dense is None
    assert retriever.reply("pay by card?").text == "Yes, by card."
    unknown = retriever.reply("Who won the football match yesterday evening?")
    assert not unknown.answered
    assert unknown.text == "I do not know."
    assert unknown.score < 0.1
    assert retriever.reply("").matches == ()
    assert retriever.reply([]).text == "I do not know."


def test_answers_are_compared_too_if_asked_for():
    entry = [KnowledgeEntry(("Payment",), "We take every card."), KnowledgeEntry(("Hours",), "From six to noon.")]
    assert KnowledgeIndex(entry, replace(WORDS, match_answers=True)).texts == [
        "Payment",
        entry[0].answer,
        "Hours",
        entry[1].answer,
    ]
    [[best]] = Retriever(KnowledgeIndex(entry, replace(WORDS, match_answers=True))).search("do you take my card", k=1)
    assert best.question == "Payment"


def test_a_short_turn_is_understood_with_the_one_before():
    entries = [
        KnowledgeEntry(("Are you open on Sundays?",), "No."),
        KnowledgeEntry(("Is there bread on Sundays?",), "Yes."),
    ]
    retriever = Retriever(KnowledgeIndex(entries, replace(WORDS, threshold=0.3)))
    for before, answer in (("Are you open?", "No."), ("Is there any bread?", "Yes.")):
        reply = retriever.reply([before, "I do not know.", "and on Sundays?"])
        assert reply.text == answer
        assert reply.source == f"{before} and on Sundays?"
    changed = retriever.reply(["Are you open?", "No.", "Tell me who won the football match of yesterday evening"])
    assert not changed.answered
    assert "open" not in changed.source


def test_a_follow_up_in_a_small_faq():
    """The example of docs/retrieval.md; once an entry about other days came before the one that was talked of."""
    hours = "From 8 to 18 o'clock, on Sundays from 10."
    faq = [entry for entry in cafe() if "Sunday" not in entry.answer and "opening" not in entry.questions[0]]
    retriever = Retriever(
        KnowledgeIndex([KnowledgeEntry(("When do you open?",), hours), *faq], RetrieveSettings(method="bm25"))
    )
    assert retriever.reply(["When do you open?", hours, "And on Sundays?"]).text == hours
    assert retriever.reply(["When do you open?", hours, "And oat milk?"]).text.startswith("Oat and soy")
    assert not retriever.reply(["When do you open?", hours, "Who are the Beatles?"]).answered


def test_what_has_nothing_in_common_is_no_match():
    retriever = Retriever(KnowledgeIndex(SHOP, WORDS))
    assert retriever.search(["zzzz"], k=3) == [[]]
    assert [match.answer for match in retriever.search(["cake"], k=3)[0]] == ["On Fridays."]


def test_what_met_is_explained():
    retriever = Retriever(KnowledgeIndex(SHOP, replace(WORDS, threshold=0.01)))
    [part] = retriever.explain(retriever.reply("Could I please pay by card?"))
    heavy = {word for word, weight in part.words if weight > 0.05}
    assert {"pay", "by", "card"} <= heavy
    assert "please" not in heavy
    assert sum(weight for _, weight in part.words) == pytest.approx(1)
    assert retriever.explain(retriever.reply("zebra")) == []
    assert retriever.explain(retriever.reply("")) == []


def test_scores_need_known_answers():
    retriever = Retriever(KnowledgeIndex(SHOP, WORDS))
    assert retriever.score([Pair("card", "Yes, by card."), Pair("cake", "on  fridays.")]).recall_1 == 1
    with pytest.raises(RunError, match='"Never" is not in the knowledge base'):
        retriever.score([Pair("card", "Never")])


# ---------------------------------------------------------------------------------------------------------------------
# Choices


def test_the_weight_leaves_the_better_method_only_where_that_helps():
    right = list(range(40))
    good, bad = np.eye(40, dtype=np.float32), np.roll(np.eye(40, dtype=np.float32), 1, 1)
    assert find_weight(MatchScores(bad, good), right) == 1.0
    assert find_weight(MatchScores(good, bad), right) == 0.0
    half, other = good.copy(), good.copy()
    half[20:], other[:15] = bad[20:] + 0.9 * good[20:], bad[:15] + 0.9 * good[:15]  # each knows what the other does not
    weight = find_weight(MatchScores(half, other), right)
    assert 0 < weight < 1
    assert rank(MatchScores(half, other).total(weight), right).max() == 1


def test_the_threshold_lets_through_what_was_asked_for():
    entries = [KnowledgeEntry((f"number{place} topic{place}",), f"answer {place}") for place in range(50)]
    asked = [" ".join([f"topic{place}", *(f"other{n}" for n in range(place))]) for place in range(50)]
    pairs = [Pair(question, f"answer {place}") for place, question in enumerate(asked)]
    index = KnowledgeIndex(entries, replace(WORDS, target_answer_rate=0.9))
    found = tune(index, pairs)
    assert found.keys() == {"bm25"}
    retriever = Retriever(index, replace(WORDS, **found["bm25"]))
    assert 0.9 <= retriever.score(pairs).answered <= 0.96
    assert tune(index, pairs[:10]) == {}


def test_held_out_questions_are_forgotten_before_they_are_asked():
    index = KnowledgeIndex(SHOP, WORDS)
    assert "Cake?" not in index.without(["cake?"]).texts
    assert index.without(["unknown"]) is index
    assert right_entries(SHOP, [Pair("x", "AT SIX.")]) == [0]
    with pytest.raises(RunError, match='the answer "nowhere" is not in the knowledge base'):
        right_entries(SHOP, [Pair("x", "AT SIX."), Pair("x", "nowhere")])


# ---------------------------------------------------------------------------------------------------------------------
# Learning


def knowledge(tmp_path, rows=None, **data):
    path = write_questions(tmp_path / "kb.tsv", rows)
    return TrainingKnowledge(DataSettings(task="retrieve", train=(Corpus(str(path)),), **data), seed=1)


def test_questions_are_held_out_and_answers_stay(tmp_path):
    found = knowledge(tmp_path)
    total = len(questions())
    assert len(found.entries) == len(found.train) == len(ENTRIES)
    assert len(found) == total - len(found.held_out["valid"]) - len(found.held_out["test"])
    assert len(found.held_out["valid"]) == len(found.held_out["test"]) == total // 10
    learnt = {text for entry in found.train for text in entry.questions}
    for part in found.held_out.values():
        assert learnt.isdisjoint(pair.source for pair in part)
    assert all(entry.questions for entry in found.train)
    assert "questions to train on" in found.describe()


def test_where_answers_have_one_question_the_answer_stays(tmp_path):
    rows = [(f"question {place}", f"the answer is {place}") for place in range(40)]
    found = knowledge(tmp_path, rows)
    assert len(found.train) == 40
    assert sum(not entry.questions for entry in found.train) == 8


def test_files_of_held_out_questions(tmp_path):
    rows = questions()
    test = write_questions(tmp_path / "test.tsv", rows[:5])
    found = knowledge(tmp_path, rows, test=(Corpus(str(test)),))
    assert sorted(found.held_out["test"]) == sorted(Pair(*row) for row in rows[:5])
    learnt = {text for entry in found.train for text in entry.questions}
    assert learnt.isdisjoint(question for question, _ in rows[:5])
    strange = write_questions(tmp_path / "strange.tsv", [("x", "an answer that nobody gave")])
    with pytest.raises(CorpusError, match="is not in the training data"):
        knowledge(tmp_path, rows, test=(Corpus(str(strange)),))


def test_too_little_is_told(tmp_path):
    with pytest.raises(CorpusError, match='"regard index --create RUN'):
        knowledge(tmp_path, questions()[:8])
    with pytest.raises(SettingsError, match="no validation data"):
        knowledge(tmp_path, valid_size=0)


@pytest.fixture(scope="module")
def task():
    entries: dict[str, list[str]] = {}
    for question, answer in questions(words_each=1):
        entries.setdefault(answer, []).append(question)
    train = [KnowledgeEntry(tuple(found[2:]), answer) for answer, found in entries.items()]
    valid = [Pair(question, answer) for answer, found in entries.items() for question in found[:2]]
    recipe = Recipe(
        tokenizer=TokenizerSettings(vocab_size=300, lowercase=True),
        model=TextEncoderSettings(encoder_layers=0, positional_encoding="none", pool="mean", width=32, vector_size=32),
        task=RetrieveSettings(match_answers=False),
        train=replace(Recipe().train, batch_tokens=512),
    )
    tokenizer = train_tokenizer([text for entry in train for text in entry.questions], recipe.tokenizer, 1)
    torch.manual_seed(0)
    model = models.build(recipe.model, vocabulary=tokenizer.size)
    return RetrieveTrainUnit(recipe, PreparedKnowledge(tokenizer, train, valid, []), model), model


def test_a_batch_pairs_texts_of_one_answer(task):
    made, _ = task
    groups = {}
    for place, ids in enumerate(made.ids):
        groups.setdefault(tuple(ids), set()).add(made.group_T[place])
    for position in range(6):
        batch = made._join(made.stream.at(position), np.random.default_rng(position))
        flat = [
            tuple(ids[mask].tolist()[:-1])
            for texts in batch.texts
            for ids, mask in zip(texts.ids_BS, texts.mask_BS, strict=True)
        ]
        rows = [flat[place] for place in batch.place_R.tolist()]
        half = len(batch.group_B)
        assert len(rows) == 2 * half
        for row, group in enumerate(batch.group_B.tolist()):
            assert group in groups[rows[row]]
            assert group in groups[rows[row + half]]
            assert rows[row] != rows[row + half]


def test_the_order_follows_from_the_position_alone(task):
    made, _ = task
    first = [made.batch(position) for position in range(5)]
    made.batch(40)
    again = [made.batch(position) for position in range(5)]
    for one, other in zip(first, again, strict=True):
        for some, same in zip(one.texts, other.texts, strict=True):
            assert torch.equal(some.ids_BS, same.ids_BS)
        assert torch.equal(one.group_B, other.group_B)
    assert len(made.largest().group_B) > 1


def test_processes_that_share_a_batch_compute_it_once(task):
    made, model = task
    batch = made.batch(0)
    model.eval()
    whole, rows = made.rows(batch, 0, 2)
    assert whole is batch
    assert rows is None
    part, others = made.rows(batch, 1, 2)
    assert others.weight == 0
    assert float(made.loss(model, part).plain) == pytest.approx(0, abs=1e-5)


def test_it_learns_and_is_validated_by_rank(task):
    made, model = task
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    before = made.validate(model.eval())
    for position in range(80):
        loss = made.loss(model.train(), made.batch(position))
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        optimizer.step()
    after = made.validate(model.eval())
    assert after.scores["recall_1"] > max(before.scores["recall_1"], 0.8)
    assert after.score == after.scores["mrr"]
    assert made.flops(made.batch(0)) > 0
