"""HRAN: "Hierarchical Recurrent Attention Network for Response Generation", Xing et al. 2017.

A context is a sequence of utterances, an utterance is a sequence of words, and not all of them are equally important.
For each word of the reply, attention over words computes one vector per utterance; a second encoder, the utterance
encoder, reads these vectors from the last utterance to the first; attention over its states computes the context
vector, an input of the decoder. The query of the word attention has two parts: the decoder state, and the last
state of the utterance encoder, which has read all later utterances.

The source is one sequence. A marker token (`turn_token_id`) ends every utterance except the last.

Departures from the paper: the reset gate acts after the recurrent product; the initial state of the utterance encoder
is learned (paper: drawn from a Gaussian); the decoder starts from the final word states of the last utterance; the
readout is Bahdanau's maxout over state, last word and context (paper: state and last word); both directions of the word
encoder together are as wide as the other states; the embeddings of both sides and the output may share one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import ModelSettings
from regard.config.ranges import EvenWidth, Range, Share, Width, require
from regard.layers.attention import KeyValue, RecurrentAttention
from regard.layers.dropout import Dropout
from regard.layers.hooks import AttentionHook, AttentionRecord, HiddenStateHook, Listener
from regard.layers.init import glorot
from regard.layers.rnn_cells import GRU, RecurrentLayer
from regard.models.base import EncoderOutput, Seq2Seq, Source, TokenEmbedding, mask_or_none


@dataclass(frozen=True)
class HRANSettings(ModelSettings):
    """Settings of the hierarchical recurrent attention network (Xing et al. 2017): attention over words and turns."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "HRAN"
    about: ClassVar[str] = "Hierarchical Recurrent Attention Network for Response Generation (Xing et al. 2017)"

    arch: str = "hran"
    width: EvenWidth = 256
    """Width of the states of words (both directions together), of turns and of the decoder; the paper has 1000."""
    embedding_width: Width = 256
    """Width of the token embeddings; the paper has 620."""
    dropout: Share = 0.2
    """Dropout on the inputs of the word encoder, the decoder and the output layer."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Embeddings that share one matrix: context, reply and output (all); reply and output (target); none."""
    turn_token_id: Annotated[int, Range(0)] = 3
    """Id of the token that ends a turn (the first of tokenizer.special_tokens has id 3)."""

    def check(self) -> None:
        require(
            self.tie_embeddings == "none" or self.embedding_width == self.width,
            'model.tie_embeddings needs model.embedding_width = model.width; or set model.tie_embeddings = "none"',
        )

    @property
    def needs_joint_vocabulary(self) -> bool:
        return self.tie_embeddings == "all"

    @property
    def suits_muon(self) -> bool:
        return False  # not measured

    def kept_per_token(self, length: float) -> float:
        return 24 * self.width + 2 * length * self.width + 4 * self.embedding_width


PRESETS: dict[str, ModelSettings] = {"hran": HRANSettings("hran")}


# ---------------------------------------------------------------------------------------------------------------------
# Recording two levels of attention. All tools in analysis/ expect weights over the source tokens, so both levels are
# recorded in this form:
#
# "decoder.word"       weights of the words in their utterance; they sum to 1 in each utterance
# "decoder.utterance"  weights of the utterances, each at the token that ends the utterance
# "decoder.cross"      the product of both, which sums to 1; replacement weights are split into the two levels
#
# The states of utterances differ from step to step, so the word states are recorded as keys and values. A hook on
# words is called once per utterance, with weights of 0 for the words of the other utterances.


class TwoLevelHooks(NamedTuple):
    """Hooks for three kinds of weights: of words in their utterance, of utterances, and the products of both."""

    word: AttentionHook
    utterance: AttentionHook
    both: AttentionHook


