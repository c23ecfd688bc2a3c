"""The tables of names: both ways, with nothing missing and nothing left over."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import models
from regard.errors import RunError
from regard.export.marian import pairs, stream_order
from regard.export.weights import LayerNames, NamePair, pairs_of, to_ours, to_theirs
from regard.layers.positional_encoding import sinusoids
from regard.models.transformer_settings import TransformerSettings

PAIRS = [NamePair("joined", ("first", "second"), (1,)), NamePair("norm", ("scale",), (0,))]


def test_a_layer_becomes_its_pairs() -> None:
    layers = [LayerNames("self_attention", ("q.", "k."), "reads"), LayerNames("around", ("ln.",), "norm")]
    assert list(pairs_of("our.", "their.", layers, ("gamma", "beta"))) == [
        NamePair("our.self_attention.weight", ("their.q.weight", "their.k.weight"), (1,)),
        NamePair("our.self_attention.bias", ("their.q.bias", "their.k.bias"), ()),
        NamePair("our.around.weight", ("their.ln.gamma",), (0,)),
        NamePair("our.around.bias", ("their.ln.beta",), (0,)),
    ]


@given(st.permutations(range(6)))
def test_there_and_back(order: list[int]) -> None:
    ours = {"joined": torch.randn(4, 6), "norm": torch.randn(6)}
    theirs = to_theirs(PAIRS, ours, torch.tensor(order))
    assert torch.equal(theirs["second"], ours["joined"][2:, order])
    assert torch.equal(theirs["scale"], ours["norm"][order])
    back = to_ours(PAIRS, theirs, torch.tensor(order), where="there")
    assert all(torch.equal(back[name], ours[name]) for name in ours)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"second": None}, 'there: the weights "second" are missing'),
        ({"extra": 1}, 'there: no model with these settings has the weights "extra"'),
    ],
)
def test_missing_and_unused_names(change: dict[str, int | None], message: str) -> None:
    theirs = {"first": torch.zeros(2, 6), "second": torch.zeros(2, 6), "scale": torch.zeros(6)}
    changed = {**theirs, **{name: torch.zeros(1) for name, value in change.items() if value}}
    for name in (name for name, value in change.items() if value is None):
        del changed[name]
    with pytest.raises(RunError, match=message):
        to_ours(PAIRS, changed, where="there")
    with pytest.raises(RunError, match='the run: the weights "joined" are missing'):
        to_theirs(PAIRS, {"norm": torch.zeros(6)})


def test_marian_counts_sines_first() -> None:
    ours = sinusoids(3, 8)[:, stream_order(8)]
    assert torch.equal(ours[0], torch.tensor([0.0] * 4 + [1.0] * 4))  # at the first place sin 0 and cos 0
    assert ours[1, 0] == pytest.approx(0.841, abs=1e-3)  # sin 1, as the lecture prints it
    assert ours[1, 4] == pytest.approx(0.540, abs=1e-3)  # cos 1


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_the_table_names_every_weight_once(tie: str) -> None:
    settings = TransformerSettings(
        encoder_layers=2, decoder_layers=3, width=8, heads=2, ffn_width=12, tie_embeddings=tie
    )  # type: ignore[arg-type]
    table = list(pairs(settings))
    names = [pair.ours for pair in table]
    assert sorted(names) == sorted(
        dict(models.build(settings, source_vocabulary=9, target_vocabulary=9).named_parameters())
    )
    theirs = [name for pair in table for name in pair.theirs]
    assert len(theirs) == len(set(theirs))
