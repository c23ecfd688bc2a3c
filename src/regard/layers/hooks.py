"""Taps: the named places where one can look inside a running model, and step in.

An attention layer owns one tap. While nobody listens, a tap is a single attribute test. A listener receives what passes
as a `Seen` and may return other weights, which the layer then uses in place of its own: that gives head masking,
patching and every other intervention.

    with trace(model, "decoder.*.cross") as tape:
        model(source, target)
    tape["decoder.2.cross"].weights_BHTS
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

import torch
from torch import Tensor, nn

from regard.errors import ModelError, nearest


@dataclass(frozen=True)
class AttentionRecord:
    """What passed one attention: who looked where, at what, and what came of it."""

    name: str
    query_BHTK: Tensor
    key_BHSK: Tensor
    value_BHSK: Tensor
    weights_BHTS: Tensor
    output_BHTK: Tensor


Listener = Callable[[str, Tensor], Tensor | None]
"""Gets the tap's name and the weights; returns weights to use instead, or None to leave them."""

Recorder = Callable[[AttentionRecord], None]


class AttentionHook:
    """A named place in a model. `listeners` may replace the weights, in turn; `recorders` see the result."""

    def __init__(self, name: str):
        self.name = name
        self.listeners: list[Listener] = []
        self.recorders: list[Recorder] = []
        self.idle = True

    def replace(self, weights_BHTS: Tensor) -> Tensor:
        """Let each listener exchange the weights."""
        for listener in self.listeners:
            other = listener(self.name, weights_BHTS)
            if other is not None:
                if other.shape != weights_BHTS.shape:
                    raise ModelError(f"{self.name}: replaced weights must keep the shape {tuple(weights_BHTS.shape)}")
                weights_BHTS = other
        return weights_BHTS

    def record(self, seen: AttentionRecord) -> None:
        """Show what passed to each recorder."""
        for recorder in self.recorders:
            recorder(seen)

    @contextmanager
    def attached(self, listener: Listener | None = None, recorder: Recorder | None = None) -> Iterator[None]:
        """Attach for the length of a `with` block."""
        if listener is not None:
            self.listeners.append(listener)
        if recorder is not None:
            self.recorders.append(recorder)
        self.idle = False
        try:
            yield
        finally:
            if listener is not None:
                self.listeners.remove(listener)
            if recorder is not None:
                self.recorders.remove(recorder)
            self.idle = not (self.listeners or self.recorders)


