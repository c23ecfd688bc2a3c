"""Which input tokens made this output token? One question, one kind of answer, and a closed table of methods.

    attribute(model, source, target_input_1T, target_output_1T, "alti").source_TS

Row t belongs to output token t. Its columns are the source tokens and the tokens of the target that the decoder had
read by then, the start token first. What one of the methods calls an input is what the first layer reads of a token,
and an input is absent when its embedding is zero or another token's, its position kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.trace import TraceSide
from regard.errors import ModelError, nearest
from regard.layers.hooks import listen_to_states, trace_states
from regard.models.base import Seq2Seq, Source

TOKENS_AT_ONCE = 2048
"""Rows of one sentence, each with something else taken away, are run together up to so many tokens."""

Baseline = tuple[int, int] | None
"""What stands where a token is absent: ids of a source and a target token, or None, an embedding of zeros."""


class AttributionMethod(NamedTuple):
    """Where a method lives, as a function of its own name, and what it says in one line."""

    home: str
    about: str


METHODS: dict[str, AttributionMethod] = {
    "attention": AttributionMethod("attribution_methods", "attention weights, averaged over heads and layers"),
    "rollout": AttributionMethod("attribution_methods", "attention weights followed down through all layers"),
    "gradient": AttributionMethod("attribution_methods", "gradient of the log-probability times the input"),
    "integrated": AttributionMethod("attribution_methods", "that gradient, integrated from an empty input to this one"),
    "occlusion": AttributionMethod("attribution_methods", "log-probability lost when the input is taken away"),
    "alti": AttributionMethod(
        "attribution_methods", "what each input brings to each layer's output, followed down through all layers"
    ),
}


@dataclass(frozen=True)
class Attribution:
    """How much each source token and each token of the target prefix did for each output token."""

    source_TS: Tensor
    target_TT: Tensor
    """Causal: zero above the diagonal. Column j is the token that the decoder read at place j."""
    signed: bool = False
    """Signed values are shares of a log-probability, and an input may speak against the output; others are weights."""
    gap_T: Tensor | None = None
    """Integrated gradients alone know it: what their sum lacks of the difference that they should add up to."""

    def normalised(self) -> Attribution:
        """Rows whose absolute values sum to one, source and prefix together; a row of zeros stays one."""
        total_T1 = self.source_TS.abs().sum(-1, keepdim=True) + self.target_TT.abs().sum(-1, keepdim=True)
        total_T1 = torch.where(total_T1 > 0, total_T1, 1.0)
        return replace(self, source_TS=self.source_TS / total_T1, target_TT=self.target_TT / total_T1, gap_T=None)

    def by_words(self, source: TraceSide, target: TraceSide) -> Attribution:
        """The same with words for tokens: a column gets what its tokens get, a row speaks for all of its tokens.

        The log-probability of a word is the sum over its tokens, and so are its shares; weights are averaged instead.
        The later tokens of a word also read its earlier ones: such a word has a share in itself.
        """
        read, mean = target.shifted("<s>"), not self.signed
        source_TS = source.merge(target.merge(self.source_TS, -2, mean=mean), -1, mean=False)
        target_TT = read.merge(target.merge(self.target_TT, -2, mean=mean), -1, mean=False)
        gap_T = None if self.gap_T is None else target.merge(self.gap_T, 0, mean=False)
        return Attribution(source_TS, target_TT, self.signed, gap_T)


class TokenPair(NamedTuple):
    """One sentence, and a target as the decoder reads it and as it is to say it."""

    source: Source
    input_1T: Tensor
    output_1T: Tensor


def attribute(
    model: Seq2Seq, source: Source, target_input_1T: Tensor, target_output_1T: Tensor, method: str, **options: Any
) -> Attribution:
    """Ask one of METHODS about one sentence pair. The options, and the cost, are in the method's own docstring."""
    if method not in METHODS:
        guess = nearest(method, METHODS) or f"; there are {', '.join(METHODS)}"
        raise ModelError(f'no way to attribute is named "{method}"{guess}')
    if model.training:
        raise ModelError("attribution needs a model at rest: call model.eval() first, or dropout blurs the answer")
    if source.ids_BS.shape[0] != 1 or not bool(source.mask_BS.all()) or target_input_1T.shape != target_output_1T.shape:
        raise ModelError("attribution takes one sentence without padding, and a target of one length in and out")
    ask = getattr(import_module(f"regard.analysis.{METHODS[method].home}"), method)
    known = list(inspect.signature(ask).parameters)[2:]  # after the model and the pair
    for option in options:
        if option not in known:
            raise ModelError(f'{method} has no option "{option}"; it has {", ".join(known) or "none"}')
    found: Attribution = ask(model, TokenPair(source, target_input_1T, target_output_1T), **options)
    return replace(found, source_TS=found.source_TS.cpu(), target_TT=found.target_TT.tril().cpu())


