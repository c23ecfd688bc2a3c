"""Words from their pieces."""

import torch

from regard.layers.char_cnn import CharacterWordEncoder, fingerprint, mix
from tests.toys import close


def reader(word_dropout: float = 0.0) -> CharacterWordEncoder:
    torch.manual_seed(0)
    return CharacterWordEncoder(20, piece=4, spelling=6, words=50, embedding=5, word_dropout=word_dropout)


def words(*pieces: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, pieces))
    ids = torch.tensor([[one + [9] * (longest - len(one)) for one in pieces]])
    return ids, torch.tensor([[[True] * len(one) + [False] * (longest - len(one)) for one in pieces]])


def test_the_spelling_is_the_strongest_of_three_neighbours() -> None:
    """By hand: zeros stand beside the first piece and the last."""
    read = reader()
    ids, mask = words([3, 4, 5], [7])
    weight, bias = read.convolution.weight, read.convolution.bias
    zero = torch.zeros(4)
    for place, pieces in enumerate(([3, 4, 5], [7])):
        padded = [zero, *(read.char_embedding.weight[piece] for piece in pieces), zero]
        answers = [torch.relu(weight @ torch.cat(padded[at : at + 3]) + bias) for at in range(len(pieces))]
        close(read(ids, mask)[0, place, :6], torch.stack(answers).amax(0), 1e-6)


def test_words_with_the_same_pieces_are_the_same_and_others_are_not() -> None:
    found = reader().eval()(*words([3, 4], [4, 3], [3, 4], [3], [3, 4, 4]))[0]
    assert torch.equal(found[0], found[2])
    for other in (1, 3, 4):
        assert (found[0] - found[other]).abs()[6:].max() > 1e-3  # whole words alone tell them apart


def test_fingerprints_differ_and_places_are_spread_evenly() -> None:
    ids = torch.cartesian_prod(*[torch.arange(20)] * 3)
    keys = fingerprint(ids, torch.ones_like(ids, dtype=torch.bool))
    assert len(keys.unique()) == len(ids)
    counts = torch.bincount(mix(keys, 0x1D8E4E27C47D124F) % 50, minlength=50)
    assert counts.min() > 100  # 160 on average
    assert counts.max() < 220


def test_hiding_words_leaves_their_spelling() -> None:
    read = reader(0.5).train()
    ids, mask = words(*([3, 4, 5],) * 200)
    found = read(ids, mask)[0]
    hidden = (found[:, 6:] == 0).all(1)
    assert 60 < int(hidden.sum()) < 140
    assert (found[:, :6] == found[0, :6]).all()
    kept = found[~hidden][0, 6:]
    close(kept, 2 * read.eval()(ids, mask)[0, 0, 6:], 1e-5)  # scaled up, so that the mean stays
