"""Export to ONNX: two graphs, `encoder.onnx` run once per sentence and `decoder.onnx` run once per token.

encoder.onnx   ids [B, S], mask [B, S]                           -> memory.<layer>.key and .value [B, H, S, K]
decoder.onnx   token [B], mask [B, S], memory..., past... [B, H, T, K] -> logits [B, V], present... [B, H, T + 1, K]

`mask` is true where a token is real. The first call takes the start token and a past of length 0; each later call takes
the last token and the `present` outputs of the call before. Rows are sentences or hypotheses; the past has the same
length in all rows. Each attention has its own number of heads H; an attention without heads gets one head of zeros.
"""

from __future__ import annotations

from pathlib import Path

from regard.config import Recipe
from regard.export import Log, Option, export_folder, transformer_obstacle, transformer_settings, write_json
from regard.run import Run
from regard.text.tokenizer import EOS, SOS, UNK

NEEDS = ("onnx", "onnxscript")
OPTIONS: dict[str, Option] = {}
LONGEST = 1024  # number of positions of the graphs, unless positional encodings are learned


def obstacle(recipe: Recipe) -> str:
    return transformer_obstacle(recipe, "the ONNX export", "local attention has no fixed graph")


def write(run: Run, folder: Path, log: Log) -> None:
    """Write the graphs, the tokenizers, and regard.json with the ids of special tokens and the number of positions."""
    from regard.export.onnx_graphs import load_transformer, write_graphs

    settings = transformer_settings(run.recipe)
    longest = settings.max_positions if settings.positional_encoding == "learned" else LONGEST
    model = load_transformer(run, settings)
    source, target = run.tokenizers
    with export_folder(run, folder, {"format": "onnx", "longest": longest}) as draft:
        write_graphs(model, settings, longest, draft)
        source.save(draft, "source")
        target.save(draft, "target")
        ids = {"start": SOS, "end": EOS, "unknown": UNK, "source_padding": source.pad, "target_padding": target.pad}
        write_json(draft / "regard.json", {"ids": ids, "longest": longest})
