"""Streams: the hidden states of a model, named and seen as they pass, layer after layer.

Taps show where attention looks; a stream shows what it looks at and what becomes of it. Each side of a model owns one:
"encoder.embed" is what the first layer reads, "encoder.0" what it gives, "encoder.top" what others read of that side.
Where a whole sequence is read (`encode`, `hidden`, `forward`) a state is [B, T, D]; in `step`, which reads one token of
each of W hypotheses, it is [B, W, D].
While nobody listens, a state passes with a single attribute test.

    with trace_states(model, "encoder.*") as states:
        model(source, target)
    states["encoder.0"]                      # [B, S, D]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

from regard.errors import ModelError

StateListener = Callable[[str, Tensor], Tensor | None]
"""Gets the name of a place and its states [B, T, D], or [B, W, D] in `step`; returns states to go on with instead, or
None to leave them."""


class Stream:
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


def streams(model: nn.Module) -> list[Stream]:
    """The streams of a model."""
    found = (getattr(module, "stream", None) for module in model.modules())
    return [stream for stream in found if isinstance(stream, Stream)]


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
