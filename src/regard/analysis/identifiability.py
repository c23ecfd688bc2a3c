"""Token identifiability: whether the input token can be recovered from its hidden state at layer l.

After "On Identifiability in Transformers", Brunner et al. 2020: a map from hidden states to input embeddings is applied
to the state. The token is identified if the candidate nearest to the result is the token's own input embedding. The
candidates are the input embeddings of the sentence (with positions, as in the paper), or the embeddings of the whole
vocabulary (without positions), which is harder. The map is the identity, a linear map, or an MLP with one hidden layer.
The distance is cosine or L2; for each distance, a map is trained to minimize this distance.

Maps are trained on other text than they are tested on, and on other text than the model was trained on. Unlike in the
paper, the linear map for L2 is solved (ridge regression), not trained by gradient descent. The other maps start from
this solution; an MLP is a linear map plus a hidden layer that starts at zero. A model of the demo's size takes seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError
from regard.layers.hooks import trace_states
from regard.models.base import Seq2Seq, Source

MAPS = ("identity", "linear", "mlp")
DISTANCES = ("cosine", "l2")

STEPS, ROWS, RATE = 300, 256, 5e-3
"""Training of a map: steps of Adam, tokens per step, initial learning rate (it decreases to zero)."""
RIDGE = 1e-4  # ridge penalty of the linear map, relative to the mean variance of its input
RESAMPLES = 1000  # number of bootstrap samples


@dataclass(frozen=True)
class TokenStates:
    """Hidden states [N, D] of the N tokens of many sentences, for each layer of encoder or decoder."""

    states: dict[str, Tensor]
    """States [N, D] by layer, e.g. "encoder.0"; the first layer is the embedding."""
    ids_N: Tensor
    lengths: tuple[int, ...]  # number of tokens of each sentence, in order

    @property
    def embedded_ND(self) -> Tensor:
        return next(iter(self.states.values()))


@torch.no_grad()
def encoder_states(model: Seq2Seq, sources: Iterable[Source]) -> TokenStates:
    """Encode batches of sentences, and collect the states of all tokens, including end tokens, without padding."""
    kept: dict[str, list[Tensor]] = defaultdict(list)
    ids, lengths = [], []
    for source in sources:
        with trace_states(model, "encoder.*") as states:
            model.encode(source)
        for name, state_BTD in states.items():
            kept[name].append(state_BTD[source.mask_BS].cpu().float())
        ids.append(source.ids_BS[source.mask_BS].cpu())
        lengths += source.mask_BS.sum(1).tolist()
    if not kept:
        raise ModelError("there are no hidden states; pass at least one sentence, and a model with an encoder")
    return TokenStates({name: torch.cat(parts) for name, parts in kept.items()}, torch.cat(ids), tuple(lengths))


# ---------------------------------------------------------------------------------------------------------------------
# Maps from states back to inputs


class StateProjection(nn.Module):
    """A map from hidden states to input embeddings: standardization, then a linear map, plus an optional MLP."""

    mean_D: Tensor
    spread_D: Tensor

    def __init__(self, x_ND: Tensor, y_NE: Tensor, inner: int = 0):
        """Solve the linear map by ridge regression of the input embeddings y on the states x (N tokens each).

        `inner` is the width of the hidden layer of the MLP, whose output starts at zero; 0 means no MLP.
        """
        super().__init__()
        self.register_buffer("mean_D", x_ND.mean(0))
        self.register_buffer("spread_D", x_ND.std(0, correction=0).clamp(min=1e-6))
        inputs, outputs = x_ND.shape[1], y_NE.shape[1]
        self.linear = nn.Linear(inputs, outputs)
        self.hidden = nn.Sequential(nn.Linear(inputs, inner), nn.GELU(), nn.Linear(inner, outputs)) if inner else None
        with torch.no_grad():
            z_ND = ((x_ND - self.mean_D) / self.spread_D).double()
            squares_DD = z_ND.mT @ z_ND / len(z_ND) + RIDGE * torch.eye(inputs, dtype=torch.float64)
            solution_DE = torch.linalg.solve(squares_DD, z_ND.mT @ (y_NE - y_NE.mean(0)).double() / len(z_ND))
            self.linear.weight.copy_(solution_DE.mT)
            self.linear.bias.copy_(y_NE.mean(0))
            if self.hidden:
                for parameter in self.hidden[-1].parameters():
                    parameter.zero_()

    def forward(self, x_ND: Tensor) -> Tensor:
        z_ND = (x_ND - self.mean_D) / self.spread_D
        y_NE: Tensor = self.linear(z_ND)
        return y_NE + self.hidden(z_ND) if self.hidden else y_NE


@torch.enable_grad()
def fit_map(kind: str, distance: str, x_ND: Tensor, y_NE: Tensor, steps: int = STEPS) -> nn.Module:
    """Train a map from hidden states x to input embeddings y of width E, and return it.

    `kind` is one of MAPS; `distance`, one of DISTANCES, is minimized with `steps` steps of Adam. Uses torch's global
    random generator.
    """
    if kind == "identity":
        return nn.Identity()
    state_map = StateProjection(x_ND, y_NE, inner=2 * y_NE.shape[1] if kind == "mlp" else 0)
    if kind == "linear" and distance == "l2":
        return state_map  # the exact optimum
    optimizer = torch.optim.Adam(state_map.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    spread = y_NE.var(0, correction=0).mean()
    for _ in range(steps):
        rows_R = torch.randint(len(x_ND), (ROWS,))
        made_RE, wanted_RE = state_map(x_ND[rows_R]), y_NE[rows_R]
        if distance == "cosine":
            loss = 1.0 - F.cosine_similarity(made_RE, wanted_RE).mean()
        else:
            loss = F.mse_loss(made_RE, wanted_RE) / spread
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return state_map.eval()


def identified(mapped_ND: Tensor, test: TokenStates, vocabulary_VD: Tensor | None, distance: str) -> Tensor:
    """For each of N tokens, whether the candidate nearest to its mapped state is its own input embedding.

    `mapped_ND` are the states of the tokens of `test`, after the map. The candidates are the rows of `vocabulary_VD`
    or, if this is None, the input embeddings of the same sentence.
    """
    if vocabulary_VD is not None:
        rows = mapped_ND.split(ROWS)
        return torch.cat([_nearest(rows_ND, vocabulary_VD, distance) for rows_ND in rows]) == test.ids_N
    pairs = zip(mapped_ND.split(test.lengths), test.embedded_ND.split(test.lengths), strict=True)
    return torch.cat([(x_TD[_nearest(mapped_TD, x_TD, distance)] == x_TD).all(-1) for mapped_TD, x_TD in pairs])


def _nearest(x_ND: Tensor, y_MD: Tensor, distance: str) -> Tensor:
    """For each of the N rows of x, the index of the nearest of the M rows of y; `distance` is one of DISTANCES."""
    if distance == "cosine":
        return (F.normalize(x_ND, dim=-1) @ F.normalize(y_MD, dim=-1).mT).argmax(-1)
    return torch.cdist(x_ND, y_MD).argmin(-1)


class ConfidenceInterval(NamedTuple):
    """A share of tokens, and the lower and upper end of its 95 % confidence interval."""

    value: float
    low: float
    high: float


def share_with_interval(right_N: Tensor, lengths: Sequence[int]) -> ConfidenceInterval:
    """The share of tokens that are identified (True in `right_N`), and its 95 % interval by a bootstrap over sentences.

    `lengths` are the numbers of tokens of the sentences. Whole sentences are drawn, because the tokens of one sentence
    are not independent. Uses torch's global random generator.
    """
    length_B = torch.tensor(lengths)
    right_B = torch.stack([part.sum() for part in right_N.split(lengths)])
    drawn_RB = torch.randint(len(length_B), (RESAMPLES, len(length_B)))
    shares_R = right_B[drawn_RB].sum(1).double() / length_B[drawn_RB].sum(1)
    low, high = shares_R.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return ConfidenceInterval(right_N.double().mean().item(), low, high)


# ---------------------------------------------------------------------------------------------------------------------
# Curves over layers


class IdentifiabilityCurve(NamedTuple):
    """The share of identified tokens at each layer, for one kind of map and one distance."""

    map: str
    distance: str
    share: dict[str, ConfidenceInterval]  # the identity map has no entry where states and inputs differ in width


@dataclass(frozen=True)
class Identifiability:
    """The result of `identifiability`: shares of identified tokens at each layer, for every map and distance."""

    places: tuple[str, ...]  # names of the layers
    curves: tuple[IdentifiabilityCurve, ...]
    candidates: str  # "sentence" or "vocabulary"
    chance: float  # expected share of random guessing
    tokens: int
    sentences: int
    seed: int

    def __str__(self) -> str:
        """A table of the shares: one line per map and distance, one column per layer."""
        lines = [f"{'tokens identified by':24}" + "".join(f"{place.partition('.')[2]:>8}" for place in self.places)]
        for curve in self.curves:
            shares = (curve.share.get(place) for place in self.places)
            cells = (f"{share.value:8.3f}" if share else f"{'-':>8}" for share in shares)
            lines.append(f"{f'{curve.map}, {curve.distance}':24}" + "".join(cells))
        among = f"among the {self.candidates}; chance {self.chance:.4f}"
        lines.append(f"{self.tokens:,} tokens of {self.sentences:,} sentences, {among}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The result as values for JSON: "curves" has one entry per curve, with None for layers that have no value."""
        curves = []
        for curve in self.curves:
            points = [curve.share.get(place) for place in self.places]
            columns = {
                field: [None if point is None else round(getattr(point, field), 4) for point in points]
                for field in ConfidenceInterval._fields
            }
            curves.append({"map": curve.map, "distance": curve.distance, **columns})
        return vars(self) | {"places": list(self.places), "curves": curves, "chance": round(self.chance, 4)}


