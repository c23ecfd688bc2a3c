"""The laws that every tagger keeps, whatever is inside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as example_budget
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from regard.config import ModelSettings
from regard.layers.dropout import Rows, dropout_rows
from regard.layers.hooks import attention_hooks, listen, trace
from regard.tasks.tag.data import TagBatch
from regard.tasks.tag.training import TagTrainUnit
from tests.tagged import CASES, LABELS, VOCABULARY, Words, build, sentences
from tests.toys import close

every_tagger = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
LENGTHS = [[5, 2, 3], [3], [1, 1, 2, 4, 1]]


@pytest.fixture
def model(settings: ModelSettings) -> object:
    """The architecture of a case, in small."""
    return build(settings)


def real(batch: Words) -> torch.Tensor:
    """Which words are real."""
    return batch.mask_BTS[:, :, 0]


@every_tagger
@torch.no_grad()
def test_scores_have_one_row_a_word(model) -> None:
    batch = sentences(LENGTHS)
    assert model(batch).shape == (3, 5, LABELS)
    assert model.encode(batch).shape == (3, 5, model.output.in_features)


@every_tagger
@torch.no_grad()
def test_padding_changes_nothing(model) -> None:
    """More padding behind pieces, more empty words, and other pieces in all of it."""
    batch = sentences(LENGTHS)
    grown = (0, 3, 0, 2)
    padded = Words(F.pad(batch.ids_BTS, grown), F.pad(batch.mask_BTS, grown))
    padded.ids_BTS[~padded.mask_BTS] = torch.randint(VOCABULARY, (int((~padded.mask_BTS).sum()),))
    close(model(padded)[real(padded)], model(batch)[real(batch)])


@every_tagger
@example_budget(max_examples=12)
@given(
    lengths=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_a_sentence_alone_equals_its_row_in_any_batch(
    settings: ModelSettings, lengths: list[list[int]], seed: int
) -> None:
    model = build(settings)
    torch.manual_seed(seed)
    batch = sentences(lengths)
    together = model(batch)
    share = model.crf.marginals(together, real(batch))
    best = model.crf.best(together, real(batch))
    for row, words in enumerate(lengths):
        kept = (slice(row, row + 1), slice(len(words)), slice(max(words)))
        alone = Words(batch.ids_BTS[kept], batch.mask_BTS[kept])
        logits = model(alone)
        close(logits[0], together[row, : len(words)])
        close(model.crf.marginals(logits, real(alone))[0], share[row, : len(words)])
        assert model.crf.best(logits, real(alone))[0].tolist() == best[row, : len(words)].tolist()


@every_tagger
@torch.no_grad()
def test_the_words_and_their_neighbours_matter(model) -> None:
    """The other laws would hold for a model that is blind."""
    batch = sentences([[4, 3, 2, 5]])
    before = model(batch)
    changed = batch._replace(ids_BTS=batch.ids_BTS.clone())
    changed.ids_BTS[0, 0] = (changed.ids_BTS[0, 0] + 1) % VOCABULARY
    assert (model(changed) - before).abs().amax(-1).min() > 1e-6  # every word sees the first one


@every_tagger
@torch.no_grad()
def test_the_order_of_pieces_matters(model) -> None:
    batch = sentences([[4]])
    batch.ids_BTS[0, 0] = torch.tensor([5, 6, 7, 8])
    turned = Words(batch.ids_BTS.flip(-1), batch.mask_BTS)
    assert (model(turned) - model(batch)).abs().max() > 1e-4


@every_tagger
@torch.no_grad()
def test_saving_and_loading_leaves_the_scores_alone(settings: ModelSettings, tmp_path: Path) -> None:
    model, other, batch = build(settings), build(settings, seed=1), sentences(LENGTHS)
    expected = model(batch)
    assert not torch.equal(other(batch), expected)
    save_file({name: weight.detach() for name, weight in model.named_parameters()}, tmp_path / "weights.safetensors")
    stored = load_file(tmp_path / "weights.safetensors")
    for name, weight in other.named_parameters():
        weight.copy_(stored.pop(name))
    assert not stored
    assert torch.equal(other(batch), expected)


@every_tagger
def test_every_weight_learns(model) -> None:
    batch = sentences(LENGTHS)
    target = torch.randint(LABELS, real(batch).shape)
    model.crf.negative_log_likelihood(model.train()(batch), target, real(batch)).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@every_tagger
@torch.no_grad()
def test_looking_changes_nothing(model) -> None:
    batch = sentences(LENGTHS)
    unseen = model(batch)
    with trace(model) as tape:
        close(model(batch), unseen)
    assert set(tape) == set(attention_hooks(model))
    with listen(model, "*", lambda name, weights: weights):
        close(model(batch), unseen)
    assert torch.equal(model(batch), unseen)


@torch.no_grad()
def test_the_encoder_shows_which_words_look_at_which() -> None:
    model, batch = build(CASES["transformer-crf"]), sentences(LENGTHS)
    before = model(batch)
    with trace(model) as tape:
        model(batch)
    assert list(tape) == ["encoder.0.self", "encoder.1.self"]
    weights = tape["encoder.1.self"].weights_BHTS
    assert weights.shape == (3, 4, 5, 5)
    close(weights[1, :, 0].sum(-1), torch.ones(4))
    assert not weights[1, :, 0, 1:].any()  # a sentence of one word sees nothing else

    def own(name: str, weights: torch.Tensor) -> torch.Tensor:
        return torch.eye(weights.shape[-1]).expand_as(weights).contiguous()

    with listen(model, "*", own):
        assert (model(batch) - before).abs().max() > 1e-5


@every_tagger
def test_rows_shared_between_processes_learn_what_one_would(settings: ModelSettings) -> None:
    """The gradients of every other sentence, summed, are those of the batch: with the very same dropout."""
    batch = sentences([[5, 2, 3], [3], [1, 1, 2, 4], [6, 6], [2, 3]])
    whole = TagBatch(*batch, torch.randint(LABELS, real(batch).shape), torch.arange(5))

    def gradients(parts: list[tuple[TagBatch, Rows | None]]) -> dict[str, torch.Tensor]:
        model = build(dataclasses.replace(settings, dropout=0.5)).train()
        for part, rows in parts:
            torch.manual_seed(3)
            with dropout_rows(rows):
                model.crf.negative_log_likelihood(model(part), part.target_BT, part.mask_BT).sum().backward()
        return {name: weight.grad for name, weight in model.named_parameters()}

    together = gradients([(whole, None)])
    shared = gradients([TagTrainUnit.rows(None, whole, first, 2) for first in range(2)])
    for name, gradient in together.items():
        close(shared[name], gradient, 1e-4)
