"""Where models look in the source while they write: for coverage, and for words that the vocabulary does not have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import torch
from torch import Tensor

from regard.data.batch import make_sources
from regard.data.tokenizer import SOS, UNK, Tokenizer
from regard.errors import SettingsError
from regard.layers.taps import Seen, match_taps, taps
from regard.models.base import Seq2Seq

CROSS = "decoder*cross"


class Gaze:
    """Listens to every attention between target and source, of all heads, layers and models, and averages it."""

    def __init__(self, models: Sequence[Seq2Seq]):
        if not all(any(name.endswith("cross") for name in taps(model)) for model in models):
            raise SettingsError("search.coverage_penalty and replace_unknown need a model with attention to the source")
        self.models = models
        self._seen: list[Tensor] = []
        self._stack = ExitStack()

    def __enter__(self) -> Gaze:
        for model in self.models:
            for tap in match_taps(model, CROSS):
                self._stack.enter_context(tap.attached(recorder=self._see))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def take(self) -> Tensor:
        """Where they looked since the last time: [B, T, S], a row sums to 1."""
        looked_BTS = torch.stack(self._seen).mean(0)
        self._seen.clear()
        return looked_BTS

    def _see(self, seen: Seen) -> None:
        self._seen.append(seen.weights_BHTS.mean(1))


@torch.inference_mode()
def replace_unknown(
    models: Sequence[Seq2Seq],
    source: Tokenizer,
    target: Tokenizer,
    texts: Sequence[str],
    outputs: Sequence[Sequence[int]],
) -> list[str]:
    """The outputs as text, each unknown word replaced by the source word it looked at most (Zhou et al. 2016)."""
    device = models[0].output.weight.device
    pieces = [source.pieces(text) for text in texts]
    batch = make_sources([[piece.id for piece in row] for row in pieces], source.pad).to(device)
    longest = max(map(len, outputs))
    rows = [[SOS, *output, *[target.pad] * (longest - len(output))] for output in outputs]
    with Gaze(models) as gaze:
        for model in models:
            model(batch, torch.tensor(rows, device=device))
    places_BT = gaze.take()[:, :, :-1].masked_fill(~batch.mask_BS[:, None, 1:], -1.0).argmax(-1).tolist()
    made = []
    for text, output, there, looked in zip(map(source.normalize, texts), outputs, pieces, places_BT, strict=True):
        written, end = target.decode(output), 0
        parts = []
        for piece, place in zip(target.pieces_of(output), looked, strict=False):
            if piece.id == UNK:
                parts += [written[end : piece.start], text[there[place].start : there[place].end]]
                end = piece.end
        made.append("".join([*parts, written[end:]]))
    return made
