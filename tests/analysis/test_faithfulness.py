"""Faithfulness: curves of a model whose every answer is known, intervals, and a verdict that can go either way."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.analysis.attribution import TokenPair, attribute
from regard.analysis.faithfulness import (
    ExplainedPair,
    agreement,
    area,
    bootstrap,
    fall_curves,
    kept_words,
    measure_faithfulness,
    on_grid,
    word_log_probs,
)
from regard.analysis.trace import TraceSide
from regard.errors import ModelError
from regard.layers.attention import RecurrentAttention, attend
from regard.layers.hooks import HiddenStateHook
from regard.models.base import Seq2Seq
from tests.toys import TOYS, Sentences, build, close, sentences, tokens


def make_case(source_words=(0, 1, 2, 2, 3, 4), target_words=(0, 1, 1, 2), links=()) -> ExplainedPair:
    """A random pair; the numbers say to which word each token belongs, and the last word is the end."""
    target = tokens(1, len(target_words) + 1)
    sides = [
        TraceSide(tuple(map(str, range(len(of)))), tuple(f"w{word}" for word in range(of[-1] + 1)), tuple(of))
        for of in (source_words, target_words)
    ]
    return ExplainedPair(TokenPair(sentences([len(source_words)]), target[:, :-1], target[:, 1:]), *sides, links)


def test_words_go_in_the_order_of_their_scores() -> None:
    gone, stayed = kept_words(torch.tensor([[0.1, 0.7, -0.2]])).int()[:, 0].tolist()
    assert gone == [[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert stayed == [[0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("arch", ["transformer-tiny", "bahdanau"])
def test_a_deleted_word_is_not_in_the_sentence(arch: str) -> None:
    """The scores of a shortened sentence are those that the model gives when it alone is read."""
    model, case = build(TOYS[arch]), make_case()
    kept_NS = torch.tensor([[True, True, True, True], [True, False, False, True], [False] * 4])
    found = word_log_probs(model, case, kept_NS, "delete")
    for row, places in zip(found, ([0, 1, 2, 3, 4, 5], [0, 4, 5], [5]), strict=True):
        ids_1S = case.pair.source.ids_BS[:, places]
        logits = model(Sentences(ids_1S, torch.ones_like(ids_1S, dtype=torch.bool)), case.pair.input_1T)
        token_T = logits.log_softmax(-1)[0].gather(-1, case.pair.output_1T[0, :, None])[:, 0].detach()
        close(row, torch.stack([token_T[0], token_T[1] + token_T[2]]), 1e-4)  # the second word has two tokens


@pytest.mark.parametrize("arch", ["transformer-small", "luong-general"])
def test_blanking_one_word_is_occlusion(arch: str) -> None:
    """Of words that are one token, the first step of deletion by "blank" is what occlusion measures."""
    model, case = build(TOYS[arch]), make_case((0, 1, 2, 3), (0, 1, 2))
    kept_NS = torch.cat([torch.ones(1, 3, dtype=torch.bool), ~torch.eye(3, dtype=torch.bool)])
    found = word_log_probs(model, case, kept_NS, "blank")
    expected = attribute(model, *case.pair, "occlusion").source_TS[:-1, :-1]
    close((found[:1] - found[1:]).t(), expected, 1e-4)


def test_curves_share_their_ends_and_are_each_others_mirror() -> None:
    """Whole sentence: no fall. Nothing left: the same fall for all. An order kept is the opposite order deleted."""
    model, case = build(TOYS["transformer-tiny"]), make_case()
    scores = torch.rand(2, 4)
    curves = fall_curves(model, case, {"one": scores, "opposite": -scores})
    for curve in curves.values():
        deletion_TK, sufficiency_TK = curve
        close(deletion_TK[:, 0], torch.zeros(2))
        close(sufficiency_TK[:, -1], torch.zeros(2))
        close(deletion_TK[:, -1], sufficiency_TK[:, 0])
    close(curves["one"][0], curves["opposite"][1].flip(-1))
    kept = word_log_probs(model, case, kept_words(scores)[0, 1], "delete")[:, 1]
    close(curves["one"][0, 1], kept[0] - kept)


def test_areas_and_grid_by_hand() -> None:
    """A fall at the first of two words: 0, 1, 1. Its area is 1/4 + 1/2."""
    curve_TK = torch.tensor([[0.0, 1.0, 1.0]])
    assert area(curve_TK) == pytest.approx(0.75)
    close(on_grid(curve_TK), torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]))


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9))
def test_the_grid_keeps_the_ends(values: list[float]) -> None:
    gridded = on_grid(torch.tensor([values]))
    close(gridded[[0, -1]], torch.tensor([values[0], values[-1]]))
    assert min(values) - 1e-5 <= gridded.min() <= gridded.max() <= max(values) + 1e-5


def test_agreement_by_hand() -> None:
    """Word 0 is linked to 0 and 1 and puts 1 first; word 1 to 2, which it ranks second; word 2 to nothing."""
    scores = torch.tensor([[0.2, 0.7, 0.1], [0.5, 0.1, 0.3], [1.0, 0.0, 0.0]])
    precision, auc = agreement(scores, ((0, 0), (1, 0), (2, 1)))
    assert precision == pytest.approx(0.5)
    assert auc == pytest.approx((1.0 + 0.5) / 2)
    assert agreement(torch.ones(1, 4), ((2, 0),))[1] == pytest.approx(0.5)  # ties
    assert all(math.isnan(value) for value in agreement(scores, ()))


def test_intervals() -> None:
    """They hold the mean, shrink with the number of sentences, are the same for a seed, and skip what is not known."""
    values = torch.randn(400, generator=torch.Generator().manual_seed(3)).tolist()
    few, many = bootstrap(values[:20], 1), bootstrap(values, 1)
    assert few is not None
    assert many is not None
    assert few.low < few.mean < few.high
    assert many.high - many.low == pytest.approx(2 * 1.96 / 20, rel=0.15)  # the normal interval of a mean of 400
    assert many.high - many.low < few.high - few.low
    assert bootstrap(values, 1) == many
    assert bootstrap([1.0, math.nan, 1.0], 1) == (1.0, 1.0, 1.0)
    assert bootstrap([math.nan], 1) is None


# ---------------------------------------------------------------------------------------------------------------------
# The table, over a model that has one reason for everything


class Monotone(Seq2Seq):
    """Writes token v as well as the source holds it: target word t lives by source token t + 4 and by nothing else.

    It has a cross-attention in name only, which looks the wrong way if asked to.
    """

    def __init__(self, backwards: bool):
        super().__init__()
        self.output = torch.nn.Linear(19, 19, bias=False)
        torch.nn.init.eye_(self.output.weight)
        self.look = RecurrentAttention("dot", 19, 19, "decoder.cross")
        self.tokens = torch.nn.Embedding.from_pretrained(torch.eye(19))
        self.encoder_stream, self.backwards = torch.nn.Module(), backwards
        self.encoder_stream.stream = HiddenStateHook("encoder")
        self.stream = HiddenStateHook("decoder")

    def hidden(self, source, target_BT):
        mask_BS1 = source.mask_BS[..., None]
        x_BSV = self.encoder_stream.stream.see("embed", self.tokens(source.ids_BS)) * mask_BS1
        y_BTV = self.stream.see("embed", self.tokens(target_BT))
        wanted = y_BTV.roll(1, -1)  # reading token v, the model is about to write v + 1
        query = wanted.roll(3, -1) if self.backwards else wanted
        attend(20 * query[:, None], x_BSV[:, None], x_BSV[:, None], source.mask_BS[:, None, None], tap=self.look.tap)
        held_B1V = x_BSV.sum(1, keepdim=True)
        return 6 * held_B1V + 0 * y_BTV

    def encode(self, source):
        raise NotImplementedError

    start = step = encode


def monotone_cases(count: int) -> list[ExplainedPair]:
    """Source 4 5 6 7 8 0 in any order; target 4 5 6 7 8 and the end. Word t is linked to where its token stands."""
    cases = []
    for number in range(count):
        order = torch.randperm(5, generator=torch.Generator().manual_seed(number))
        ids = torch.cat([order + 4, torch.tensor([0])])[None]
        read, said = torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([[4, 5, 6, 7, 8, 0]])
        side = TraceSide(tuple("abcdef"), tuple("abcdef"), tuple(range(6)))
        links = tuple(sorted((int((order == t).nonzero()), t) for t in range(5)))
        pair = TokenPair(Sentences(ids, torch.ones_like(ids, dtype=torch.bool)), read, said)
        cases.append(ExplainedPair(pair, side, side, links))
    return cases


WAYS = {name: (name, {}) for name in ("attention", "rollout", "occlusion", "gradient")}


def test_the_table_finds_the_true_reason() -> None:
    """Attention that looks elsewhere loses to occlusion, and the gold alignment says the same."""
    found = measure_faithfulness(Monotone(backwards=True).eval(), monotone_cases(12), WAYS, seeds=4)
    rows = {row.name: row for row in found.rows}
    assert set(rows) == {"attention", "occlusion", "gradient", "random"}
    assert "for Transformers only" in found.left_out["rollout"]
    assert rows["occlusion"].deletion_gain is not None
    assert rows["occlusion"].deletion_gain.low > 0
    assert rows["occlusion"].sufficiency_gain is not None
    assert rows["occlusion"].sufficiency_gain.low > 0
    assert rows["attention"].deletion_gain is None
    assert rows["occlusion"].precision == (1.0, 1.0, 1.0)
    assert rows["occlusion"].auc == (1.0, 1.0, 1.0)
    assert rows["random"].precision is not None
    assert rows["random"].precision.mean == pytest.approx(0.2, abs=0.08)
    assert rows["random"].auc is not None
    assert rows["random"].auc.mean == pytest.approx(0.5, abs=0.08)
    # It always looks at the wrong word, so that even chance is the better guide.
    assert found.verdict == "On the deletion curve: occlusion, gradient, random above attention (95 %, 12 sentences)."


def test_where_attention_wins_it_says_so() -> None:
    """The same model with an attention that looks right: nothing ranks above it, and chance below."""
    found = measure_faithfulness(Monotone(backwards=False).eval(), monotone_cases(12), WAYS, seeds=4)
    assert "above" not in found.verdict
    assert "random below attention" in found.verdict
    assert "not significantly different from attention" in found.verdict


def test_the_table_is_data_and_prints() -> None:
    found = measure_faithfulness(Monotone(backwards=True).eval(), monotone_cases(5), WAYS)
    again = measure_faithfulness(Monotone(backwards=True).eval(), monotone_cases(5), WAYS)
    data = json.loads(json.dumps(found.as_dict()))
    assert data == json.loads(json.dumps(again.as_dict()))  # the same for a seed
    assert data["rows"][0]["deletion"].keys() == {"mean", "low", "high"}
    assert len(data["rows"][0]["deletion_curve"]) == 11
    assert data["rows"][0]["deletion_curve"][0] == pytest.approx(0.0, abs=1e-6)
    lines = str(found).splitlines()
    assert len(lines) == 1 + 4 + 1 + 1
    assert lines[0].split()[0] == "deletion"
    assert lines[-1].startswith("rollout was not measured: ")


def test_without_gold_there_is_no_agreement() -> None:
    cases = [ExplainedPair(case.pair, case.source, case.target) for case in monotone_cases(3)]
    found = measure_faithfulness(Monotone(backwards=True).eval(), cases, {"occlusion": ("occlusion", {})})
    assert all(row.precision is None and row.auc is None for row in found.rows)
    assert found.verdict == "Nothing was compared with attention."
    assert " - " in str(found)


def test_refusals() -> None:
    model = build(TOYS["transformer-tiny"])
    with pytest.raises(ModelError, match="needs a sentence pair with words on both sides"):
        measure_faithfulness(model, [])
    with pytest.raises(ModelError, match='must be "delete" or "blank", not "shuffle"'):
        measure_faithfulness(model, [make_case()], removal="shuffle")
