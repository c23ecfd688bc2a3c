"""Interfaces of all architectures: the methods that search, training and analysis call.

    encode(source)              -> memory           once per sentence; shared by its hypotheses
    start(memory)               -> state            any tree of tensors [B, W, ...], with W = 1
    step(token_BW, state, memory) -> logits, state  scores of the next token, with cached states
    decode(memory, target_BT)   -> states_BTD       teacher forcing, the whole target at once
    forward(source, target_BT)  -> logits_BTV       `encode`, `decode` and the output layer

One `step` per token computes the same logits as `forward`: tests/laws checks this for every architecture. A memory or
a state is a tree of tuples, dictionaries and tensors. The first axis of the tensors is the batch; in a state, the
second axis is the beam. So a search can select and reorder the rows of any architecture. An object in the tree may
select and reorder its rows itself, by methods `keep(rows_N)` and `follow(beams_BW)`, as the KV cache does
(layers/kv_cache.py). The caller must call `step` at most once with each state. The caller may overwrite the logits.

A classifier has only `encode`, which returns one vector per document, and `forward`, which scores the labels. A tagger
has one vector per word, and a linear-chain CRF over the labels.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from regard.layers.crf import LinearChainCRF
from regard.layers.experts import MixtureOfExperts
from regard.layers.hooks import AttentionRecord
from regard.layers.inputs import Input, Pictures, input_layer


class Source(Protocol):
    """Input of an encoder: padded token ids of a batch, and a mask that is True for real tokens.

    If the network reads frames or pictures, `ids_BS` has their values, with more axes (layers/inputs.py). The same
    holds for `Documents` and `Words`; a frame is a word of one piece.
    """

    @property
    def ids_BS(self) -> Tensor: ...
    @property
    def mask_BS(self) -> Tensor: ...


Tree = Any
"""Nested tuples and dictionaries of tensors."""


class EncoderOutput(NamedTuple):
    """An encoded source: encoder states, their mask (True for real tokens), other inputs of the decoder, e.g. keys."""

    states_BSD: Tensor
    mask_BS: Tensor
    extra: Tree = ()


def example_input(axes: str, *shape: int) -> SimpleNamespace:
    """Build a small `Source` (axes "BS"), `Documents` ("BUS") or `Words` ("BTS") with axes of the sizes `shape`.

    The token ids are 0, 1, 2, ..., without padding, on the CPU.
    """
    ids = torch.arange(math.prod(shape), device="cpu").view(shape)
    return SimpleNamespace(**{f"ids_{axes}": ids, f"mask_{axes}": torch.ones_like(ids, dtype=torch.bool)})


class Example(NamedTuple):
    """A forward pass of a model on a small input, whose operations `training/flops.py` counts; `run()` computes it.

    The input has data even if the weights are on the meta device, because the computation depends on the token ids.
    """

    run: Callable[[], Any]
    amounts: Mapping[str, int]
    """The number of each unit in the input, by name; a unit is a token, a pair of tokens and so on."""


class Network(nn.Module):
    """Base class of the models of all tasks. A subclass implements `forward` and `examples`, and sets `output`."""

    output: nn.Linear
    """Maps the last states to scores: over the target vocabulary, or over labels."""
    reads_vectors: ClassVar[bool] = False
    """Whether the constructor also takes `Frames` or `Pictures` in place of the (source) vocabulary size."""
    reads: Input = 0
    """What the encoder reads; a constructor that takes frames or pictures sets it."""

    def embedding_tables(self) -> dict[str, nn.Embedding]:
        """The tables of token embeddings: of the "source" and the "target"; with one vocabulary, only of the "source".

        Both may be the same table. A side that reads something else, such as pictures or characters, has none.
        """
        found = {}
        for side, name in (("source", "encoder.embed"), ("target", "embed")):
            holder: Any = self
            for part in name.split("."):
                holder = getattr(holder, part, None)
            table = getattr(holder, "tokens", holder)
            if isinstance(table, nn.Embedding):
                found[side] = table
        if not hasattr(self, "encoder") and "target" in found:
            found["source"] = found.pop("target")
        return found

    has_sparse_gradients: ClassVar[bool] = False
    """Whether gradients contain only the rows of the words in a batch."""

    def example_input(self, axes: str, *shape: int) -> SimpleNamespace:
        """A small input of this network, like the function `example_input`; zeros for frames and pictures."""
        return example_input(axes, *shape) if isinstance(self.reads, int) else self.reads.example(axes, shape)

    @abstractmethod
    def examples(self) -> Iterator[Example]:
        """Small forward passes, from which `training/flops.py` computes the number of operations of any input.

        The cost of an input is a sum over its units, such as tokens or pairs of tokens. There are as many examples as
        kinds of units, so that the costs per unit are the solution of linear equations.
        """


class Seq2Seq(Network):
    """Base class of encoder-decoders. A subclass implements `encode`, `start`, `step`, `decode` and sets `output`."""

    example_length: ClassVar[int] = 1
    """Number of tokens of the shortest sequence in `examples`; larger if the cost of a few tokens is not typical."""
    attention_formula: ClassVar[str] = "softmax(Q Kᵀ / √d)"
    """The weights of a layer's attention, as the inspection page shows them beside the maps of several layers."""

    @abstractmethod
    def encode(self, source: Source) -> EncoderOutput:
        """Encode the source sentences; a search calls this once for all hypotheses."""

    @abstractmethod
    def start(self, memory: EncoderOutput) -> Tree:
        """The decoder state before the first token, with one hypothesis per sentence."""

    @abstractmethod
    def step(self, token_BW: Tensor, state: Tree, memory: EncoderOutput) -> tuple[Tensor, Tree]:
        """One decoding step: returns the logits [B, W, V] of the token after `token_BW`, and the next decoder state.

        `state` is the result of `start` or of the previous step; `memory` is the result of `encode`.
        """

    @abstractmethod
    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        """The last decoder states [B, T, D] with teacher forcing on `target_BT`, before the output layer.

        `memory` is the result of `encode`. Its rows may be repeated, to decode several targets per source.
        """

    def hidden(self, source: Source, target_BT: Tensor) -> Tensor:
        """The states that `decode` computes for the encoded `source`."""
        return self.decode(self.encode(source), target_BT)

    def forward(self, source: Source, target_BT: Tensor) -> Tensor:
        """Logits [B, T, V] of the token after each token of `target_BT`, with teacher forcing."""
        return self.output(self.hidden(source, target_BT))

    def examples(self) -> Iterator[Example]:
        """Small forward passes for `training/flops.py`, which computes from them the number of operations per unit.

        Units: sentences, source tokens, target tokens, and pairs of tokens (two source, two target, one of each).
        """
        for lengths in ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (1, 3)):
            source, target = (self.example_length * length for length in lengths)
            inputs = self.example_input("BS", 1, source), example_input("BS", 1, target).ids_BS
            amounts = {"sentence": 1, "source_token": source, "target_token": target}
            pairs = {"source_pair": source**2, "target_pair": target**2, "cross_pair": source * target}
            yield Example(partial(self, *inputs), amounts | pairs)