class TwoLevelAttentionRecorder:
    """Passes the weights of both levels of attention (words, utterances) to the hooks; made only if a hook is in use.

    In each decoder step, `context` calls the listeners, which may replace weights. After the last step, `record` calls
    the recorders, once with the weights of all steps.
    """

    def __init__(
        self, taps: TwoLevelHooks, context: Callable[..., Tensor], memory: EncoderOutput, places: Sequence[Tensor]
    ):
        """`taps` are the hooks, `context(state_ND, word_hook, utterance_hook)` computes the context vectors of a step.

        `places`: for each utterance, the positions [B, L] of its L words among the S source tokens, padded with S.
        """
        self.taps, self._context, self._memory, self._places = taps, context, memory, places
        self._size = memory.mask_BS.shape[1]
        ends = [place_BL.masked_fill(place_BL == self._size, -1).amax(-1) for place_BL in places]
        self._ends_BU = torch.stack([end_B.masked_fill(end_B < 0, self._size) for end_B in ends], dim=1)
        self._queries: list[Tensor] = []
        self._steps: dict[AttentionHook, list[Tensor]] = {tap: [] for tap in taps}

    def context(self, state_ND: Tensor) -> Tensor:
        """Compute the context vectors [N, D] of one decoder step. Listeners get the weights and may replace them."""
        words: list[Tensor] = []
        shares: list[Tensor] = []

        def on_words(name: str, weights: Tensor) -> Tensor:
            words.append(self._replaced(self.taps.word, weights, self._places[len(words)]))
            return words[-1]

        def on_utterances(name: str, weights_N11U: Tensor) -> Tensor:
            by_context = weights_N11U.reshape(len(self._ends_BU), 1, -1, weights_N11U.shape[-1])  # [B, 1, W, U]
            shares.append(self._replaced(self.taps.utterance, by_context, self._ends_BU))
            return _by_row(shares[-1])

        context_ND = self._run(state_ND, on_words, on_utterances)
        [share] = shares
        products = [found * part for found, part in zip(words, share.split(1, dim=-1), strict=True)]
        joint = self._spread_all(products)
        other = self.taps.both.replace(joint)
        if other is not joint:
            words, share = self._split(other, words)
            given, given_share = iter(words), _by_row(share)
            context_ND = self._run(state_ND, lambda name, weights: next(given), lambda name, weights: given_share)
        shown = (self._spread_all(words), self._spread(share, self._ends_BU), other)
        for tap, weights in zip(self.taps, shown, strict=True):
            self._steps[tap].append(weights)
        self._queries.append(state_ND.unflatten(0, (len(self._ends_BU), 1, -1)))
        return context_ND

    def record(self) -> None:
        """For each hook, join the weights of all decoder steps into one record, and pass it to its recorders."""
        states = self._memory.states_BSD.unsqueeze(1)
        query = torch.cat(self._queries, dim=-2)
        for tap, steps in self._steps.items():
            weights = torch.cat(steps, dim=-2)
            tap.record(AttentionRecord(tap.name, query, states, states, weights, weights @ states))

    def _run(self, state_ND: Tensor, words: Listener, utterances: Listener) -> Tensor:
        word, utterance = AttentionHook("word"), AttentionHook("utterance")
        with word.attached(words), utterance.attached(utterances):
            return self._context(state_ND, word, utterance)

    def _replaced(self, tap: AttentionHook, weights: Tensor, place_BL: Tensor) -> Tensor:
        """Let the listeners of the hook `tap` replace weights [B, 1, W, L] of words or utterances; return the weights.

        Listeners get them at their source positions `place_BL`, as [B, 1, W, S].
        """
        return _gather(tap.replace(self._spread(weights, place_BL)), place_BL) if tap.listeners else weights

    def _split(self, joint: Tensor, words: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Split weights of source tokens, `joint`, into weights of words in their utterance and weights of utterances.

        The words of an utterance of weight 0 get their weights from `words`.
        """
        parts = [_gather(joint, place_BL) for place_BL in self._places]
        shares = [part.sum(-1, keepdim=True) for part in parts]
        found = [
            torch.where(share == 0, before, part / share)
            for before, part, share in zip(words, parts, shares, strict=True)
        ]
        return found, torch.cat(shares, dim=-1)

    def _spread(self, weights: Tensor, place_BL: Tensor) -> Tensor:
        """Write weights [B, 1, W, L] of L words to their positions `place_BL` among the source tokens: [B, 1, W, S]."""
        empty = weights.new_zeros(*weights.shape[:-1], self._size + 1)
        return empty.scatter(-1, place_BL[:, None, None].expand_as(weights), weights)[..., : self._size]

    def _spread_all(self, words: Sequence[Tensor]) -> Tensor:
        """Put the word weights, one tensor per utterance, at the positions of their words in the source.

        The result is [B, 1, W, S]: batch, one head, W hypotheses, S source tokens.
        """
        parts = [self._spread(found, place_BL) for found, place_BL in zip(words, self._places, strict=True)]
        return torch.stack(parts).sum(0)


def _gather(flat_B1WS: Tensor, place_BL: Tensor) -> Tensor:
    """Select the weights of L words, at the positions `place_BL`, from weights of S source tokens: [B, 1, W, L].

    The weight is 0 where there is no word (position S).
    """
    index = place_BL[:, None, None].expand(*flat_B1WS.shape[:-1], -1)
    return F.pad(flat_B1WS, (0, 1)).gather(-1, index)


def _by_row(weights_B1WU: Tensor) -> Tensor:
    """Reshape utterance weights [B, 1, W, U] to [N, 1, 1, U], N = B W: the decoder has one row per hypothesis."""
    return weights_B1WU.reshape(-1, 1, 1, weights_B1WU.shape[-1])


# ---------------------------------------------------------------------------------------------------------------------
# Layout of utterances: the source tokens are one sequence [B, S]; attention needs them grouped by utterance,
# [B, U, L], with the last utterance first.


class TurnLayout(NamedTuple):
    """The positions of U utterances of up to L words in conversations of S tokens; the last utterance comes first."""

    place_BUL: Tensor
    """For each utterance, the source positions of its words; S where there is no word."""
    turn_BS: Tensor
    """For each source token, the index of its utterance; 0 is the last utterance."""
    within_BS: Tensor
    """For each source token, its index in its utterance."""

    @property
    def mask_BUL(self) -> Tensor:
        """Mask [B, U, L]: True where an utterance has a word, False on padding."""
        return self.place_BUL < self.turn_BS.shape[1]


def find_utterances(ids_BS: Tensor, mask_BS: Tensor, marker: int) -> TurnLayout:
    """Split conversations into utterances: each ends with the token id `marker`, except the last."""
    rows, size = ids_BS.shape
    place_BS = torch.arange(size, device=ids_BS.device).expand(rows, -1)
    closes_BS = (ids_BS == marker) & mask_BS
    number_BS = (closes_BS.cumsum(1) - closes_BS.long()).masked_fill(~mask_BS, 0)
    turn_BS = (number_BS.amax(1, keepdim=True) - number_BS).masked_fill(~mask_BS, 0)
    begins_BS = F.pad(closes_BS[:, :-1], (1, 0), value=True)
    within_BS = (place_BS - (place_BS * begins_BS).cummax(1).values).masked_fill(~mask_BS, 0)
    turns, longest = (torch.stack([turn_BS.max(), within_BS.max()]) + 1).tolist()
    place_BUL = place_BS.new_full((rows, turns, longest), size)
    row_BS = torch.arange(rows, device=ids_BS.device)[:, None].expand(-1, size)
    place_BUL[row_BS[mask_BS], turn_BS[mask_BS], within_BS[mask_BS]] = place_BS[mask_BS]
    return TurnLayout(place_BUL, turn_BS, within_BS)


def by_utterance(x_BSD: Tensor, place_BUL: Tensor) -> Tensor:
    """Group states of the source by utterance: [B, U, L, D]; zeros where there is no word.

    `place_BUL` has the source positions of the L words of each of U utterances.
    """
    rows, size = x_BSD.shape[:2]
    first_B = torch.arange(rows, device=x_BSD.device) * (size + 1)
    index = (place_BUL.to(x_BSD.device) + first_B[:, None, None]).flatten()
    return F.pad(x_BSD, (0, 0, 0, 1)).flatten(0, 1).index_select(0, index).unflatten(0, place_BUL.shape)


class HRANEncoder(nn.Module):
    """The word encoder of the HRAN: a bidirectional GRU over each utterance, for all utterances in parallel."""

    def __init__(self, settings: HRANSettings, vocabulary: int):
        super().__init__()
        self.marker = settings.turn_token_id
        self.embed = TokenEmbedding(vocabulary, settings.embedding_width)
        self.drop = Dropout(settings.dropout)
        self.words = RecurrentLayer("gru", settings.embedding_width, settings.width // 2, (False, True))
        self.stream = HiddenStateHook("encoder")

    def forward(self, source: Source) -> tuple[Tensor, Tensor, TurnLayout]:
        """Encode conversations: word states [B, S, D], final states [B, D] of the last utterance, and the layout."""
        x_BSE = self.stream.see("embed", self.embed(source.ids_BS))
        rows = len(x_BSE)  # the batch size, or more if a listener has expanded one row into several
        layout = find_utterances(source.ids_BS.expand(rows, -1), source.mask_BS.expand(rows, -1), self.marker)
        turns = layout.place_BUL.shape[1]
        x_LNE = by_utterance(self.drop(x_BSE), layout.place_BUL).flatten(0, 1).transpose(0, 1)
        mask_NL = mask_or_none(layout.mask_BUL.flatten(0, 1))
        states_LND, (last_ND,) = self.words(x_LNE, None if mask_NL is None else mask_NL.t())
        row_B = torch.arange(rows, device=layout.turn_BS.device) * turns
        index_BS = (layout.within_BS * (rows * turns) + row_B[:, None] + layout.turn_BS).to(x_BSE.device)
        states_BSD = states_LND.flatten(0, 1).index_select(0, index_BS.flatten()).unflatten(0, index_BS.shape)
        states_BSD = self.stream.see("top", self.stream.see(0, states_BSD))
        return states_BSD, last_ND.unflatten(0, (rows, turns))[:, 0], layout


class Turn(NamedTuple):
    """One utterance of each conversation in the batch: keys and values of its L words, for the word attention."""

    key_BLD: Tensor
    value_BLD: Tensor
    mask_BL: Tensor
    place_BL: Tensor
    """Source positions of the words; the source length S where there is no word."""


class DecoderContext(NamedTuple):
    """Inputs of the decoder in addition to the word states: its first state, and keys and values of each utterance."""

    first_BD: Tensor
    """The first decoder state: the final word states of the last utterance."""
    turns: tuple[Turn, ...]
    """The utterances from last to first. Contexts with fewer utterances are padded with empty turns at the end."""


class TurnMemory(NamedTuple):
    """Keys and values of the words of one utterance, and two masks, which are None if they would be True everywhere.

    `mask_BL`: whether a word is real. `exists_N1`: for each of N hypotheses, whether its conversation has this
    utterance.
    """

    words: KeyValue
    mask_BL: Tensor | None
    exists_N1: Tensor | None


class HRANDecoder(nn.Module):
    """The decoder of the HRAN: attention over words and utterances, and a GRU that reads token and context vector."""

    def __init__(self, settings: HRANSettings):
        super().__init__()
        width, embedding = settings.width, settings.embedding_width
        self.word_attention = RecurrentAttention("additive", 2 * width, width, "decoder.word", inner=width)
        self.utterance_encoder = GRU(width, width)
        self.utterance_attention = RecurrentAttention("additive", width, width, "decoder.utterance")
        self.initial_utterance_state = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.initial_utterance_state, std=width**-0.5)
        self.drop = Dropout(settings.dropout, rows=-2)
        self.cell = GRU(embedding, width, fed=width)
        self.maxout = glorot(nn.Linear(2 * width + embedding, 2 * width), parts=2)
        self.tap = AttentionHook("decoder.cross")

    def forward(self, x_TNE: Tensor, state_ND: Tensor, memory: EncoderOutput) -> tuple[Tensor, Tensor]:
        """Run T steps with N embedded tokens each; N is the number of sentences or of hypotheses.

        Returns the inputs [T, N, D] of the output layer, and the state [N, D] after the last step.
        """
        turns = self._prepare(memory.extra.turns, len(state_ND))
        taps = TwoLevelHooks(self.word_attention.tap, self.utterance_attention.tap, self.tap)
        recorder = None
        if not all(tap.idle for tap in taps):
            places = [turn.place_BL for turn in memory.extra.turns]
            recorder = TwoLevelAttentionRecorder(taps, partial(self.context, turns), memory, places)
        contexts, states = [], []
        for read_NG in self.cell.input(self.drop(x_TNE)).unbind(0):
            context_ND = recorder.context(state_ND) if recorder else self.context(turns, state_ND)
            (state_ND,) = self.cell(self.cell.feed_in(read_NG, context_ND), (state_ND,))
            contexts.append(context_ND)
            states.append(state_ND)
        if recorder:
            recorder.record()
        read = torch.cat([torch.stack(states), x_TNE, torch.stack(contexts)], dim=-1)
        return torch.maximum(*self.maxout(read).chunk(2, dim=-1)), state_ND

    def context(
        self,
        turns: Sequence[TurnMemory],
        state_ND: Tensor,
        word: AttentionHook | None = None,
        utterance: AttentionHook | None = None,
    ) -> Tensor:
        """Compute the context vector [N, D] of each of N decoder states by attention over words, then over utterances.

        `word` and `utterance` are the hooks of the two levels.
        """
        above_ND = self.initial_utterance_state.repeat(len(state_ND), 1)
        levels = []
        for turn in turns:  # from the last utterance to the first: later states are part of the query
            guide_ND = torch.cat([state_ND, above_ND], dim=-1)
            seen_ND = self.word_attention(guide_ND, turn.words, turn.mask_BL, word)
            (next_ND,) = self.utterance_encoder(self.utterance_encoder.input(seen_ND), (above_ND,))
            above_ND = next_ND if turn.exists_N1 is None else torch.where(turn.exists_N1, next_ND, above_ND)
            levels.append(above_ND)
        level_NUD = torch.stack(levels, dim=1)
        (key_NUD,) = self.utterance_attention.prepare(level_NUD)
        return self.utterance_attention(state_ND, KeyValue(key_NUD, level_NUD), _turn_mask(turns), utterance)

    def _prepare(self, turns: Sequence[Turn], rows: int) -> list[TurnMemory]:
        prepared = []
        for turn in turns:
            exists_B = turn.mask_BL.any(-1)
            exists_N1 = None if bool(exists_B.all()) else exists_B.repeat_interleave(rows // len(exists_B))[:, None]
            prepared.append(TurnMemory(KeyValue(turn.key_BLD, turn.value_BLD), mask_or_none(turn.mask_BL), exists_N1))
        return prepared


def _turn_mask(turns: Sequence[TurnMemory]) -> Tensor | None:
    """Mask [N, U] of the utterances that the conversation of each hypothesis has; None if all have all U utterances."""
    missing = [turn.exists_N1 for turn in turns if turn.exists_N1 is not None]
    if not missing:
        return None
    every_N1 = torch.ones_like(missing[0])
    return torch.cat([every_N1 if turn.exists_N1 is None else turn.exists_N1 for turn in turns], dim=1)


class HRAN(Seq2Seq):
    """The HRAN network: word encoder, two levels of attention, decoder, output layer."""

    def __init__(self, settings: HRANSettings, source_vocabulary: int, target_vocabulary: int):
        super().__init__()
        self.encoder = HRANEncoder(settings, source_vocabulary)
        self.embed = TokenEmbedding(target_vocabulary, settings.embedding_width)
        self.decoder = HRANDecoder(settings)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(settings.width, target_vocabulary, bias=False)
        nn.init.normal_(self.output.weight, std=settings.width**-0.5)
        if settings.tie_embeddings in ("all", "target"):
            self.output.weight = self.embed.tokens.weight
        if settings.tie_embeddings == "all":
            self.encoder.embed.tokens.weight = self.embed.tokens.weight
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        """Encode conversations: word states and, in `extra`, the first decoder state and keys and values of words."""
        states_BSD, first_BD, layout = self.encoder(source)
        (key_BSD,) = self.decoder.word_attention.prepare(states_BSD)
        key_BULD, value_BULD = (by_utterance(x_BSD, layout.place_BUL) for x_BSD in (key_BSD, states_BSD))
        longest_U = layout.mask_BUL.sum(-1).amax(0).tolist()
        turns = tuple(
            Turn(*(part[:, turn, :length] for part in (key_BULD, value_BULD, layout.mask_BUL, layout.place_BUL)))
            for turn, length in enumerate(longest_U)
        )
        return EncoderOutput(states_BSD, source.mask_BS, DecoderContext(first_BD, turns))

    def start(self, memory: EncoderOutput) -> tuple[Tensor]:
        return (memory.extra.first_BD.unsqueeze(1),)

    def step(self, token_BW: Tensor, state: tuple[Tensor], memory: EncoderOutput) -> tuple[Tensor, tuple[Tensor]]:
        x_BWE = self.stream.see("embed", self.embed(token_BW))
        top_TND, after_ND = self.decoder(x_BWE.flatten(0, 1)[None], state[0].flatten(0, 1), memory)
        top_BWD = self.stream.see("top", top_TND[0].unflatten(0, token_BW.shape))
        return self.output(top_BWD), (after_ND.unflatten(0, token_BW.shape),)

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        x_BTE = self.stream.see("embed", self.embed(target_BT))
        top_TBD, _ = self.decoder(x_BTE.transpose(0, 1), memory.extra.first_BD, memory)
        return self.drop(self.stream.see("top", top_TBD.transpose(0, 1)))
