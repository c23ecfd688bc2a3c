"""What coarser arithmetic costs: BLEU of a quantized model beside that of full precision."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.convert.engine import Engine, Quantization
from regard.data.formats import Pair
from regard.run import Run


@dataclass(frozen=True)
class QuantizationLoss:
    """BLEU of both, by CTranslate2 with the search of the run."""

    quantization: Quantization
    sentences: int
    full: float
    small: float

    def __str__(self) -> str:
        change = self.small - self.full
        scores = f"float32 {self.full:.2f}, {self.quantization} {self.small:.2f} ({change:+.2f})"
        return f"BLEU on {self.sentences:,} sentences: {scores}"


def quantization_loss(run: Run, folder: Path, quantization: Quantization, pairs: Sequence[Pair]) -> QuantizationLoss:
    """Translate these pairs with the quantized model in `folder` and with full precision."""
    from regard.convert.ctranslate2 import convert_run
    from regard.tasks.evaluate import score_translations

    search, (source, target) = run.recipe.search, run.tokenizers
    ids = source.encode_many([pair.source for pair in pairs])
    longest = [int(search.max_ratio * len(row)) + search.max_extra for row in ids]
    bleu = []
    with tempfile.TemporaryDirectory() as place:
        for model in (convert_run(run, Path(place) / "full", "float32"), folder):
            found = Engine(model, source, target).translate(
                ids, longest, beam=search.beam, penalty=search.length_penalty, stop="enough"
            )
            texts = [target.decode(best.tokens) for [best] in found]
            bleu.append(score_translations(texts, [pair.target for pair in pairs]).bleu)
    return QuantizationLoss(quantization, len(pairs), *bleu)
