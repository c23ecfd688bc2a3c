"""Hooks: named points in a model where attention weights and hidden states can be recorded or replaced.

Every attention layer has an `AttentionHook` with a name such as "decoder.2.cross". Recorders receive an
`AttentionRecord` of the computation. Listeners may replace the weights, for example to mask heads.

    with trace(model, "decoder.*.cross") as tape:
        model(source, target)
    tape["decoder.2.cross"].weights_BHTS

The encoder and the decoder have one `HiddenStateHook` each, which gives every hidden state a name: "encoder.embed" is
the input of the first layer, "encoder.0" its output, "encoder.top" the output of the encoder. States are [B, T, D] in
`encode`, `hidden` and `forward`, which compute whole sequences, and [B, W, D] in `step`, which reads one token of each
of W hypotheses.

    with trace_states(model, "encoder.*") as states:
        model(source, target)
    states["encoder.0"]                      # [B, S, D]

An unused hook costs one attribute check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

import torch
from torch import Tensor, nn

from regard.errors import ModelError, nearest


@dataclass(frozen=True)
class AttentionRecord:
    """Queries, keys, values, weights and output of one forward pass of an attention layer, with its hook name."""

    name: str
    query_BHTK: Tensor
    key_BHSK: Tensor
    value_BHSK: Tensor
    weights_BHTS: Tensor
    output_BHTK: Tensor


Listener = Callable[[str, Tensor], Tensor | None]
"""listener(name, x): gets the name of a hook, and weights or states x; returns new values of x, or None to keep x."""
Recorder = Callable[[AttentionRecord], None]


class AttentionHook:
    """The hook of an attention layer. `listeners` may replace the weights; `recorders` get an `AttentionRecord`."""

    def __init__(self, name: str):
        self.name = name
        self.listeners: list[Listener] = []
        self.recorders: list[Recorder] = []
        self.idle = True

    def replace(self, weights_BHTS: Tensor) -> Tensor:
        return _call(self.listeners, self.name, weights_BHTS, "weights")

    def record(self, seen: AttentionRecord) -> None:
        for recorder in self.recorders:
            recorder(seen)

    @contextmanager
    def attached(self, listener: Listener | None = None, recorder: Recorder | None = None) -> Iterator[None]:
        """Within the `with` block, this hook calls the listener, the recorder, or both."""
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


def _call(listeners: Sequence[Listener], name: str, x: Tensor, what: str, first_axis: int = 0) -> Tensor:
    """Call each listener in turn with the hook name and x, and return x, which listeners may replace.

    `what`, "weights" or "states", names x in error messages. Listeners may change the size of the axes before
    `first_axis` only.
    """
    for listener in listeners:
        other = listener(name, x)
        if other is not None:
            if other.shape[first_axis:] != x.shape[first_axis:]:
                shapes = f"{tuple(other.shape)} instead of {tuple(x.shape)}"
                raise ModelError(f"{name}: a listener returned {what} of shape {shapes}; keep the shape or return None")
            x = other
    return x


class AttentionTrace(dict[str, AttentionRecord]):
    """Attention that `trace` recorded: maps each hook name to its last record; `calls[name]` has all its records."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[AttentionRecord]] = {}

    def add(self, seen: AttentionRecord) -> None:
        self[seen.name] = seen
        self.calls.setdefault(seen.name, []).append(seen)

    def steps(self, name: str) -> Tensor:
        """The weights [B, H, T, S] that the hook `name` recorded in T decoding steps; missing keys get zeros."""
        passes = [seen.weights_BHTS for seen in self.calls[name]]
        longest = max(weights.shape[-1] for weights in passes)
        padded = [nn.functional.pad(weights, (0, longest - weights.shape[-1])) for weights in passes]
        return torch.cat(padded, dim=-2)


class Predictor(Protocol):
    """A loaded run with a network, as `regard.load` returns it: a translator, a chatbot, a classifier or a tagger."""

    @property
    def model(self) -> nn.Module: ...


def attention_hooks(model: nn.Module | Predictor) -> dict[str, AttentionHook]:
    """All attention hooks of a model (or of a loaded run) by name, in the order of the layers."""
    network = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(network, nn.Module):
        raise ModelError(f"{type(model).__name__} has no neural network; pass a model, or a loaded run that has one")
    found = (getattr(module, "tap", None) for module in network.modules())
    return {tap.name: tap for tap in found if isinstance(tap, AttentionHook)}


