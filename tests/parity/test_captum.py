"""Integrated gradients against Captum's, on the same model, path and steps."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from regard.analysis.attribution import EmbeddedInput, TokenPair, attribute, embed, embed_absent, log_probs
from tests.toys import TOYS, VARIANTS, build, close, sentences, tokens

RULES = {"gauss": "gausslegendre", "midpoint": "riemann_middle"}
MODELS = {
    "transformer-tiny": TOYS["transformer-tiny"],  # norm before, tied embeddings
    "transformer-small": TOYS["transformer-small"],  # norm after
    "rotary positions": VARIANTS["rotary positions"],
    "bahdanau": TOYS["bahdanau"],
}


@pytest.fixture(scope="module")
def captum() -> ModuleType:
    return pytest.importorskip("captum.attr", reason="captum is not installed; it is in the dev extra")


@pytest.mark.parametrize("baseline", [None, (1, 1)], ids=["zero", "unk"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", MODELS)
def test_integrated_gradients(captum: ModuleType, name: str, rule: str, baseline: tuple[int, int] | None) -> None:
    """The path and its ends are ours; the steps, their weights, the gradients and the sum are Captum's."""
    model = build(MODELS[name])
    target = tokens(1, 5)
    pair = TokenPair(sentences([6]), target[:, :-1], target[:, 1:])
    found = attribute(model, *pair, "integrated", steps=24, rule=rule, baseline=baseline)

    def forward(source_NSD: Tensor, target_NTD: Tensor) -> Tensor:
        return log_probs(model, pair, EmbeddedInput(source_NSD, target_NTD))

    theirs = captum.IntegratedGradients(forward)
    read, absent = tuple(embed(model, pair)), tuple(embed_absent(model, pair, baseline))
    gaps = []
    for t in range(4):
        (from_source, from_target), gap = theirs.attribute(
            read, baselines=absent, target=t, n_steps=24, method=RULES[rule], return_convergence_delta=True
        )
        close(found.source_TS[t], from_source[0].sum(-1).float(), 1e-4)
        close(found.target_TT[t], from_target[0].sum(-1).float(), 1e-4)
        gaps.append(gap.item())
    assert found.gap_T is not None
    close(found.gap_T, -torch.tensor(gaps), 1e-4)  # theirs is what the sum has too much, ours what it lacks
    assert found.source_TS.abs().max() > 1e-2


@pytest.mark.parametrize("name", MODELS)
def test_gradient_times_input(captum: ModuleType, name: str) -> None:
    """With a baseline of zeros and no positions in the way, ours is Captum's; else it is theirs of the token's part."""
    model = build(MODELS[name])
    target = tokens(1, 5)
    pair = TokenPair(sentences([6]), target[:, :-1], target[:, 1:])
    read, absent = embed(model, pair), embed_absent(model, pair, None)

    def forward(source_part: Tensor, target_part: Tensor) -> Tensor:
        return log_probs(model, pair, EmbeddedInput(absent.source_NSD + source_part, absent.target_NTD + target_part))

    parts = tuple(x - nothing for x, nothing in zip(read, absent, strict=True))
    found = attribute(model, *pair, "gradient")
    for t in range(4):
        inputs = tuple(part.clone().requires_grad_() for part in parts)
        from_source, from_target = captum.InputXGradient(forward).attribute(inputs, target=t)
        close(found.source_TS[t], from_source[0].sum(-1).detach(), 1e-4)
        close(found.target_TT[t], from_target[0].sum(-1).detach(), 1e-4)
