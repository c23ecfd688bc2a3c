"""Head roles: planted heads are found, by hand-made weights and in a model; random models have none."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.analysis.head_roles import (
    Evidence,
    HeadStatistics,
    RoleName,
    has_role,
    interval,
    rarest,
)
from regard.config import ModelSettings
from regard.layers.attention import SelfAttention
from regard.layers.hooks import attention_hooks, trace
from regard.models.base import Seq2Seq
from tests.toys import TOYS, VARIANTS, VOCABULARY, Sentences, build, sentences, tokens, toy

SUBJECT_TO_VERB = RoleName("syntactic", "subject → verb")
RARE = RoleName("rare", "rarest token")
LINKED = RoleName("alignment", "translated word")


def everything(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool)


def pointed(place_T: Tensor, keys: int) -> Tensor:
    """One head [1, T, S] that puts most of its weight on these places."""
    weights_TS = torch.rand(len(place_T), keys) * 0.1
    return weights_TS.scatter(1, place_T[:, None], 1.0)[None].softmax(-1)


# ---------------------------------------------------------------------------------------------------------------------
# One sentence


def test_offsets_are_counted_from_the_query() -> None:
    statistics = HeadStatistics()
    statistics.add(pointed(torch.tensor([0, 0, 1, 2]), 4), everything(4, 4).tril(), {})
    [before] = statistics.evidence()[RoleName("positional", "-1")]
    assert (before.share, before.count) == (1.0, 3)
    assert RoleName("positional", "+1") not in statistics.evidence()  # the future is not seen


def test_the_rarest_is_the_rarest_in_sight() -> None:
    frequency_S = torch.tensor([9, 4, 7, 4])
    assert rarest(everything(4, 4).tril(), frequency_S).tolist() == [
        [True, False, False, False],
        [False, True, False, False],
        [False, True, False, False],
        [False, True, False, True],  # equals share the place
    ]
    assert not rarest(torch.zeros(2, 4, dtype=torch.bool), frequency_S).any()


# ---------------------------------------------------------------------------------------------------------------------
# Planted heads


def lengths() -> list[int]:
    return torch.randint(6, 14, (60,)).tolist()


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 2])
def test_a_head_that_looks_at_one_offset_is_positional(offset: int) -> None:
    survey = HeadStatistics()
    for length in lengths():
        place_T = (torch.arange(length) + offset).clamp(0, length - 1)  # at the border it looks elsewhere
        other_T = torch.randint(length, (length,))
        weights_HTS = torch.cat([pointed(place_T, length), pointed(other_T, length)])
        survey.add(weights_HTS, everything(length, length), {})
    [role], none = survey.roles()
    assert (role.kind, role.name) == ("positional", f"{offset:+d}")
    assert role.evidence.share == 1.0
    assert role.evidence.baseline < 0.2
    assert not none


def test_nine_of_ten_is_the_limit() -> None:
    """Voita et al. 2019: positional if at least 90 % of the maxima are at one offset."""
    for share, expected in ((0.95, 1), (0.8, 0)):
        survey = HeadStatistics()
        for length in [10] * 80:
            place_T = (torch.arange(length) - 1).clamp(0)
            wrong_T = torch.rand(length) > share
            place_T[wrong_T] = (place_T[wrong_T] + 4) % length
            survey.add(pointed(place_T, length), everything(length, length), {})
        assert len(survey.roles()[0]) == expected, share


def test_the_first_token_is_no_offset() -> None:
    """In short sentences a head that always looks at the first token hits "three back" whenever that can be judged."""
    survey = HeadStatistics()
    for _ in range(60):
        survey.add(pointed(torch.zeros(4, dtype=torch.long), 4), everything(4, 4), {})
    assert survey.roles() == [()]


def test_a_planted_rare_token_head_is_found() -> None:
    survey = HeadStatistics()
    for length in lengths():
        frequency_S = torch.randint(1, 1000, (length,))
        right_TS = rarest(everything(length, length), frequency_S)
        weights_HTS = torch.cat(
            [pointed(right_TS.byte().argmax(-1), length), torch.rand(1, length, length).softmax(-1)]
        )
        survey.add(weights_HTS, everything(length, length), {RARE: right_TS})
    [role], none = survey.roles()
    assert role.kind == "rare"
    assert role.evidence.share == 1.0
    assert role.evidence.baseline == pytest.approx(0.1, abs=0.05)  # one of about ten
    assert not none


def relation_sentence(length: int) -> tuple[Tensor, Tensor, int]:
    """A subject and a verb anywhere: what would be right, and where the subject and the verb stand."""
    subject, verb = torch.randperm(length)[:2].tolist()
    right_TS = torch.zeros(length, length, dtype=torch.bool)
    right_TS[subject, verb] = True
    return right_TS, torch.tensor([subject]), verb


def test_a_planted_syntactic_head_is_found() -> None:
    survey = HeadStatistics()
    for length in lengths():
        right_TS, subject, verb = relation_sentence(length)
        place_T = torch.randint(length, (length,))
        place_T[subject] = verb
        weights_HTS = torch.cat([pointed(place_T, length), pointed(torch.randint(length, (length,)), length)])
        survey.add(weights_HTS, everything(length, length), {SUBJECT_TO_VERB: right_TS})
    [role], none = survey.roles()
    assert (role.kind, role.name) == ("syntactic", "subject → verb")
    assert role.evidence.count == 60
    assert role.evidence.low > 0.9
    assert not none


def test_a_relation_that_is_an_offset_is_no_syntax() -> None:
    """Where the verb always follows its subject, looking one ahead is enough; that head is positional."""
    survey = HeadStatistics()
    for length in lengths():
        right_TS = torch.zeros(length, length, dtype=torch.bool)
        right_TS[2, 3] = True
        ahead_T = (torch.arange(length) + 1).clamp(max=length - 1)
        survey.add(pointed(ahead_T, length), everything(length, length), {SUBJECT_TO_VERB: right_TS})
    assert survey.evidence()[SUBJECT_TO_VERB][0].baseline == 1.0
    assert [role.kind for role in survey.roles()[0]] == ["positional"]


def test_alignment_is_judged_by_gold_links() -> None:
    survey = HeadStatistics()
    for length in lengths():
        order = torch.randperm(length)
        links_TS = torch.zeros(length, length, dtype=torch.bool).scatter(1, order[:, None], True)
        weights_HTS = torch.cat([pointed(order, length), pointed(order.roll(1), length)])
        survey.add(weights_HTS, everything(length, length), {LINKED: links_TS})
    assert [[role.kind for role in head] for head in survey.roles()] == [["alignment"], []]


def test_few_sentences_prove_nothing() -> None:
    survey = HeadStatistics()
    for _ in range(5):
        survey.add(pointed((torch.arange(9) - 1).clamp(0), 9), everything(9, 9), {})
    assert survey.roles() == [()]


def test_confidence_is_the_mean_of_the_largest_weight() -> None:
    """Voita et al. 2019, section 4: the end token left out, here the last column."""
    survey = HeadStatistics()
    seen_TS = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    survey.add(torch.tensor([[[0.5, 0.1, 0.4], [0.1, 0.2, 0.7], [0.0, 0.0, 1.0]]]), seen_TS, {})
    assert survey.confidence().tolist() == pytest.approx([0.35])


# ---------------------------------------------------------------------------------------------------------------------
# Models


def survey_encoder(model: Seq2Seq, source: Sentences, name: str, frequency_V: Tensor | None = None) -> HeadStatistics:
    survey = HeadStatistics()
    with trace(model, name) as tape, torch.no_grad():
        model.encode(source)
    for row, real_S in enumerate(source.mask_BS):
        length = int(real_S.sum())
        seen_TS = everything(length, length)
        right = {SUBJECT_TO_VERB: relation_sentence(length)[0]}
        if frequency_V is not None:
            right[RARE] = rarest(seen_TS, frequency_V[source.ids_BS[row, :length]])
        survey.add(tape[name].weights_BHTS[row, :, :length, :length], seen_TS, right)
    return survey


def test_a_head_written_by_hand_to_look_one_token_back_is_positional() -> None:
    """PE(t - 1) = M PE(t) with M a rotation that does not depend on t: the query turns back, the key stands still."""
    model = build(toy("transformer-small", width=32, heads=2, norm="post"))
    with torch.no_grad():
        model.encoder.embed.tokens.weight.mul_(0.01)  # places, hardly any words
        attend = model.encoder.blocks[0].self_attention
        assert isinstance(attend, SelfAttention)
        speed = 10_000 ** (-torch.arange(0, 16, 2) / 32)  # of the first eight pairs of sine and cosine
        back = torch.zeros(16, 32)
        for pair, angle in enumerate(speed.tolist()):
            two = slice(2 * pair, 2 * pair + 2)
            back[two, two] = torch.tensor(
                [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            )  # sin(t - 1), cos(t - 1) from sin t, cos t
        query, key, _ = attend.qkv.weight.unflatten(0, (3, 2, 16)).unbind(0)
        query[1], key[1] = 20 * back, torch.eye(16, 32)
        attend.qkv.bias.zero_()
    survey = survey_encoder(model, sentences(lengths()), "encoder.0.self")
    random, written = survey.roles()
    assert not random
    assert [(role.kind, role.name) for role in written] == [("positional", "-1")]


CASES = {
    **{arch: TOYS[arch] for arch in ("transformer-small", "bahdanau", "luong-dot")},
    **{name: VARIANTS[name] for name in ("rotary positions", "no positions", "SwiGLU, norm before")},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_a_random_model_has_no_roles(settings: ModelSettings) -> None:
    model, source, frequency_V = build(settings), sentences(lengths()[:40]), torch.randint(1, 1000, (VOCABULARY,))
    for name in attention_hooks(model):
        if name.startswith("encoder."):
            assert not any(survey_encoder(model, source, name, frequency_V).roles()), name
    with trace(model, "decoder*cross") as tape, torch.no_grad():
        model(source, tokens(40, 8))
    for name in tape:
        survey = HeadStatistics()
        for row, real_S in enumerate(source.mask_BS):
            seen_TS = everything(8, int(real_S.sum()))
            links_TS = torch.rand(seen_TS.shape) < 0.15
            rare_TS = rarest(seen_TS, frequency_V[source.ids_BS[row, : seen_TS.shape[1]]])
            weights_HTS = tape.steps(name)[row, :, :, : seen_TS.shape[1]]
            survey.add(weights_HTS, seen_TS, {LINKED: links_TS, RARE: rare_TS})
        assert not any(survey.roles()), name


# ---------------------------------------------------------------------------------------------------------------------
# How sure


def test_wilsons_interval() -> None:
    """Wilson 1927 by hand: (0.8 + 0.192) / 1.384 = 0.717, and 1.96 sqrt(0.016 + 0.0096) / 1.384 = 0.227 around it."""
    hits_N = torch.tensor([1.0] * 8 + [0.0] * 2)
    low, high = interval(hits_N, torch.ones(10))
    assert (low, high) == (pytest.approx(0.490, abs=1e-3), pytest.approx(0.943, abs=1e-3))


def test_sentences_that_disagree_widen_the_interval() -> None:
    trials_N = torch.full((20,), 10.0)
    alike, apart = torch.full((20,), 5.0), torch.tensor([10.0, 0.0] * 10)
    narrow, wide = (interval(hits_N, trials_N) for hits_N in (alike, apart))
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), min_size=1, max_size=30))
def test_an_interval_holds_its_share(sentences: list[tuple[int, float]]) -> None:
    trials_N = torch.tensor([float(count) for count, _ in sentences])
    hits_N = torch.tensor([float(round(count * share)) for count, share in sentences])
    low, high = interval(hits_N, trials_N)
    assert 0 <= low <= float(hits_N.sum() / trials_N.sum()) + 1e-9
    assert float(hits_N.sum() / trials_N.sum()) - 1e-9 <= high <= 1


@pytest.mark.parametrize(
    ("kind", "evidence", "expected"),
    [
        ("syntactic", Evidence(0.5, 0.35, 0.46, 0.54, 100), True),
        ("syntactic", Evidence(0.5, 0.38, 0.46, 0.54, 100), False),  # less than ten points above
        ("rare", Evidence(0.9, 0.4, 0.85, 0.95, 100), True),
        ("rare", Evidence(0.9, 0.5, 0.85, 0.95, 100), False),  # less than twice the baseline
        ("alignment", Evidence(0.45, 0.1, 0.4, 0.5, 100), False),  # not most of them
    ],
)
def test_thresholds(kind: str, evidence: Evidence, expected: bool) -> None:
    assert has_role(kind, evidence) is expected  # type: ignore[arg-type]
