"""Small runs for tests: a few hundred phrasebook pairs and a model that trains in seconds."""

from __future__ import annotations

from pathlib import Path

from regard.data.builtin import read_phrases

SETTINGS = [
    "tokenizer.vocab_size=400",
    "model.width=32",
    "model.heads=2",
    "model.ffn_width=64",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "train.batch_tokens=256",
    "train.warmup_steps=10",
    "train.precision=float32",  # the plan's choice hangs on a measurement, and so on how busy the machine is
    "train.learning_rate=0.005",
    "train.log_every=2",
    "train.validate_every=8",
    "train.checkpoint_every=3",
    "train.validation_sentences=10",
    "search.max_length_ratio=1.0",  # what has learnt nothing never ends
    "search.max_length_extra=5",
]

SIZES = {
    "bahdanau": ("model.width=16", "model.embedding_width=16"),
    "luong-general": ("model.width=16", "model.embedding_width=16"),
    "gnmt": ("model.width=16", "model.embedding_width=16"),
    "transformer-moe": (
        "model.width=32",
        "model.heads=2",
        "model.ffn_width=32",
        "model.encoder_layers=2",
        "model.decoder_layers=2",
        "model.experts=4",
    ),
    "convs2s": ("model.width=16", "model.embedding_width=16"),
    "deep-att": ("model.width=16", "model.embedding_width=16", "model.encoder_layers=2", "model.decoder_layers=2"),
    "bytenet": ("model.width=16", "model.encoder_layers=5", "model.decoder_layers=5"),
}
"""Settings of other architectures that train in seconds, too."""


def write_corpus(folder: Path, train: int = 300, held_out: int = 20) -> None:
    """Text files train.en, train.it, valid.en, valid.it, test.en, test.it."""
    phrases = read_phrases()
    parts = {
        "train": phrases[:train],
        "valid": phrases[train : train + held_out],
        "test": read_phrases("test")[:held_out],
    }
    for part, chosen in parts.items():
        for side, language in (("source", "en"), ("target", "it")):
            lines = [getattr(phrase, side) + "\n" for phrase in chosen]
            (folder / f"{part}.{language}").write_text("".join(lines), encoding="utf-8")


def train_arguments(folder: Path, out: Path, *settings: str, arch: str = "") -> list[str]:
    """Arguments of `regard train` for such a run. If `arch` is given, `settings` must contain its sizes."""
    arguments = ["train", "--out", str(out), *(["--arch", arch] if arch else [])]
    for flag in ("", "valid-", "test-"):
        part = flag.rstrip("-") or "train"
        arguments += [f"--{flag}source", str(folder / f"{part}.en"), f"--{flag}target", str(folder / f"{part}.it")]
    common = [setting for setting in SETTINGS if not (arch and setting.startswith("model."))]
    for setting in (*common, *settings):
        arguments += ["--set", setting]
    return arguments
