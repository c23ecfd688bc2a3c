"""Token identifiability on states made by hand, on toy models and over text."""

from __future__ import annotations

import json

import pytest
import torch

from regard import config, models
from regard.analysis import identifiability as module
from regard.analysis.identifiability import (
    TokenStates,
    encoder_states,
    fit_map,
    identifiability,
    identified,
    share_with_interval,
)
from regard.errors import ModelError, SettingsError
from regard.tasks.translate.inspect import explain as identify
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import train_tokenizer
from tests.toys import TOYS, build, close, sentences, toy

WIDTH = 8


def made_up(seed: int, sentences: int = 60, length: int = 6) -> TokenStates:
    """Inputs, and states that are the same, turned, parted into positive and negative, and nothing but noise."""
    inputs_ND = torch.randn(sentences * length, WIDTH, generator=torch.Generator().manual_seed(seed))
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0)))[0]
    states = {
        "encoder.embed": inputs_ND,
        "encoder.0": 2.0 * inputs_ND @ turn + 1.0,
        "encoder.1": torch.cat([inputs_ND.relu(), (-inputs_ND).relu()], dim=-1),
        "encoder.top": torch.randn(inputs_ND.shape, generator=torch.Generator().manual_seed(seed + 100)),
    }
    return TokenStates(states, torch.arange(len(inputs_ND)) % 20, (length,) * sentences)


@pytest.fixture(scope="module")
def found() -> module.Identifiability:
    return identifiability(made_up(1), made_up(2), steps=20)


@pytest.mark.parametrize("distance", module.DISTANCES)
def test_maps_undo_what_they_can(distance: str, found: module.Identifiability) -> None:
    """The identity is lost after a turn, the other maps are not; noise stays at chance."""
    curves = {curve.map: curve.share for curve in found.curves if curve.distance == distance}
    assert all(curves[kind]["encoder.embed"].value == 1.0 for kind in module.MAPS)
    assert curves["identity"]["encoder.0"].value < 0.5
    for kind in ("linear", "mlp"):
        assert curves[kind]["encoder.0"].value == 1.0
        assert curves[kind]["encoder.1"].value == 1.0
    assert curves["linear"]["encoder.top"].value == pytest.approx(found.chance, abs=0.08)
    assert "encoder.1" not in curves["identity"]  # twice as wide as the inputs: there is no identity


def test_the_same_seed_gives_the_same_numbers_and_disturbs_nobody() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = identifiability(made_up(1), made_up(2), seed=3, steps=2)
    assert torch.equal(torch.rand(1), expected)
    with torch.no_grad():  # whatever the caller does with gradients
        assert identifiability(made_up(1), made_up(2), seed=3, steps=2) == first


def test_nearest_in_the_sentence_by_hand() -> None:
    """Two sentences of two tokens. By angle the third state belongs to the other input, by distance to its own."""
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 1.0], [0.2, 0.4]])
    states = torch.tensor([[2.0, 0.1], [0.1, 3.0], [2.5, 2.6], [0.2, 0.4]])
    read = TokenStates({"encoder.embed": inputs}, torch.arange(4), (2, 2))
    assert identified(states, read, None, "cosine").tolist() == [True, True, False, True]
    assert identified(states, read, None, "l2").tolist() == [True, True, True, True]


def test_a_twin_counts_as_the_token_itself() -> None:
    inputs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    read = TokenStates({"encoder.embed": inputs}, torch.arange(3), (3,))
    assert identified(inputs, read, None, "l2").tolist() == [True, True, True]


def test_nearest_in_the_vocabulary() -> None:
    table, ids = torch.eye(5), torch.tensor([3, 1, 4])
    mapped = torch.tensor([[0, 0, 0.1, 0.9, 0], [1.0, 0.2, 0, 0, 0], [0, 0, 0, 0, 2.0]])
    read = TokenStates({"encoder.embed": mapped}, ids, (3,))
    for distance in module.DISTANCES:
        assert identified(mapped, read, table, distance).tolist() == [True, False, True]


def test_the_linear_map_is_least_squares() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(200, 5) * 3 + 1, torch.randn(200, 4)
    ones = torch.ones(200, 1)
    best = torch.linalg.lstsq(torch.cat([x, ones], 1), y).solution
    close(fit_map("linear", "l2", x, y)(x), torch.cat([x, ones], 1) @ best, 1e-3)


@pytest.mark.parametrize("distance", module.DISTANCES)
def test_the_perceptron_undoes_a_bend_and_the_linear_map_does_not(distance: str) -> None:
    """On rows that neither has seen, the perceptron leaves much less of the error."""
    torch.manual_seed(0)
    y = torch.randn(3000, 4)
    x = torch.cat([y.sign() + 0.1 * y, y.square()], dim=-1)
    left = {}
    for kind in ("linear", "mlp"):
        made = fit_map(kind, distance, x[:2000], y[:2000])(x[2000:])
        if distance == "cosine":
            left[kind] = 1.0 - torch.cosine_similarity(made, y[2000:]).mean().item()
        else:
            left[kind] = (made - y[2000:]).square().mean().item()
    assert left["mlp"] < 0.6 * left["linear"]


