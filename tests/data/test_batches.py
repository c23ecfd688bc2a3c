"""The order of training shows every pair as often as it should, from any position on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import config
from regard.data.batches import (
    Batch,
    BatchPosition,
    BatchStream,
    batch_bounds,
    epoch_batches,
    in_batches,
    make_batch,
    make_documents,
    make_sources,
)
from regard.data.store import StorePart
from regard.errors import TrainingError
from regard.text.tokenizer import EOS, SOS, train_tokenizer

MULTI30K = Path(__file__).parents[3] / "shared" / "data" / "multi30k"

Lengths = tuple[np.ndarray, np.ndarray]
lengths = st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70)), min_size=1, max_size=80).map(
    lambda pairs: (np.array([s for s, _ in pairs], np.uint16), np.array([t for _, t in pairs], np.uint16))
)
budgets = st.integers(1, 500)
seeds = st.integers(-1, 5)


def padded_size(lengths: Lengths, batch: np.ndarray) -> int:
    """Rows times the longer side, EOS or SOS included."""
    return len(batch) * (1 + int(max(side[batch].max() for side in lengths)))


@given(lengths, budgets, seeds, st.integers(0, 3))
def test_an_epoch_shows_every_pair_once(lengths: Lengths, budget: int, seed: int, epoch: int) -> None:
    batches = epoch_batches(lengths, budget, seed, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths[0])))
    assert all(len(batch) == 1 or padded_size(lengths, batch) <= budget for batch in batches)
    again = epoch_batches(lengths, budget, seed, epoch)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in again]


@given(lengths, budgets, seeds)
@settings(max_examples=50)
def test_epochs_follow_without_a_gap(lengths: Lengths, budget: int, seed: int) -> None:
    stream = BatchStream(lengths, budget, seed)
    expected = [batch.tolist() for epoch in range(3) for batch in epoch_batches(lengths, budget, seed, epoch)]
    assert [stream.at(position).tolist() for position in range(len(expected))] == expected
    assert stream.at(0).tolist() == expected[0]  # going back is allowed
    starts = [0, len(epoch_batches(lengths, budget, seed, 0))]
    assert [stream.mark(position) for position in starts] == [BatchPosition(0, 0), BatchPosition(1, starts[1])]
    assert stream.mark(starts[1] - 1) == BatchPosition(0, 0)


@given(lengths, budgets, st.integers(0, 100))
@settings(max_examples=50)
def test_a_mark_saves_the_epochs_before_it(lengths: Lengths, budget: int, position: int) -> None:
    stream = BatchStream(lengths, budget, seed=1)
    mark = stream.mark(position)
    resumed = BatchStream(lengths, budget, seed=1, known=mark)
    later = range(position, position + 5)
    assert [resumed.at(place).tolist() for place in later] == [stream.at(place).tolist() for place in later]
    if mark.position:
        with pytest.raises(ValueError, match="is before"):
            resumed.at(mark.position - 1)


@given(lengths, budgets, st.integers(0, 3), st.floats(0.1, 3.5), st.data())
def test_weights_show_pairs_more_or_less_often(
    lengths: Lengths, budget: int, epoch: int, weight: float, data: st.DataObject
) -> None:
    middle = data.draw(st.integers(0, len(lengths[0])))
    parts = (StorePart(middle, 2.0), StorePart(len(lengths[0]), weight))
    batches = epoch_batches(lengths, budget, 1, epoch, parts)
    shown = Counter(number for batch in batches for number in batch.tolist())
    assert all(shown[number] == 2 for number in range(middle))
    whole = int(weight)
    assert all(whole <= shown[number] <= whole + (weight > whole) for number in range(middle, len(lengths[0])))


def test_a_fraction_shows_another_random_part_each_epoch() -> None:
    count, lengths = 2000, (np.full(2000, 9), np.full(2000, 9))
    epochs = [
        set(np.concatenate(epoch_batches(lengths, 500, 1, e, (StorePart(count, 0.25),))).tolist()) for e in range(2)
    ]
    for shown in epochs:  # standard deviation 19
        assert 400 < len(shown) < 600
    assert 60 < len(epochs[0] & epochs[1]) < 190  # a quarter of a quarter is 125


def test_a_stream_outlives_epochs_that_show_nothing() -> None:
    stream = BatchStream((np.array([3]), np.array([3])), 100, 1, (StorePart(1, 0.05),))
    assert [stream.at(position).tolist() for position in range(3)] == [[0]] * 3
    assert stream.mark(2).epoch > 3


def test_nothing_to_train_on() -> None:
    with pytest.raises(TrainingError, match="nothing to train on"):
        BatchStream((np.array([], int), np.array([], int)), 100, 1)


@given(st.lists(st.integers(0, 60), max_size=60), budgets)
def test_cut_is_greedy(longest: list[int], budget: int) -> None:
    bounds = batch_bounds(np.array(longest, np.int32), budget)
    expected, start = [0], 0
    while start < len(longest):
        end = start + 1
        while end < len(longest) and (end + 1 - start) * max(1, *longest[start : end + 1]) <= budget:
            end += 1
        expected.append(end)
        start = end
    assert bounds == expected


@pytest.fixture(scope="module")
def multi30k() -> Lengths:
    if not MULTI30K.is_dir():
        pytest.skip("needs ../shared/data/multi30k beside the repository")
    sides = [(MULTI30K / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    tokenizer = train_tokenizer(sides[0] + sides[1], config.TokenizerSettings(), seed=1)
    source, target = (np.array([len(ids) for ids in tokenizer.encode_many(lines)]) for lines in sides)
    return source, target


def test_padding_on_multi30k(multi30k: Lengths) -> None:
    """At most 5 % of all tokens at a budget of 4,096, in every epoch."""
    for epoch in range(3):
        batches = epoch_batches(multi30k, 4096, 1, epoch)
        padded = sum(len(batch) * (2 + sum(int(side[batch].max()) for side in multi30k)) for batch in batches)
        real = sum(int(side.sum()) + len(side) for side in multi30k)
        assert 1 - real / padded <= 0.05


def test_batches_change_from_epoch_to_epoch(multi30k: Lengths) -> None:
    """Fewer than half of those that shared a batch share one again; a fixed composition would keep all."""
    home = np.empty((2, len(multi30k[0])), np.int64)
    for epoch in range(2):
        for number, batch in enumerate(epoch_batches(multi30k, 4096, 1, epoch)):
            home[epoch, batch] = number
    together, sizes = Counter(zip(*home.tolist(), strict=True)), Counter(home[0].tolist())
    kept = sum(count * (count - 1) for count in together.values())
    assert kept / sum(size * (size - 1) for size in sizes.values()) < 0.5


def test_make_batch() -> None:
    pairs = [(np.array([5, 6, 7], np.uint16), np.array([8], np.uint16)), ([4], [9, 10])]
    batch = make_batch(pairs, source_pad=90, target_pad=91, index=np.array([12, 3]))
    assert batch.source.ids_BS.tolist() == [[5, 6, 7, EOS], [4, EOS, 90, 90]]
    assert batch.source.mask_BS.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.target_input_BT.tolist() == [[SOS, 8, 91], [SOS, 9, 10]]
    assert batch.target_output_BT.tolist() == [[8, EOS, 91], [9, 10, EOS]]
    assert batch.target_mask_BT.tolist() == [[True, True, False], [True, True, True]]
    assert batch.index_B.tolist() == [12, 3]
    assert (batch.source_tokens, batch.target_tokens) == (6, 5)
    assert {batch.source.ids_BS.dtype, batch.target_input_BT.dtype, batch.index_B.dtype} == {torch.int64}
    assert {batch.source.mask_BS.dtype, batch.target_mask_BT.dtype} == {torch.bool}


rows = st.lists(st.tuples(st.lists(st.integers(3, 50)), st.lists(st.integers(3, 50))), min_size=1)


@given(rows)
def test_masks_pick_out_what_went_in(pairs: Sequence[tuple[list[int], list[int]]]) -> None:
    batch: Batch = make_batch(pairs, 51, 51)
    for row, (source, target) in enumerate(pairs):
        assert batch.source.ids_BS[row][batch.source.mask_BS[row]].tolist() == [*source, EOS]
        real = batch.target_mask_BT[row]
        assert batch.target_input_BT[row][real].tolist() == [SOS, *target]
        assert batch.target_output_BT[row][real].tolist() == [*target, EOS]
        assert set(batch.target_input_BT[row][~real].tolist()) <= {51}
        assert set(batch.target_output_BT[row][~real].tolist()) <= {51}
    assert batch.index_B.tolist() == list(range(len(pairs)))
    assert (batch.source_tokens, batch.target_tokens) == (batch.source.mask_BS.sum(), batch.target_mask_BT.sum())


def test_make_sources() -> None:
    source = make_sources([[5], [], [6, 7]], pad=9)
    assert source.ids_BS.tolist() == [[5, EOS, 9], [EOS, 9, 9], [6, 7, EOS]]
    assert source.mask_BS.sum(1).tolist() == [2, 1, 3]


def test_moving_to_a_device_moves_everything() -> None:
    batch = make_batch([([5], [6])], 9, 9).to("meta")
    tensors = [batch.source.ids_BS, batch.source.mask_BS, batch.target_input_BT, batch.target_output_BT]
    assert {tensor.device.type for tensor in (*tensors, batch.target_mask_BT, batch.index_B)} == {"meta"}
    assert (batch.source_tokens, batch.target_tokens) == (2, 2)


def test_rows_are_read_longest_first_within_the_budget():
    lengths = [3, 0, 5, 2, 5, 9]
    assert in_batches(lengths, 10) == [[5], [2, 4], [0, 3, 1]]
    assert in_batches(lengths, 10, skip_empty=True) == [[5], [2, 4], [0, 3]]
    assert in_batches(lengths, 4) == [[5], [2], [4], [0], [3, 1]]  # a row longer than the budget is alone
    assert in_batches([], 10) == in_batches([0, 0], 10, skip_empty=True) == []


def test_documents_join_into_tensors():
    batch = make_documents([[[5, 6], [7]], [[8]]], pad=99, labels=[[1], [0, 2]], count=3, index=np.array([4, 2]))
    assert batch.ids_BUS.tolist() == [[[5, 6], [7, 99]], [[8, 99], [99, 99]]]
    assert batch.mask_BUS.tolist() == [[[True, True], [True, False]], [[True, False], [False, False]]]
    assert batch.target_BL.tolist() == [[0, 1, 0], [1, 0, 1]]
    assert batch.target_tokens == 2
    part = batch.rows(torch.tensor([1]))
    assert part.ids_BUS.shape == (1, 2, 2)
    assert part.index_B.tolist() == [2]


def test_windows_hold_whole_sentences():
    documents = [[[1, 2, 3], [4, 5], [6, 7, 8, 9], [1]], [[2]]]
    batch = make_documents(documents, pad=0, window=5)
    assert batch.ids_BUS[0].tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 1]]
    assert batch.mask_BUS[1].sum() == 1
