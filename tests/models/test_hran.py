"""HRAN against its paper's formulas, written out word by word, and its own promises."""

import dataclasses

import pytest
import torch

from regard import models
from regard.errors import SettingsError
from regard.layers.hooks import listen, trace
from regard.models import settings_of
from regard.models.hran import find_utterances
from tests.toys import MARKER, TOYS, Sentences, build, close, tokens

W1, W2, W3 = 5, 6, 7


def source(*rows):
    size = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (size - len(row))] for row in rows])
    return Sentences(ids, torch.arange(size) < torch.tensor([len(row) for row in rows])[:, None])


CONTEXTS = source([W1, W2, MARKER, W3, MARKER, W1, W3, 0], [W2, 0], [MARKER, W1, 0])


def test_utterances_are_found_from_the_last_to_the_first():
    layout = find_utterances(*CONTEXTS, MARKER)
    none = 8  # the length of the source: no word
    assert layout.place_BUL.tolist() == [
        [[5, 6, 7], [3, 4, none], [0, 1, 2]],
        [[0, 1, none], [none] * 3, [none] * 3],
        [[1, 2, none], [0, none, none], [none] * 3],
    ]
    assert layout.turn_BS[0].tolist() == [2, 2, 2, 1, 1, 0, 0, 0]
    assert layout.within_BS[0].tolist() == [0, 1, 2, 0, 1, 0, 1, 2]


@torch.no_grad()
def test_the_first_step_is_the_papers():
    """Section 3.2 of Xing et al.: from the last utterance back, e = v tanh(W [s; l] + U h), r = sum a h, l = GRU(r, l);
    then over the utterances e' = v' tanh(W' s + U' l), c = sum b l.
    """
    model = build(TOYS["hran"])
    context = source(CONTEXTS.ids_BS[0].tolist())
    decoder, layer = model.decoder, model.encoder.words
    utterances = [[W1, W2, MARKER], [W3, MARKER], [W1, W3, 0]]
    states = []
    for words in utterances:
        x = model.encoder.embed(torch.tensor(words))
        ahead, back = [], []
        forward, backward = (cell.start(1) for cell in layer.cells)
        for word in x:
            forward = layer.cells[0](layer.cells[0].input(word[None]), forward)
            ahead.append(forward[0][0])
        for word in reversed(x):
            backward = layer.cells[1](layer.cells[1].input(word[None]), backward)
            back.insert(0, backward[0][0])
        states.append(torch.cat([torch.stack(ahead), torch.stack(back)], dim=-1))
    s = torch.cat([forward[0][0], backward[0][0]])  # the last states of the last utterance
    score, above, levels = decoder.word_attention.score, decoder.initial_utterance_state, []
    alphas = []
    for h in reversed(states):
        e = score.score(torch.tanh(score.query(torch.cat([s, above])) + score.key(h)))[:, 0]
        alphas.append(e.softmax(0))
        r = alphas[-1] @ h
        ((above,),) = decoder.utterance_encoder(decoder.utterance_encoder.input(r[None]), (above[None],))
        levels.append(above)
    level = torch.stack(levels)
    score = decoder.utterance_attention.score
    beta = score.score(torch.tanh(score.query(s) + score.key(level)))[:, 0].softmax(0)
    c = beta @ level
    start = torch.tensor([[2]])
    memory = model.encode(context)
    close(memory.extra.first_BD[0], s)
    with trace(model) as tape:
        model.step(start, model.start(memory), memory)
    close(decoder.context(decoder._prepare(memory.extra.turns, 1), memory.extra.first_BD)[0], c)
    word, utterance, both = (tape[f"decoder.{name}"].weights_BHTS[0, 0, 0] for name in ("word", "utterance", "cross"))
    close(word, torch.cat([alphas[2], alphas[1], alphas[0]]))
    expected = torch.zeros(8)
    expected[[7, 4, 2]] = beta  # at the tokens that close the utterances, the last one first
    close(utterance, expected)
    close(both, torch.cat([alphas[2] * beta[2], alphas[1] * beta[1], alphas[0] * beta[0]]))


@torch.no_grad()
def test_words_sum_to_one_in_each_utterance_and_utterances_in_all():
    model = build(TOYS["hran"])
    with trace(model) as tape:
        model(CONTEXTS, tokens(3, 4))
    word, utterance = tape["decoder.word"].weights_BHTS, tape["decoder.utterance"].weights_BHTS
    turns = find_utterances(*CONTEXTS, MARKER).turn_BS
    for row, count in enumerate([3, 1, 2]):
        for turn in range(count):
            there = (turns[row] == turn) & CONTEXTS.mask_BS[row]
            close(word[row, 0, :, there].sum(-1), torch.ones(4))
        close(utterance[row].sum(-1), torch.ones(1, 4))
        assert (utterance[row, 0, 0] > 0).sum() == count


@torch.no_grad()
def test_utterances_are_read_on_their_own_and_their_order_matters():
    model, target = build(TOYS["hran"]), tokens(1, 4)
    one, other = source([W1, W2, MARKER, W3, 0]), source([W3, W2, MARKER, W3, 0])
    close(model.encode(one).states_BSD[0, 3:], model.encode(other).states_BSD[0, 3:])  # not read across the marker
    swapped = source([W3, MARKER, W1, W2, 0])
    assert (model(one, target) - model(swapped, target)).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("level", ["word", "utterance", "cross"])
def test_weights_that_are_replaced_are_used(level):
    """All on the first utterance's first word, by whichever tap."""
    model, target = build(TOYS["hran"]), tokens(1, 4)
    context = source(CONTEXTS.ids_BS[0].tolist())

    def replace(name, weights):
        only = torch.zeros_like(weights)
        place = {"word": 0, "utterance": 2, "cross": 0}[level]
        there = weights[..., place] > 0
        only[..., place] = there.float()
        return torch.where(there[..., None], only, weights)

    with listen(model, f"decoder.{level}", replace), trace(model) as tape:
        changed = model(context, target)
    assert (changed - model(context, target)).abs().max() > 1e-4
    weights = tape[f"decoder.{level}"].weights_BHTS
    assert (weights[..., {"word": 0, "utterance": 2, "cross": 0}[level]] == 1).all()
    if level == "cross":
        close(tape["decoder.utterance"].weights_BHTS[..., 2], torch.ones(1, 1, 4))
        close(tape["decoder.word"].weights_BHTS[..., 0], torch.ones(1, 1, 4))


def test_embeddings_are_tied_as_asked():
    sizes = {}
    for tie in ("all", "target", "none"):
        model = models.build(
            dataclasses.replace(TOYS["hran"], tie_embeddings=tie), source_vocabulary=19, target_vocabulary=19
        )
        sizes[tie] = sum(parameter.numel() for parameter in model.parameters())
    assert sizes["none"] - sizes["target"] == sizes["target"] - sizes["all"] == 19 * 16
    with pytest.raises(SettingsError, match="needs one vocabulary"):
        models.build(settings_of("hran"), source_vocabulary=19, target_vocabulary=21)