def match_hooks(model: nn.Module | Predictor, patterns: str | Iterable[str]) -> list[AttentionHook]:
    """The attention hooks whose names match one of the patterns, e.g. "encoder.*.self".

    A pattern that matches no hook is an error, except "*".
    """
    known = attention_hooks(model)
    chosen: dict[str, AttentionHook] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matched = {name: tap for name, tap in known.items() if fnmatchcase(name, pattern)}
        if not matched and pattern != "*":
            guess = nearest(pattern, known) or f"; there are {', '.join(known) or 'none'}"
            raise ModelError(f'the model has no attention layer named "{pattern}"{guess}')
        chosen |= matched
    return list(chosen.values())


@contextmanager
def trace(model: nn.Module | Predictor, patterns: str | Iterable[str] = "*") -> Iterator[AttentionTrace]:
    """Within the `with` block, record the attention of all hooks whose names match one of the patterns.

    Yields an `AttentionTrace`, which has the records by hook name. Patterns are e.g. "decoder.*.cross".
    """
    tape = AttentionTrace()
    with ExitStack() as stack:
        for tap in match_hooks(model, patterns):
            stack.enter_context(tap.attached(recorder=tape.add))
        yield tape


@contextmanager
def listen(model: nn.Module | Predictor, patterns: str | Iterable[str], listener: Listener) -> Iterator[None]:
    """Within the `with` block, call `listener(name, weights)` at all attention hooks whose names match a pattern.

    Patterns are e.g. "decoder.*.cross". If the listener does not return None, the model continues with the returned
    weights.
    """
    with ExitStack() as stack:
        for tap in match_hooks(model, patterns):
            stack.enter_context(tap.attached(listener=listener))
        yield


def without_heads(*heads: int) -> Listener:
    """Return a listener for `listen` that sets the attention weights of the heads with these indices to zero."""

    def mask(name: str, weights_BHTS: Tensor) -> Tensor:
        for head in heads:
            if not 0 <= head < weights_BHTS.shape[1]:
                raise ModelError(f"{name} has heads 0 to {weights_BHTS.shape[1] - 1}; there is no head {head}")
        weights_BHTS = weights_BHTS.clone()
        weights_BHTS[:, list(heads)] = 0.0
        return weights_BHTS

    return mask


# ---------------------------------------------------------------------------------------------------------------------
# Hidden states


class HiddenStateHook:
    """The hook for all hidden states of the encoder or of the decoder; `side` is "encoder" or "decoder"."""

    def __init__(self, side: str):
        self.side = side
        self.listeners: list[Listener] = []

    def see(self, place: str | int, x_BTD: Tensor) -> Tensor:
        """Call the listeners with the states x of the layer `place`, by the name "{side}.{place}", e.g. "encoder.0".

        Returns x, which listeners may replace.
        """
        return _call(self.listeners, f"{self.side}.{place}", x_BTD, "states", 1) if self.listeners else x_BTD


def state_hooks(model: nn.Module) -> list[HiddenStateHook]:
    found = (getattr(module, "stream", None) for module in model.modules())
    return [stream for stream in found if isinstance(stream, HiddenStateHook)]


@contextmanager
def listen_to_states(model: nn.Module, patterns: str | Iterable[str], listener: Listener) -> Iterator[None]:
    """Within the `with` block, call `listener(name, states)` for all hidden states whose names match a pattern.

    Names are e.g. "encoder.0". If the listener does not return None, the model continues with the returned states.
    """
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)

    def choose(name: str, x_BTD: Tensor) -> Tensor | None:
        return listener(name, x_BTD) if any(fnmatchcase(name, pattern) for pattern in wanted) else None

    with ExitStack() as stack:
        for stream in state_hooks(model):
            stream.listeners.append(choose)
            stack.callback(stream.listeners.remove, choose)
        yield


@contextmanager
def trace_states(model: nn.Module, patterns: str | Iterable[str] = "*") -> Iterator[dict[str, Tensor]]:
    """Within the `with` block, record the hidden states whose names match a pattern, e.g. "encoder.*".

    Yields a dictionary of states by name. After several forward passes it has the states of the last one.
    """
    states: dict[str, Tensor] = {}
    with listen_to_states(model, patterns, states.__setitem__):
        yield states
