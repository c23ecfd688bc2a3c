"""Export to Pegasus, in the layout of Hugging Face `transformers`: for Transformers with pre-norm.

Pegasus (Zhang et al. 2020) is, in transformers, the Transformer that Marian is, but with pre-norm and a norm after the
last block of the encoder and of the decoder; source and target share one vocabulary and one embedding matrix. Order of
dimensions, search settings and tokenizers are those of `marian`: the folder names MarianTokenizer as its tokenizer.
CTranslate2 converts such a folder, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.config import Recipe
from regard.export import Log, Option, marian, transformer_settings
from regard.export.weights import LayerNames, NamePair, pairs_of
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run

NEEDS: tuple[str, ...] = ()
OPTIONS: dict[str, Option] = {}

LAST_NORM = LayerNames("norm", ("layer_norm.",), "norm")


def obstacle(recipe: Recipe) -> str:
    def further(model: TransformerSettings) -> dict[str, bool]:
        tied = model.tie_embeddings
        return {
            f'model.norm = "{model.norm}"; Pegasus normalizes before each sub-layer': model.norm != "pre",
            f'model.tie_embeddings = "{tied}"; Pegasus has one embedding matrix': tied != "all",
            "tokenizer.joint = false; Pegasus has one vocabulary": not recipe.tokenizer.joint,
        }

    return marian.layout_obstacle(recipe, "Pegasus", further)


def pairs(settings: TransformerSettings) -> Iterator[NamePair]:
    """Yield the name of each parameter in our model and in Pegasus."""
    yield from marian.pairs(settings)
    yield from pairs_of("encoder.", "model.encoder.", [LAST_NORM])
    yield from pairs_of("", "model.decoder.", [LAST_NORM])


def write(run: Run, folder: Path, log: Log) -> None:
    """Write a folder that `transformers` opens as PegasusForConditionalGeneration and MarianTokenizer."""
    config = {
        "architectures": ["PegasusForConditionalGeneration"],
        "model_type": "pegasus",
        "normalize_before": True,
        "tie_word_embeddings": True,
    }
    marian.write_layout(run, folder, log, pairs(transformer_settings(run.recipe)), config)