class PairBatch(Protocol):
    """A batch of sentence pairs: encoder input, decoder input, expected output, and a mask (False for padding)."""

    @property
    def source(self) -> Source: ...
    @property
    def target_input_BT(self) -> Tensor: ...
    @property
    def target_output_BT(self) -> Tensor: ...
    @property
    def target_mask_BT(self) -> Tensor: ...


def sentence_losses(model: Seq2Seq, batch: PairBatch) -> Tensor:
    """Negative log-likelihood [B] of each target given its source, summed over its tokens."""
    real_BT = batch.target_mask_BT
    logits_NV = model.output(model.hidden(batch.source, batch.target_input_BT)[real_BT])
    nll_N = nn.functional.cross_entropy(logits_NV, batch.target_output_BT[real_BT], reduction="none")
    return nll_N.new_zeros(len(real_BT)).index_add(0, real_BT.nonzero()[:, 0], nll_N)


class Documents(Protocol):
    """Input of a classifier: documents, divided into segments (sentences, or windows of sentences) of tokens.

    Shorter segments and documents of fewer segments are padded at their end. The mask is True for real tokens; the
    first token of a document is always real.
    """

    @property
    def ids_BUS(self) -> Tensor: ...
    @property
    def mask_BUS(self) -> Tensor: ...


class ClassifierModel(Network):
    """Base class of document classifiers. A subclass implements `encode` and `shading`, and sets `output`."""

    @abstractmethod
    def encode(self, documents: Documents) -> Tensor:
        """Encode each document as one vector: [B, D]."""

    def forward(self, documents: Documents) -> Tensor:
        """Scores (logits) of L labels for each document: [B, L]."""
        return self.output(self.encode(documents))

    def examples(self) -> Iterator[Example]:
        """Small forward passes for `training/flops.py`, which computes from them the number of operations per unit.

        Units: documents, segments, tokens, and pairs of tokens in a segment.
        """
        for segments, size in ((1, 1), (2, 1), (1, 2), (1, 3)):
            amounts = {"document": 1, "sentence": segments, "token": segments * size, "pair": segments * size**2}
            yield Example(partial(self, self.example_input("BUS", 1, segments, size)), amounts)

    @abstractmethod
    def shading(self, tape: Mapping[str, AttentionRecord], documents: Documents) -> Tensor:
        """The attention weight [B, U, S] of each token in its document; weights sum to 1 over the document.

        The axes are those of `documents`: U segments of S tokens. `tape` has the attention records that
        `layers.hooks.trace` made during `forward`, by the name of the hook.
        """


