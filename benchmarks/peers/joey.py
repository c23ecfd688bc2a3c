"""JoeyNMT's side of the training benchmark: its data, its configuration, and its log read back."""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multi30k import Encoded

CONFIGURATION = """
name: "peer"
joeynmt_version: "2.3.0"
model_dir: "{folder}/model"
use_cuda: False
random_seed: 1
data:
  train: "{folder}/train"
  dev: "{folder}/dev"
  dataset_type: "plain"
  src: {{lang: "en", level: "word", lowercase: False, max_length: 250, voc_file: "{folder}/vocabulary"}}
  trg: {{lang: "de", level: "word", lowercase: False, max_length: 250, voc_file: "{folder}/vocabulary"}}
testing: {{beam_size: 1, batch_size: 64, batch_type: "sentence", eval_metrics: ["bleu"]}}
training:
  optimizer: "adam"
  adam_betas: [0.9, 0.98]
  learning_rate: 0.0015
  scheduling: "warmupinversesquareroot"
  learning_rate_warmup: 200
  clip_grad_norm: 1.0
  loss: "crossentropy"
  label_smoothing: 0.1
  normalization: "tokens"
  batch_size: {batch_tokens}
  batch_type: "token"
  epochs: 1000
  max_updates: 1000000
  validation_freq: 1000000
  logging_freq: 1
  shuffle: True
model:
  initializer: "xavier_uniform"
  tied_embeddings: True
  tied_softmax: True
  encoder:
    {{type: "transformer", num_layers: 3, num_heads: 4, embeddings: {{embedding_dim: 256, scale: True}},
     hidden_size: 256, ff_size: 1024, dropout: 0.1, layer_norm: "post"}}
  decoder:
    {{type: "transformer", num_layers: 3, num_heads: 4, embeddings: {{embedding_dim: 256, scale: True}},
     hidden_size: 256, ff_size: 1024, dropout: 0.1, layer_norm: "post"}}
"""


def write_inputs(encoded: Encoded, folder: Path, batch_tokens: int) -> Path:
    """Write the same subwords as words separated by spaces, the same vocabulary, and the configuration."""
    for language, side in (("en", encoded.source), ("de", encoded.target)):
        lines = [" ".join(encoded.tokenizer.token(id) for id in ids) for ids in side]
        (folder / f"train.{language}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        (folder / f"dev.{language}").write_text("".join(line + "\n" for line in lines[:50]), encoding="utf-8")
    known = {encoded.tokenizer.token(id) for side in (encoded.source, encoded.target) for ids in side for id in ids}
    special = ["<unk>", "<pad>", "<s>", "</s>"]
    fill = [
        f"<unused {number}>".replace(" ", "") for number in range(encoded.tokenizer.size - len(known) - len(special))
    ]
    (folder / "vocabulary").write_text("\n".join([*special, *sorted(known), *fill]) + "\n", encoding="utf-8")
    configuration = folder / "configuration.yaml"
    configuration.write_text(CONFIGURATION.format(folder=folder, batch_tokens=batch_tokens))
    return configuration


def read_tokens(log: Path) -> list[float]:
    """Target tokens per step. JoeyNMT logs tokens per second since the line before, and the time of each line."""
    pattern = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}).*Tokens per Sec:\s+([\d.]+)", re.MULTILINE)
    found = pattern.findall(log.read_text())
    times = [datetime.fromisoformat(second).timestamp() + int(part) / 1000 for second, part, _ in found]
    spans = itertools.pairwise(times)
    return [float(speed) * (after - before) for (_, _, speed), (before, after) in zip(found[1:], spans, strict=True)]
