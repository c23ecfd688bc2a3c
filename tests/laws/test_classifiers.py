"""The laws that every classifier of documents keeps, whatever is inside it."""

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
from regard.data.batches import DocumentBatch
from regard.layers.dropout import Rows, dropout_rows
from regard.layers.hooks import attention_hooks, listen, trace
from regard.tasks.classify.training import ClassifyTrainUnit
from regard.tasks.labels import label_loss
from tests.reviews import CASES, LABELS, VOCABULARY, Documents, build, documents
from tests.toys import close

every_classifier = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
LENGTHS = [[5, 2, 7], [3], [1, 1, 1, 4]]


@pytest.fixture
def model(settings: ModelSettings) -> object:
    """The architecture of a case, in small."""
    return build(settings)


@every_classifier
@torch.no_grad()
def test_scores_have_one_row_a_document(model) -> None:
    batch = documents(LENGTHS)
    assert model(batch).shape == (3, LABELS)
    assert model.encode(batch).shape == (3, model.output.in_features)


@every_classifier
@torch.no_grad()
def test_padding_changes_nothing(model) -> None:
    """More padding behind words, more empty sentences, and other tokens in all of it."""
    batch = documents(LENGTHS)
    grown = (0, 3, 0, 2)
    padded = Documents(F.pad(batch.ids_BUS, grown), F.pad(batch.mask_BUS, grown))
    padded.ids_BUS[~padded.mask_BUS] = torch.randint(VOCABULARY, (int((~padded.mask_BUS).sum()),))
    close(model(padded), model(batch))


@every_classifier
@example_budget(max_examples=12)
@given(
    lengths=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=5), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_a_document_alone_equals_its_row_in_any_batch(
    settings: ModelSettings, lengths: list[list[int]], seed: int
) -> None:
    model = build(settings)
    torch.manual_seed(seed)
    batch = documents(lengths)
    together = model(batch)
    for row, document in enumerate(lengths):
        kept = (slice(row, row + 1), slice(len(document)), slice(max(document)))
        close(model(Documents(batch.ids_BUS[kept], batch.mask_BUS[kept]))[0], together[row])


@every_classifier
@torch.no_grad()
def test_the_words_matter(model) -> None:
    """The other laws would hold for a model that is blind."""
    batch = documents(LENGTHS)
    other = batch._replace(ids_BUS=(batch.ids_BUS + 1) % VOCABULARY)
    assert (model(other) - model(batch)).abs().amax(1).min() > 1e-4


@every_classifier
@torch.no_grad()
def test_saving_and_loading_leaves_the_scores_alone(settings: ModelSettings, tmp_path: Path) -> None:
    model, other, batch = build(settings), build(settings, seed=1), documents(LENGTHS)
    expected = model(batch)
    assert not torch.equal(other(batch), expected)
    save_file({name: weight.detach() for name, weight in model.named_parameters()}, tmp_path / "weights.safetensors")
    stored = load_file(tmp_path / "weights.safetensors")
    for name, weight in other.named_parameters():
        weight.copy_(stored.pop(name))
    assert not stored
    assert torch.equal(other(batch), expected)


@every_classifier
def test_every_weight_learns(model) -> None:
    F.cross_entropy(model.train()(documents(LENGTHS)), torch.tensor([0, 1, 2])).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@every_classifier
@torch.no_grad()
def test_looking_changes_nothing(model) -> None:
    batch = documents(LENGTHS)
    unseen = model(batch)
    with trace(model) as tape:
        close(model(batch), unseen)
    assert set(tape) == set(attention_hooks(model))
    for listener in (lambda name, weights: weights, lambda name, weights: None):
        with listen(model, "*", listener):
            close(model(batch), unseen)
    assert torch.equal(model(batch), unseen)
    assert all(tap.idle for tap in attention_hooks(model).values())


@every_classifier
@torch.no_grad()
def test_shares_are_exactly_zero_where_nothing_is_real_and_sum_to_one(model) -> None:
    batch = documents(LENGTHS)
    with trace(model) as tape:
        model(batch)
    shares_BUS = model.shading(tape, batch)
    assert shares_BUS.shape == batch.mask_BUS.shape
    assert not shares_BUS[~batch.mask_BUS].any()
    assert (shares_BUS[batch.mask_BUS] > 0).all()
    close(shares_BUS.sum((1, 2)), torch.ones(3))


@every_classifier
@torch.no_grad()
def test_attention_can_be_replaced(model) -> None:
    """All weight on the first word of the first sentence: then the other words are read by their neighbours alone."""
    batch = documents(LENGTHS)
    before = model(batch)

    def first(name, weights):
        changed = torch.zeros_like(weights)
        changed[..., 0] = 1.0
        return changed

    with listen(model, [name for name in attention_hooks(model) if name in ("word", "sentence", "pool")], first):
        assert (model(batch) - before).abs().max() > 1e-5


@torch.no_grad()
def test_han_has_a_weight_a_word_and_a_weight_a_sentence() -> None:
    model, batch = build(CASES["han"]), documents(LENGTHS)
    with trace(model) as tape:
        model(batch)
    assert list(tape) == ["word", "sentence"]
    word_NS, sentence_BU = tape["word"].weights_BHTS[:, 0, 0], tape["sentence"].weights_BHTS[:, 0, 0]
    assert word_NS.shape == (8, 7)  # the real sentences of all documents, in their order
    close(word_NS.sum(1), torch.ones(8))
    close(sentence_BU.sum(1), torch.ones(3))
    close(model.shading(tape, batch).sum(2), sentence_BU)


@every_classifier
def test_rows_shared_between_processes_learn_what_one_would(settings: ModelSettings) -> None:
    """The gradients of every other document, summed, are those of the batch: with the very same dropout."""
    batch = documents([[5, 2, 7], [3], [1, 1, 1, 4], [6, 6], [2, 9]])
    whole = DocumentBatch(*batch, torch.eye(LABELS)[[0, 1, 2, 0, 1]], torch.arange(5))

    def gradients(parts: list[tuple[DocumentBatch, Rows | None]]) -> dict[str, torch.Tensor]:
        model = build(dataclasses.replace(settings, dropout=0.5)).train()
        for part, rows in parts:
            torch.manual_seed(3)
            with dropout_rows(rows):
                label_loss(model(part), part.target_BL, several=False).smoothed.backward()
        return {name: weight.grad for name, weight in model.named_parameters()}

    together = gradients([(whole, None)])
    shared = gradients([ClassifyTrainUnit.rows(None, whole, first, 2) for first in range(2)])
    for name, gradient in together.items():
        close(shared[name], gradient, 1e-4)