def test_intervals() -> None:
    """All right: no width. Half right, at random: about twice 1.96 sqrt(0.25 / 400) = 0.098 wide."""
    torch.manual_seed(0)
    assert share_with_interval(torch.ones(40, dtype=torch.bool), [4] * 10) == (1.0, 1.0, 1.0)
    found = share_with_interval(torch.rand(400) < 0.5, [1] * 400)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(0.098, abs=0.01)


def test_tokens_of_one_sentence_are_no_strangers() -> None:
    """Sentences that are right or wrong as a whole tell less than as many tokens would."""
    torch.manual_seed(0)
    right = (torch.arange(40) % 2 == 0).repeat_interleave(10)
    whole, loose = share_with_interval(right, [10] * 40), share_with_interval(right, [1] * 400)
    assert whole.high - whole.low > 2 * (loose.high - loose.low)


def test_as_numbers(found: module.Identifiability) -> None:
    numbers = json.loads(json.dumps(found.as_dict()))
    assert numbers["places"] == ["encoder.embed", "encoder.0", "encoder.1", "encoder.top"]
    assert len(numbers["curves"]) == 6
    assert numbers["curves"][0]["map"] == "identity"
    assert numbers["curves"][0]["value"][0] == 1.0
    assert numbers["curves"][0]["low"][2] is None
    assert (numbers["tokens"], numbers["sentences"], numbers["chance"]) == (360, 60, 0.1667)


@pytest.mark.parametrize("arch", ["transformer-tiny", "bahdanau"])
def test_states_of_a_model(arch: str) -> None:
    """Padding is left out; places in order; at the embedding itself all tokens are identified."""
    model, source = build(TOYS[arch]), sentences([5, 3])
    found = encoder_states(model, [source, sentences([2])])
    assert found.lengths == (5, 3, 2)
    assert torch.equal(found.ids_N[:8], source.ids_BS[source.mask_BS])
    assert next(iter(found.states)) == "encoder.embed"
    close(found.states["encoder.top"][:8], model.encode(source).states_BSD[source.mask_BS].detach())
    assert identified(found.embedded_ND, found, None, "cosine").all()


def test_the_whole_vocabulary() -> None:
    """Among 20 vectors without a place; the noise finds one in 20."""
    states, test = made_up(1, 300), made_up(2)
    torch.manual_seed(0)
    table = torch.randn(20, WIDTH)
    train = TokenStates({"encoder.embed": table[states.ids_N] + 0.01}, states.ids_N, states.lengths)
    tried = TokenStates({"encoder.embed": table[test.ids_N] + 0.01}, test.ids_N, test.lengths)
    found = identifiability(train, tried, vocabulary_VD=table, steps=2)
    assert found.candidates == "vocabulary"
    assert found.chance == 1 / 20
    assert all(curve.share["encoder.embed"].value == 1.0 for curve in found.curves)


@pytest.fixture(scope="module")
def translator() -> Translator:
    """A small untrained model over words."""
    words = train_tokenizer(LINES, config.TokenizerSettings(kind="word", vocab_size=200), seed=1)
    torch.manual_seed(0)
    return Translator(
        models.build(toy("transformer-tiny"), source_vocabulary=words.size, target_vocabulary=words.size).eval(),
        words,
        words,
    )


LINES = [f"{who} {does} {what}" for who in ("we", "you", "they") for does in ("see", "hear") for what in "abcdefgh"]


def test_over_text(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal lines count once, and none is on both sides: 48 different ones make 34 and 14, of four tokens each."""
    seen: list[TokenStates] = []

    def watch(train: TokenStates, test: TokenStates, **options: object) -> module.Identifiability:
        seen.extend([train, test])
        return identifiability(train, test, steps=1, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(identify, "identifiability", watch)
    found = identify.identify(translator, [*LINES, "", *LINES])
    assert (found.sentences, found.tokens) == (14, 14 * 4)
    train, test = ({tuple(ids.tolist()) for ids in part.ids_N.split(4)} for part in seen)
    assert (len(train), len(test), len(train & test)) == (34, 14, 0)
    assert all(curve.share["encoder.embed"].value == 1.0 for curve in found.curves if curve.map == "identity")
    whole = identify.identify(translator, LINES, whole_vocabulary=True)
    assert whole.chance == 1 / translator.source.size


def test_too_little_text(translator: Translator) -> None:
    with pytest.raises(SettingsError, match="needs 20 different held-out lines, not 3"):
        identify.identify(translator, LINES[:3] * 10)


def test_nothing_to_identify() -> None:
    with pytest.raises(ModelError, match="no hidden states"):
        encoder_states(build(TOYS["transformer-tiny"]), [])