class Words(Protocol):
    """Input of a tagger: sentences of words, each word given as its pieces (characters or subwords).

    Shorter words and sentences of fewer words are padded at their end. The mask is True for real pieces; the first
    piece of a word and the first word of a sentence are always real.
    """

    @property
    def ids_BTS(self) -> Tensor: ...
    @property
    def mask_BTS(self) -> Tensor: ...


class TaggerModel(Network):
    """Base class of taggers, which label words. A subclass implements `encode`, and sets `output` and `crf`."""

    crf: LinearChainCRF
    """Scores of pairs of adjacent labels."""

    @abstractmethod
    def encode(self, sentences: Words) -> Tensor:
        """Encode each word of each sentence as one vector: [B, T, D]."""

    def forward(self, sentences: Words) -> Tensor:
        """Scores (logits) [B, T, L] of L labels for each word, without scores of label pairs, which are in `crf`."""
        return self.output(self.encode(sentences))

    def examples(self) -> Iterator[Example]:
        """Small forward passes for `training/flops.py`, which computes from them the number of operations per unit.

        Units: pieces (characters or subwords), words, and pairs of words. A pass includes one product per word with the
        CRF's matrix of transition scores.
        """
        for words, size in ((1, 1), (1, 2), (2, 1)):
            amounts = {"piece": words * size, "word": words, "pair": words**2}
            inputs = self.example_input("BTS", 1, words, size)
            yield Example(partial(lambda sentences: self(sentences) @ self.crf.transitions, inputs), amounts)


class TokenEmbedding(nn.Module):
    """Token embeddings without positions, multiplied by sqrt(width).

    So the layers get inputs of variance 1, and a matrix that is shared with the output layer has small weights. A model
    has its embeddings at `encoder.embed` and `embed`, where analysis reads `tokens` and `scale`.
    """

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.tokens.weight, std=width**-0.5)
        self.scale = math.sqrt(width)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) * self.scale


def input_embedding(source: Input, width: int) -> nn.Module:
    """The layer below an encoder without positions: token embeddings, or vectors of frames or pictures."""
    return TokenEmbedding(source, width) if isinstance(source, int) else input_layer(source, width)


def embed_time_first(embed: nn.Module, ids_BS: Tensor) -> Tensor:
    """Embed a source for a recurrent encoder, which has time as its first axis: [S, B, D]."""
    return embed(ids_BS.t()) if isinstance(embed, TokenEmbedding) else embed(ids_BS).transpose(0, 1)


def grid_of(source: Input) -> tuple[int, int] | None:
    """Rows and columns of an input with positions in two dimensions; None for tokens and frames."""
    return source.grid if isinstance(source, Pictures) else None


Layer = TypeVar("Layer", bound=nn.Module)


class LayerStack(nn.ModuleList, Generic[Layer]):
    """An `nn.ModuleList` whose elements have a declared type, for the type checker."""

    def __init__(self, layers: Iterable[Layer]):
        super().__init__(layers)

    def __iter__(self) -> Iterator[Layer]:
        return cast(Iterator[Layer], super().__iter__())


def mask_or_none(mask_BS: Tensor) -> Tensor | None:
    """Return the mask, or None if it is True everywhere, because attention without a mask is faster."""
    return None if bool(mask_BS.all()) else mask_BS


def count_parameters(model: nn.Module) -> int:
    """Number of parameters of a model; a matrix that several layers share counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_active_parameters(model: nn.Module) -> int:
    """Number of parameters without those of experts that do not compute a given token."""
    layers = (module for module in model.modules() if isinstance(module, MixtureOfExperts))
    return count_parameters(model) - sum(layer.inactive_parameters for layer in layers)


def summarize(model: nn.Module) -> list[dict[str, Any]]:
    """A table of the layers of a model, one row each: name, count, shapes of the parameters, number of parameters.

    Equal layers of several blocks are one row, with a name such as "encoder.blocks.*.feed_forward.up".
    """
    rows: dict[tuple[str, tuple[tuple[int, ...], ...]], dict[str, Any]] = {}
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if id(parameter) not in seen]
        if not own:
            continue
        seen |= {id(parameter) for parameter in own}
        shapes = tuple(tuple(parameter.shape) for parameter in own)
        place = re.sub(r"\.\d+\b", ".*", name)
        row = rows.setdefault((place, shapes), {"name": place, "count": 0, "shapes": shapes, "parameters": 0})
        row["count"] += 1
        row["parameters"] += sum(parameter.numel() for parameter in own)
    return list(rows.values())
