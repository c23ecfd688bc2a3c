"""The laws of search, over every architecture (DESIGN.md, "Laws")."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import models
from regard.config import ModelSettings
from regard.decoding.beam import beam_search
from regard.decoding.constraints import ForcedPrefix, NoRepeatNgram
from regard.decoding.ensemble import Decodable, Ensemble
from regard.decoding.forced_decoding import force
from regard.decoding.greedy import Sample, extend_paths, sampling
from regard.decoding.hypothesis import Hypothesis, Tokens, follow_beams, keep_rows
from regard.decoding.penalties import LengthPenalty
from regard.models.base import Seq2Seq
from tests.toys import (
    CONVOLUTIONS,
    EXPERTS,
    SOURCELESS,
    TOYS,
    VARIANTS,
    VOCABULARY,
    Sentences,
    close,
    sentences,
    sizes,
    tokens,
)

CASES = TOYS | VARIANTS | EXPERTS | CONVOLUTIONS | SOURCELESS
END, START = 0, 2
SPECIAL = Tokens(START, END, never=(START, VOCABULARY - 1))
SUM = LengthPenalty(0.0)

every_model = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())


def run(search: Any, model: Decodable, source: Sentences, longest: int = 7, **options: Any) -> list[list[Hypothesis]]:
    with torch.inference_mode():
        memory = model.encode(source)
        limits = torch.full((len(source.ids_BS),), longest)
        return search(model.step, model.start(memory), memory, limits, SPECIAL, **options)


def same(one: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> None:
    """The same outputs with the same scores, to rounding."""
    assert [[h.tokens for h in row] for row in one] == [[h.tokens for h in row] for row in other]
    for left, right in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        assert left.score == pytest.approx(right.score, abs=1e-4)
        assert left.log_probs == pytest.approx(right.log_probs, abs=1e-4)
        assert left.ended == right.ended


@every_model
@torch.no_grad()
def test_several_targets_share_an_encoded_source(model: Seq2Seq, source: Sentences) -> None:
    rows = torch.tensor([1, 0, 1])
    target = tokens(3, 5)
    memory = keep_rows(model.encode(source), rows)
    whole = type(source)(source.ids_BS[rows], source.mask_BS[rows])
    close(model.decode(memory, target), model.hidden(whole, target))


@every_model
def test_beam_one_is_greedy(model: Seq2Seq, source: Sentences) -> None:
    same(run(beam_search, model, source, width=1), run(extend_paths, model, source))


@every_model
@pytest.mark.parametrize(("penalty", "form"), [(0.0, "plain"), (1.0, "plain"), (0.6, "gnmt")])
@torch.no_grad()
def test_a_wide_beam_equals_brute_force(settings: ModelSettings, penalty: float, form: str) -> None:
    """Five words: the end, the start that is never written, and three more. Outputs of up to four tokens."""
    words, start, longest = 5, 4, 4
    torch.default_generator.manual_seed(3)
    model = models.build(settings, **sizes(settings, words)).eval()
    for weight in model.parameters():
        weight.add_(0.3 * torch.randn_like(weight))
    source = Sentences(torch.randint(words, (2, 3)), torch.tensor([[True] * 3, [True, True, False]]))
    outputs = [
        path
        for length in range(1, longest + 1)
        for path in itertools.product(range(4), repeat=length)
        if END not in path[:-1] and (path[-1] == END or length == longest)
    ]
    memory = model.encode(source)
    limits, special = torch.full((2,), longest), Tokens(start, END, never=(start,))
    found = beam_search(
        model.step, model.start(memory), memory, limits, special, width=120, penalty=LengthPenalty(penalty, form)
    )  # fmt: skip
    for row in range(2):
        alone = Sentences(source.ids_BS[row : row + 1], source.mask_BS[row : row + 1])
        scores = {}
        for length, paths in itertools.groupby(outputs, key=len):
            divisor = (length if form == "plain" else (5 + length) / 6) ** penalty
            scores |= {path: total / divisor for path, total in _totals(model, alone, list(paths), start).items()}
        best, *_ = found[row]
        assert (best.tokens + (END,) * best.ended) == max(scores, key=lambda path: scores[path])
        assert best.score == pytest.approx(max(scores.values()), abs=1e-4)


def _totals(
    model: Seq2Seq, source: Sentences, paths: list[tuple[int, ...]], start: int
) -> dict[tuple[int, ...], float]:
    """Log-probabilities of outputs of one length by teacher forcing, many at once."""
    count = len(paths)
    path_CT = torch.tensor(paths)
    many = Sentences(source.ids_BS.expand(count, -1), source.mask_BS.expand(count, -1))
    logits_CTV = model(many, torch.cat([torch.full((count, 1), start), path_CT[:, :-1]], dim=1))
    logits_CTV[..., start] = -torch.inf
    totals = logits_CTV.log_softmax(-1).gather(-1, path_CT[:, :, None]).sum((1, 2)).tolist()
    return dict(zip(paths, totals, strict=True))


@every_model
def test_an_ensemble_of_one_is_its_model(model: Seq2Seq, source: Sentences) -> None:
    alone = run(beam_search, model, source, width=4)
    for mixing in ("mean", "log-mean"):
        same(run(beam_search, Ensemble([model], mixing), source, width=4), alone)  # type: ignore[arg-type]


@every_model
def test_an_ensemble_of_twins_is_its_model(model: Seq2Seq, source: Sentences) -> None:
    same(run(extend_paths, Ensemble([model, model, model]), source), run(extend_paths, model, source))


@every_model
def test_the_same_text_at_every_batch_size(model: Seq2Seq) -> None:
    lengths = torch.randint(1, 9, (64,)).tolist()
    source = sentences(lengths)
    found = {size: _in_batches(model, source, lengths, size) for size in (1, 8, 64)}
    assert found[8] == found[64]
    assert found[1] == found[64][: len(found[1])]


@torch.inference_mode()
def _in_batches(model: Seq2Seq, source: Sentences, lengths: list[int], size: int) -> list[list[tuple[int, ...]]]:
    """The two best outputs of each sentence; one at a time, the first 8 will do."""
    found = []
    for first in range(0, 8 if size == 1 else len(lengths), size):
        rows = slice(first, first + size)
        width = max(lengths[rows])
        memory = model.encode(Sentences(source.ids_BS[rows, :width], source.mask_BS[rows, :width]))
        limits = torch.tensor([5 + length % 3 for length in lengths[rows]])
        found += beam_search(model.step, model.start(memory), memory, limits, SPECIAL, width=3, best=2)
    return [[hypothesis.tokens for hypothesis in row[:2]] for row in found]


@every_model
def test_cold_samples_are_greedy(model: Seq2Seq, source: Sentences) -> None:
    seeds = torch.tensor([1, 2, 3])
    for temperature in (0.0, 1e-4):
        drawn = run(extend_paths, model, source, choose=sampling(Sample(temperature=temperature), seeds))
        same(drawn, run(extend_paths, model, source))


@every_model
def test_samples_do_not_depend_on_the_batch(model: Seq2Seq, source: Sentences) -> None:
    together = run(extend_paths, model, source, choose=sampling(Sample(), torch.tensor([5, 6, 7])), paths=3)
    alone = Sentences(source.ids_BS[1:2, :4], source.mask_BS[1:2, :4])
    again = run(extend_paths, model, alone, choose=sampling(Sample(), torch.tensor([6])), paths=3)
    same(again, together[1:2])
    assert len({h.tokens for h in together[0]}) > 1


@every_model
@pytest.mark.parametrize("size", [1, 2, 3])
def test_blocked_runs_never_repeat(model: Seq2Seq, source: Sentences, size: int) -> None:
    for search, options in ((extend_paths, {}), (beam_search, {"width": 3})):
        for row in run(search, model, source, longest=12, constraints=[NoRepeatNgram(size)], **options):
            for hypothesis in row:
                runs = [hypothesis.tokens[i : i + size] for i in range(len(hypothesis.tokens) - size + 1)]
                assert len(set(runs)) == len(runs)


@every_model
def test_a_forced_prefix_is_a_prefix(model: Seq2Seq, source: Sentences) -> None:
    begun = [(5, 5, 6), (), (7,)]
    free = run(beam_search, model, source, width=3)
    found = run(beam_search, model, source, width=3, constraints=[ForcedPrefix.of(begun)])
    for prefix, row in zip(begun, found, strict=True):
        assert row
        assert all(hypothesis.tokens[: len(prefix)] == prefix for hypothesis in row)
    same(found[1:2], free[1:2])


@every_model
@torch.inference_mode()
def test_forced_decoding_scores_as_the_search_did(model: Seq2Seq, source: Sentences) -> None:
    found = run(beam_search, model, source, longest=4, width=40, best=40, penalty=SUM)  # wide enough for some to end
    ended = [(row, h) for row, hypotheses in enumerate(found) for h in hypotheses if h.ended]
    assert ended
    memory = keep_rows(model.encode(source), torch.tensor([row for row, _ in ended]))
    forced = force(model.step, model.start(memory), memory, [h.tokens for _, h in ended], SPECIAL, penalty=SUM)
    same([forced], [[h for _, h in ended]])


@every_model
@torch.inference_mode()
def test_states_follow_their_hypotheses(model: Seq2Seq, source: Sentences) -> None:
    """Beams that are widened, reordered and taken out with their sentences go on as though they had been alone."""
    memory = model.encode(source)
    first_B1, second_BW, third = tokens(3, 1), tokens(3, 3), tokens(2, 2)
    _, state = model.step(first_B1, model.start(memory), memory)
    state = follow_beams(state, torch.zeros(3, 3, dtype=torch.long))
    _, state = model.step(second_BW, state, memory)
    rows, beams = torch.tensor([2, 0]), torch.tensor([[2, 0], [1, 1]])
    state, kept = follow_beams(keep_rows(state, rows), beams), keep_rows(memory, rows)
    logits_BWV, _ = model.step(third, state, kept)
    for place, row in enumerate(rows.tolist()):
        for beam in range(2):
            path = torch.stack([first_B1[row, 0], second_BW[row, beams[place, beam]], third[place, beam]])[None]
            expected = _forward_one(model, source, row, path)
            close(logits_BWV[place, beam], expected)


def _forward_one(model: Seq2Seq, source: Sentences, row: int, path_1T: Tensor) -> Tensor:
    alone = Sentences(source.ids_BS[row : row + 1], source.mask_BS[row : row + 1])
    return model(alone, path_1T)[0, -1]