class AttentionTrace(dict[str, AttentionRecord]):
    """What a trace saw last at each tap, by name; `calls[name]` holds every pass in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[AttentionRecord]] = {}

    def add(self, seen: AttentionRecord) -> None:
        """Keep one pass."""
        self[seen.name] = seen
        self.calls.setdefault(seen.name, []).append(seen)

    def steps(self, name: str) -> Tensor:
        """The weights of a decoding done one step at a time, joined along the target: [B, H, T, S]."""
        passes = [seen.weights_BHTS for seen in self.calls[name]]
        longest = max(weights.shape[-1] for weights in passes)
        padded = [nn.functional.pad(weights, (0, longest - weights.shape[-1])) for weights in passes]
        return torch.cat(padded, dim=-2)


class Loaded(Protocol):
    """What `regard.load` gives for a run with a network: a translator, a chatbot, a classifier, a tagger."""

    @property
    def model(self) -> nn.Module:
        """The network."""


def network_of(model: nn.Module | Loaded) -> nn.Module:
    """The network itself, or that of a loaded run."""
    found = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(found, nn.Module):
        raise ModelError(f"{type(model).__name__} has no network to look into; give a model or a loaded run")
    return found


def taps(model: nn.Module | Loaded) -> dict[str, AttentionHook]:
    """Every tap of a model by name, in the order of its layers."""
    found = (getattr(module, "tap", None) for module in network_of(model).modules())
    return {tap.name: tap for tap in found if isinstance(tap, AttentionHook)}


def match_taps(model: nn.Module | Loaded, patterns: str | Iterable[str]) -> list[AttentionHook]:
    """The taps whose names match a shell pattern such as "encoder.*.self"; an error when one matches nothing.

    "*" alone means whatever there is, which in a model without attention is nothing.
    """
    known = taps(model)
    chosen: dict[str, AttentionHook] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matched = {name: tap for name, tap in known.items() if fnmatchcase(name, pattern)}
        if not matched and pattern != "*":
            guess = nearest(pattern, known) or f"; there are {', '.join(known) or 'none'}"
            raise ModelError(f'nothing to look at is named "{pattern}"{guess}')
        chosen |= matched
    return list(chosen.values())


@contextmanager
def trace(model: nn.Module | Loaded, patterns: str | Iterable[str] = "*") -> Iterator[AttentionTrace]:
    """Record what passes the taps whose names match, for as long as the block runs.

    `model` is a network, or what `regard.load` gives.
    """
    tape = AttentionTrace()
    with ExitStack() as stack:
        for tap in match_taps(model, patterns):
            stack.enter_context(tap.attached(recorder=tape.add))
        yield tape


@contextmanager
def listen(model: nn.Module | Loaded, patterns: str | Iterable[str], listener: Listener) -> Iterator[None]:
    """Let `listener` see, and if it likes replace, the attention weights of the matching taps."""
    with ExitStack() as stack:
        for tap in match_taps(model, patterns):
            stack.enter_context(tap.attached(listener=listener))
        yield


def without_heads(*heads: int) -> Listener:
    """A listener that switches these heads off: their weights become zero, and so does what they add."""

    def switch_off(name: str, weights_BHTS: Tensor) -> Tensor:
        for head in heads:
            if not 0 <= head < weights_BHTS.shape[1]:
                raise ModelError(f"{name} has heads 0 to {weights_BHTS.shape[1] - 1}, and no head {head}")
        weights_BHTS = weights_BHTS.clone()
        weights_BHTS[:, list(heads)] = 0.0
        return weights_BHTS

    return switch_off


# Streams: the hidden states of a model, named and seen as they pass, layer after layer.
#
# Taps show where attention looks; a stream shows what it looks at and what becomes of it. Each side of a model owns
# one:
# "encoder.embed" is what the first layer reads, "encoder.0" what it gives, "encoder.top" what others read of that
# side.
# Where a whole sequence is read (`encode`, `hidden`, `forward`) a state is [B, T, D]; in `step`, which reads one
# token of
# each of W hypotheses, it is [B, W, D].
# While nobody listens, a state passes with a single attribute test.
#
#     with trace_states(model, "encoder.*") as states:
#         model(source, target)
#     states["encoder.0"]                      # [B, S, D]


StateListener = Callable[[str, Tensor], Tensor | None]
"""Gets the name of a place and its states [B, T, D], or [B, W, D] in `step`; returns states to go on with instead, or
None to leave them."""


class HiddenStateHook:
    """The states of one side of a model on their way up."""

    def __init__(self, side: str):
        self.side = side
        self.listeners: list[StateListener] = []

    def see(self, place: str | int, x_BTD: Tensor) -> Tensor:
        """Let each listener see, and if it likes exchange, the states at a place."""
        if not self.listeners:
            return x_BTD
        name = f"{self.side}.{place}"
        for listener in self.listeners:
            other = listener(name, x_BTD)
            if other is not None:
                if other.shape[1:] != x_BTD.shape[1:]:
                    raise ModelError(f"{name}: replaced states must keep the shape {tuple(x_BTD.shape)}")
                x_BTD = other
        return x_BTD


def streams(model: nn.Module) -> list[HiddenStateHook]:
    """The streams of a model."""
    found = (getattr(module, "stream", None) for module in model.modules())
    return [stream for stream in found if isinstance(stream, HiddenStateHook)]


@contextmanager
def listen_to_states(model: nn.Module, patterns: str | Iterable[str], listener: StateListener) -> Iterator[None]:
    """Let `listener` see, and replace if it likes, the states of the places whose names match a shell pattern."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)

    def choose(name: str, x_BTD: Tensor) -> Tensor | None:
        return listener(name, x_BTD) if any(fnmatchcase(name, pattern) for pattern in wanted) else None

    with ExitStack() as stack:
        for stream in streams(model):
            stream.listeners.append(choose)
            stack.callback(stream.listeners.remove, choose)
        yield


@contextmanager
def trace_states(model: nn.Module, patterns: str | Iterable[str] = "*") -> Iterator[dict[str, Tensor]]:
    """Keep the states of the places whose names match, in the order in which they were passed."""
    states: dict[str, Tensor] = {}
    with listen_to_states(model, patterns, states.__setitem__):
        yield states
