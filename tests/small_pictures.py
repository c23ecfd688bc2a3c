"""Small pictures with captions in two languages, for tests: a colored square in a corner."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

COLORS = {"red": ("rot", (214, 40, 40)), "blue": ("blau", (40, 90, 210)), "green": ("grün", (30, 150, 60))}
PLACES = {"top left": ("oben links", (0, 0)), "bottom right": ("unten rechts", (8, 8))}

SETTINGS = [
    "tokenizer.kind=bpe", "tokenizer.vocab_size=300",
    "model.encoder_layers=1", "model.decoder_layers=1", "model.width=32", "model.heads=2",
    "model.ffn_width=64", "model.dropout=0.1", "pictures.size=[16,16]", "pictures.patch_size=4",
    "pictures.convolutions=1", "pictures.shift=0.05", "train.batch_tokens=512", "train.warmup_steps=5",
    "train.log_every=2", "train.validate_every=6", "train.checkpoint_every=5", "train.precision=float32",
    "train.regularization_warmup=10", "search.beam_size=2",
]  # fmt: skip
ATTENDING_LSTM = ["model.width=32", "model.embedding_width=16", "train.optimizer=adam"]
"""Settings of a small model of "Show, Attend and Tell", in place of those of the Transformer."""


def write_pictures(folder: Path, count: int = 120) -> Path:
    """Write pictures into images/ of a folder, and the list captions.tsv with English and German captions."""
    images = folder / "images"
    images.mkdir(exist_ok=True)
    rows = ["picture\ten\tde"]
    for number in range(count):
        color, (german, pixels) = list(COLORS.items())[number % 3]
        place, (there, corner) = list(PLACES.items())[number // 3 % 2]
        picture = Image.new("RGB", (16, 16), (255 - number % 40, 255, 255))
        picture.paste(pixels, (*corner, corner[0] + 6 + number % 3, corner[1] + 6))
        picture.save(images / f"{number}.png")
        rows.append(f"{number}.png\ta {color} square, {place}\tein Quadrat in {german}, {there}")
    path = folder / "captions.tsv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def train_arguments(folder: Path, out: Path, *settings: str, arch: str = "") -> list[str]:
    """Arguments of `regard train` for the pictures in a folder; by default, only English captions are learned."""
    listed = folder / "captions.tsv" if (folder / "captions.tsv").exists() else write_pictures(folder)
    arguments = ["train", "--task", "caption", str(listed), "--images", str(folder / "images"), "--out", str(out)]
    own = [setting for setting in SETTINGS if not (arch and setting.startswith("model."))]
    own += ['caption.languages=["en"]', *(ATTENDING_LSTM if arch else [])]
    arguments += ["--arch", arch] if arch else []
    return arguments + [word for setting in (*own, *settings) for word in ("--set", setting)]