# ---------------------------------------------------------------------------------------------------------------------
# Running a model on embeddings instead of tokens


class EmbeddedInput(NamedTuple):
    """What the first layers read, in N versions: the source [N, S, D] and the target prefix [N, T, D]."""

    source_NSD: Tensor
    target_NTD: Tensor


@torch.no_grad()
def embed(model: Seq2Seq, pair: TokenPair) -> EmbeddedInput:
    """The pair as the first layers read it. One forward pass."""
    with trace_states(model, ("encoder.embed", "decoder.embed")) as states:
        model(pair.source, pair.input_1T)
    if len(states) < 2:
        raise ModelError(f"{type(model).__name__} does not read a source and a target, so there is nothing to compare")
    return EmbeddedInput(states["encoder.embed"], states["decoder.embed"])


def embed_absent(model: Seq2Seq, pair: TokenPair, baseline: Baseline) -> EmbeddedInput:
    """The same places with nothing in them: the baseline's tokens, or zeros. One forward pass."""
    if baseline is not None:
        ids_1S, input_1T = (torch.full_like(ids, id) for ids, id in zip(_ids(pair), baseline, strict=True))
        return embed(model, TokenPair(_Tokens(ids_1S, pair.source.mask_BS), input_1T, pair.output_1T))
    with ExitStack() as stack:  # hooks, because weights that are exchanged for a while may be shared
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding) and name.endswith("tokens"):
                stack.enter_context(module.register_forward_hook(lambda *passed: torch.zeros_like(passed[-1])))
        return embed(model, pair)


def log_probs(model: Seq2Seq, pair: TokenPair, read: EmbeddedInput) -> Tensor:
    """Log-probability of each output token after each version of the input: [N, T]. N rows forward."""
    return chosen(model.output(run(model, pair, read)), pair.output_1T)


def run(model: Seq2Seq, pair: TokenPair, read: EmbeddedInput) -> Tensor:
    """The decoder's last states [N, T, D] after each version of the input."""
    states = {"encoder.embed": read.source_NSD, "decoder.embed": read.target_NTD}
    with listen_to_states(model, states, lambda name, x: states[name]):
        return model.hidden(pair.source, pair.input_1T)


def chosen(logits_NTV: Tensor, output_1T: Tensor) -> Tensor:
    """Of all scores, the log-probabilities [N, T] of the tokens that were written."""
    output_NT1 = output_1T.expand(logits_NTV.shape[0], -1).unsqueeze(-1)
    return logits_NTV.log_softmax(-1).gather(-1, output_NT1).squeeze(-1)


def in_chunks(rows_N: Tensor, pair: TokenPair) -> Iterator[Tensor]:
    """Cut rows, each of which will be one version of the pair, into what is run together."""
    tokens = sum(ids.shape[1] for ids in _ids(pair))
    yield from rows_N.split(max(1, TOKENS_AT_ONCE // tokens))


class _Tokens(NamedTuple):
    ids_BS: Tensor
    mask_BS: Tensor


def _ids(pair: TokenPair) -> tuple[Tensor, Tensor]:
    return pair.source.ids_BS, pair.input_1T
