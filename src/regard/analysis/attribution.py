"""Attribution: how much each input token contributes to each output token, by one of several methods.

    attribute(model, source, target_input_1T, target_output_1T, "alti").source_TS

Row t belongs to output token t. Its columns are the source tokens and the tokens of the target prefix that the decoder
has read, the start token first. Methods work on the embeddings that the first layer reads. To remove a token, they
replace its embedding by zeros or by the embedding of another token; the positional encoding stays.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.trace import TraceSide
from regard.errors import ModelError, nearest
from regard.layers.hooks import listen_to_states, trace_states
from regard.models.base import Seq2Seq, Source

TOKENS_AT_ONCE = 2048  # limit for one forward pass over variants of a sentence pair
EMBEDDINGS = ("encoder.embed", "decoder.embed")  # names of the states that the first layers read
Baseline = tuple[int, int] | None
"""Replacement of a removed token: ids of a source and a target token, or None for an embedding of zeros."""

METHODS = {
    "attention": "attention weights, averaged over heads and layers",
    "rollout": "attention weights, multiplied through all layers",
    "gradient": "gradient of the log-probability times the input",
    "integrated": "gradient times input, integrated from an empty input to this one",
    "occlusion": "decrease of the log-probability when the input is removed",
    "alti": "contribution of each input to the output of each layer, multiplied through all layers",
}
"""Names and descriptions of the methods. Each is a function of the same name in attribution_methods.py."""


@dataclass(frozen=True)
class Attribution:
    """Contribution of each source token and each token of the target prefix to each output token (one row each).

    `source_TS` has the contributions of the source, `target_TT` those of the target prefix.
    """

    source_TS: Tensor
    target_TT: Tensor
    """Row t is output token t, column j the token that the decoder reads at position j; zero where j > t."""
    signed: bool = False
    """True: values are parts of a log-probability, negative if the input lowers it. False: values are weights."""
    gap_T: Tensor | None = None
    """For integrated gradients: log p(input) - log p(baseline), minus the sum of all values of the row."""

    def normalised(self) -> Attribution:
        """Scale each row so that its absolute values over source and prefix together sum to one; rows of zeros stay."""
        total_T1 = self.source_TS.abs().sum(-1, keepdim=True) + self.target_TT.abs().sum(-1, keepdim=True)
        total_T1 = torch.where(total_T1 > 0, total_T1, 1.0)
        return replace(self, source_TS=self.source_TS / total_T1, target_TT=self.target_TT / total_T1, gap_T=None)

    def by_words(self, source: TraceSide, target: TraceSide) -> Attribution:
        """Attribution between words; `source` and `target` tell which tokens form a word.

        The columns of a word's tokens are summed. Its rows are summed if `signed`, because the log-probability of a
        word is the sum over its tokens; otherwise they are averaged. A word of several tokens also contributes to
        itself, because its later tokens read its earlier tokens.
        """
        mean = not self.signed
        source_TS = source.merge(target.merge(self.source_TS, -2, mean=mean), -1, mean=False)
        target_TT = target.shifted().merge(target.merge(self.target_TT, -2, mean=mean), -1, mean=False)
        gap_T = None if self.gap_T is None else target.merge(self.gap_T, 0, mean=False)
        return Attribution(source_TS, target_TT, self.signed, gap_T)


class SourceTokens(NamedTuple):
    """Token ids of source sentences, and a mask that is False for padding."""

    ids_BS: Tensor
    mask_BS: Tensor


class TokenPair(NamedTuple):
    """One source sentence, and its target as decoder input (start token first) and output (end token last)."""

    source: Source
    input_1T: Tensor
    output_1T: Tensor


def attribute(
    model: Seq2Seq, source: Source, target_input_1T: Tensor, target_output_1T: Tensor, method: str, **options: Any
) -> Attribution:
    """Compute the contribution of each input token of a sentence pair to each output token, by one of METHODS.

    The target is given twice: as decoder input, start token first, and as decoder output, end token last. `options` are
    keyword arguments of the function `method` in attribution_methods.py.
    """
    if method not in METHODS:
        guess = nearest(method, METHODS) or f"; there are {', '.join(METHODS)}"
        raise ModelError(f'there is no attribution method "{method}"{guess}')
    if model.training:
        raise ModelError("attribution needs a model without dropout: call model.eval() first")
    if source.ids_BS.shape[0] != 1 or not bool(source.mask_BS.all()) or target_input_1T.shape != target_output_1T.shape:
        raise ModelError(
            "attribution needs one sentence without padding, and target_input_1T and target_output_1T of equal length"
        )
    from regard.analysis import attribution_methods  # which imports this module

    function = getattr(attribution_methods, method)
    known = list(inspect.signature(function).parameters)[2:]  # after the model and the pair
    for option in options:
        if option not in known:
            raise ModelError(f'{method} has no option "{option}"; its options: {", ".join(known) or "none"}')
    found: Attribution = function(model, TokenPair(source, target_input_1T, target_output_1T), **options)
    return replace(found, source_TS=found.source_TS.cpu(), target_TT=found.target_TT.tril().cpu())


# ---------------------------------------------------------------------------------------------------------------------
# Running a model on embeddings instead of tokens


class EmbeddedInput(NamedTuple):
    """Input embeddings of source and decoder input, for N variants of one pair (e.g. each without one token)."""

    source_NSD: Tensor
    target_NTD: Tensor


@torch.no_grad()
def embed(model: Seq2Seq, pair: TokenPair) -> EmbeddedInput:
    """Return the embeddings of source and decoder input that the first layers read (N = 1). Cost: one forward pass."""
    with trace_states(model, EMBEDDINGS) as states:
        model(pair.source, pair.input_1T)
    if len(states) < 2:
        raise ModelError(f"{type(model).__name__} does not read a source and a target; use an encoder-decoder")
    return EmbeddedInput(*(states[name] for name in EMBEDDINGS))


def embed_absent(model: Seq2Seq, pair: TokenPair, baseline: Baseline) -> EmbeddedInput:
    """Return the embeddings of a pair in which every token is replaced by the baseline. Cost: one forward pass.

    `baseline`: the ids of a source and a target token, or None for embeddings of zeros. Positional encodings stay.
    """
    if baseline is not None:
        ids_1S, input_1T = torch.full_like(pair.source.ids_BS, baseline[0]), torch.full_like(pair.input_1T, baseline[1])
        return embed(model, TokenPair(SourceTokens(ids_1S, pair.source.mask_BS), input_1T, pair.output_1T))
    with ExitStack() as stack:  # hooks, because the embedding weights may be shared with other layers
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding) and name.endswith("tokens"):
                stack.enter_context(module.register_forward_hook(lambda *passed: torch.zeros_like(passed[-1])))
        return embed(model, pair)


def log_probs(model: Seq2Seq, pair: TokenPair, read: EmbeddedInput) -> Tensor:
    """Log-probability [N, T] of each output token, for each of N variants of the input embeddings, `read`.

    Cost: one forward pass over a batch of N.
    """
    return output_log_probs(model.output(run(model, pair, read)), pair.output_1T)


def run(model: Seq2Seq, pair: TokenPair, read: EmbeddedInput) -> Tensor:
    """Run the model on N variants of the input embeddings, `read`; return the last decoder states [N, T, D]."""
    states = dict(zip(EMBEDDINGS, read, strict=True))
    with listen_to_states(model, states, lambda name, x: states[name]):
        return model.hidden(pair.source, pair.input_1T)


def output_log_probs(logits_NTV: Tensor, output_1T: Tensor) -> Tensor:
    """Log-probability [N, T] of each of the output tokens `output_1T`, from the logits of N variants of the input."""
    output_NT1 = output_1T.expand(logits_NTV.shape[0], -1).unsqueeze(-1)
    return logits_NTV.log_softmax(-1).gather(-1, output_NT1).squeeze(-1)


def in_chunks(rows_N: Tensor, pair: TokenPair) -> tuple[Tensor, ...]:
    """Split `rows_N`, one row per variant of the pair, into batches of variants with up to TOKENS_AT_ONCE tokens."""
    return rows_N.split(max(1, TOKENS_AT_ONCE // (pair.source.ids_BS.shape[1] + pair.input_1T.shape[1])))
