"""Alignment on maps made by hand, and on numbers worked out on paper."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.analysis.alignment import (
    RULES,
    AlignmentHeads,
    Head,
    align,
    best_heads,
    choose_heads,
    corpus_scores,
    read_choice,
    read_gold,
    score_choice,
    word_map,
)
from regard.analysis.trace import TraceSide
from regard.errors import RegardError
from regard.tasks.translate.translation import Alignment

# Rows: target words; columns: source words. Source 2 has its largest weight at target 1, which prefers source 1.
MAP = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.5, 0.4], [0.7, 0.2, 0.1]])


@pytest.mark.parametrize(
    ("rule", "links"),
    [
        ("target", ((0, 0), (0, 2), (1, 1))),
        ("source", ((0, 0), (1, 1), (2, 1))),
        ("both", ((0, 0), (1, 1))),
        ("either", ((0, 0), (0, 2), (1, 1), (2, 1))),
        ("cover", ((0, 0), (0, 2), (1, 1), (2, 1))),  # target 2 would be left alone
        ("grow", ((0, 0), (0, 2), (1, 1), (2, 1))),  # both others are beside (1, 1) and have a new word
    ],
)
def test_rules(rule, links):
    assert align(MAP, rule) == links


def test_cover_adds_nothing_to_target_words_that_have_links():
    # Target 0 prefers source 0, but has source 1's link already.
    weights = torch.tensor([[0.5, 0.4, 0.1], [0.6, 0.3, 0.1], [0.0, 0.0, 1.0]])
    assert align(weights, "source") == ((0, 1), (1, 0), (2, 2))
    assert align(weights, "cover") == ((0, 1), (1, 0), (2, 2))
    assert align(weights, "either") == ((0, 0), (0, 1), (1, 0), (2, 2))


def test_grow_leaves_out_what_is_far_and_brings_no_two_new_words():
    weights = torch.tensor([[0.9, 0.0, 0.0, 0.1], [0.0, 0.9, 0.0, 0.1], [0.0, 0.0, 0.9, 0.1], [0.6, 0.0, 0.0, 0.4]])
    assert align(weights, "either") == ((0, 0), (0, 3), (1, 1), (2, 2), (3, 3))
    assert align(weights, "grow") == ((0, 0), (1, 1), (2, 2), (3, 3))  # (0, 3) is beside nothing and source 0 is old


def test_grow_adds_links_of_two_new_words_last():
    one = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1.0]])  # 0-0 3-1
    back = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 0]])  # 0-0
    assert align(one, "grow", backward_ST=back) == ((0, 0), (3, 1))
    assert align(one, "both", backward_ST=back) == ((0, 0),)


def test_empty_rows_do_not_count():
    assert align(torch.zeros(2, 2), "either") == ()
    assert align(torch.zeros(0, 3)) == align(torch.zeros(3, 0)) == ()


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_rules_contain_one_another(source, target, seed):
    weights = torch.rand(target, source, generator=torch.Generator().manual_seed(seed)) + 0.01
    found = {rule: set(align(weights, rule)) for rule in RULES}
    assert found["both"] <= found["grow"] <= found["either"]
    assert found["source"] <= found["cover"] <= found["either"]
    assert {t for _, t in found["cover"]} == set(range(target))
    assert {s for s, _ in found["cover"]} == set(range(source))


def side(*words):
    return TraceSide((*words, "</s>"), (*words, "</s>"), tuple(range(len(words) + 1)))


def test_the_end_is_left_out_and_a_shift_takes_the_next_step():
    weights = torch.tensor([[[0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.9, 0.05, 0.05]]])
    assert word_map(weights, side("a", "b"), side("x", "y")).tolist() == weights[:, :2, :2].tolist()
    assert word_map(weights, side("a", "b"), side("x", "y"), shift=True).tolist() == weights[:, 1:, :2].tolist()


def test_marks_look_at_marks_where_there_are_any():
    weights = torch.full((1, 3, 3), 0.5)
    assert word_map(weights, side("a", "."), side("x", "!"))[0].tolist() == [[0.5, 0], [0, 0.5]]
    assert word_map(weights, side("a", "b"), side("x", "!"))[0].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert word_map(weights, side("a", "?"), side("x", "y"))[0].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_pharaoh_there_and_back():
    assert Alignment((), (), ((0, 0), (1, 12))).pharaoh == "0-0 1-12"
    assert read_gold(" 1-12  0-0\n") == (((0, 0), (1, 12)),) * 2
    assert read_gold("") == ((), ())
    assert read_gold("0-0 1p2 2?1") == (((0, 0),), ((0, 0), (1, 2), (2, 1)))


@pytest.mark.parametrize("text", ["0-", "a-b", "1x2", "0-0,1-1", "-1-0", "1--1"])
def test_what_is_no_link_is_told(text):
    with pytest.raises(RegardError, match="is not a link"):
        read_gold(text)


def test_scores_by_hand():
    # Och and Ney 2003: AER = 1 - (|A & S| + |A & P|) / (|A| + |S|).
    # A has 4 links, 2 of the 3 sure, 3 of the 4 possible.
    found, sure, possible = ((0, 0), (1, 1), (2, 2), (3, 3)), ((0, 0), (1, 1), (4, 4)), ((2, 2),)
    scores = corpus_scores([found], [sure], [possible])
    assert scores.aer == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert (scores.precision, scores.recall) == (3 / 4, pytest.approx(2 / 3))
    assert corpus_scores([sure], [sure]) == (0, 1, 1)
    assert corpus_scores([()], [()]) == (0, 1, 1)
    assert corpus_scores([()], [sure]).aer == 1
    both = corpus_scores([found, sure], [sure, sure])
    assert both.aer == pytest.approx(1 - 2 * (2 + 3) / (4 + 3 + 3 + 3))  # counted together, not averaged


def planted(shift):
    """Two attentions of two heads; head 1 of the second aligns, at the given shift."""
    gold = (((0, 0), (1, 1), (2, 2)), ((0, 1), (1, 0)))
    maps = {}
    for now in (False, True):
        pairs = []
        for links in gold:
            size = len(links)
            even, right = torch.full((2, size, size), 1 / size), torch.zeros(size, size)
            even[:, :, 0] += 0.1
            for s, t in links:
                right[t, s] = 1.0
            good = torch.stack([even[0], right]) if now == shift else even
            pairs.append({"decoder.0.cross": even, "decoder.1.cross": good})
        maps[now] = pairs
    return maps, gold


@pytest.mark.parametrize("shift", [False, True])
def test_the_head_that_aligns_is_found(shift):
    maps, gold = planted(shift)
    ranked = best_heads(maps, gold)
    best = ranked[0]
    assert best.scores.aer == 0
    assert (best.choice.heads, best.choice.shift) == ((Head("decoder.1.cross", 1),), shift)
    assert {entry.name for entry in ranked} == {
        "decoder.0.cross head 0", "decoder.0.cross head 1", "decoder.1.cross head 0", "decoder.1.cross head 1",
        "decoder.0.cross mean", "decoder.1.cross mean", "all heads",
    }  # fmt: skip
    assert len(ranked) == 7 * 2 * len(RULES)
    assert [entry.scores.aer for entry in ranked] == sorted(entry.scores.aer for entry in ranked)
    chosen = choose_heads(maps, gold)
    assert chosen.choice.heads == (Head("decoder.1.cross", 1),)
    assert score_choice(chosen.choice, maps[shift], gold) == chosen.scores == (0, 1, 1)


def test_heads_that_help_one_another_are_chosen_together():
    one, two = torch.tensor([[1.0, 0.0], [0.6, 0.4]]), torch.tensor([[0.4, 0.6], [0.0, 1.0]])
    bad = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    chosen = choose_heads({False: [{"decoder.cross": torch.stack([bad, one, two])}]}, [((0, 0), (1, 1))])
    assert chosen.scores.aer == 0
    assert Head("decoder.cross", 0) not in chosen.choice.heads


def test_a_choice_is_stored_and_read():
    choice = AlignmentHeads((Head("decoder.1.cross", 2),), True, "grow")
    assert read_choice(choice.as_dict(), "card") == choice
    assert read_choice(None, "card") == AlignmentHeads()
    for stored in ([], 3, {"heads": [1]}, {"heads": [], "rule": "best"}, {"heads": [], "shift": 2}):
        with pytest.raises(RegardError, match="card: "):
            read_choice(stored, "card")
    with pytest.raises(RegardError, match=r"no head 2 in decoder\.1\.cross"):
        choice.map({"decoder.1.cross": torch.rand(2, 3, 3)})