def identifiability(
    train: TokenStates, test: TokenStates, *, vocabulary_VD: Tensor | None = None, seed: int = 1, steps: int = STEPS
) -> Identifiability:
    """Train maps from hidden states to input embeddings on `train`; measure the share of identified tokens in `test`.

    A token is identified if the candidate nearest to its mapped state is its own embedding. The candidates are the
    input embeddings of its sentence or, if `vocabulary_VD` is given, the embeddings of the whole vocabulary. One map is
    trained, with `steps` steps, for each layer, each of MAPS and each of DISTANCES.
    """
    curves = []
    wanted_ND = train.embedded_ND if vocabulary_VD is None else vocabulary_VD[train.ids_N]
    with torch.random.fork_rng(devices=[]):
        for kind, distance in product(MAPS, DISTANCES):
            torch.manual_seed(seed)
            share = {}
            for place, state_ND in test.states.items():
                if kind == "identity" and state_ND.shape[1] != wanted_ND.shape[1]:
                    continue
                state_map = fit_map(kind, distance, train.states[place], wanted_ND, steps)
                with torch.no_grad():
                    right_N = identified(state_map(state_ND), test, vocabulary_VD, distance)
                share[place] = share_with_interval(right_N, test.lengths)
            curves.append(IdentifiabilityCurve(kind, distance, share))
    sentences, tokens = len(test.lengths), len(test.ids_N)
    candidates, chance = (
        ("sentence", sentences / tokens) if vocabulary_VD is None else ("vocabulary", 1 / len(vocabulary_VD))
    )
    return Identifiability(tuple(test.states), tuple(curves), candidates, chance, tokens, sentences, seed)
