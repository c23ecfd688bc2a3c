"""Virtual environments for the other programs, separate from the project's own: folders in benchmarks/out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

OUT = Path(__file__).parents[1] / "out"
TORCH = "torch==2.13.0"
# JoeyNMT imports importlib_metadata without requiring it, and fails with newer versions of SentencePiece.
PACKAGES = (
    "transformers>=5,<6",
    "safetensors",
    "joeynmt==2.3.0",
    "importlib_metadata",
    "sentencepiece<0.2",
    "sacremoses",
    TORCH,
)
# keras-hub requires tensorflow-text, and that the package tensorflow. Its layers also work with tensorflow-cpu alone.
KERAS_HUB = "keras-hub==0.32.0"
KERAS = ("tensorflow-cpu==2.21.0", "keras==3.15.1", "regex", "sentencepiece", "tokenizers")

GENSIM = ("gensim==4.4.0",)
SERIES = ("aeon==1.6.0", "scikit-learn")


def peer_python() -> Path:
    """The Python interpreter of the environment with the PyTorch programs, which is created on first use."""
    return _make_environment("peers", PACKAGES, alone=(TORCH,))  # torch alone and first: the CPU build


def keras_python() -> Path:
    """The Python interpreter of the environment with Keras and TensorFlow, which is created on first use."""
    return _make_environment("keras", KERAS, alone=(KERAS_HUB,))


def series_python() -> Path:
    """The Python interpreter of the environment with aeon and scikit-learn, which is created on first use."""
    return _make_environment("series", SERIES)


def gensim_python() -> Path:
    """The Python interpreter of the environment with gensim, which is created on first use."""
    return _make_environment("gensim", GENSIM)


def _make_environment(name: str, packages: Sequence[str], alone: Sequence[str] = ()) -> Path:
    """Create the environment if its packages have changed. `alone`: installed first, without their requirements."""
    folder = OUT / name
    python, ready, listed = folder / "bin" / "python", folder / ".ready", "\n".join([*packages, *alone])
    if ready.is_file() and ready.read_text() == listed:
        return python
    print(f"setting up other programs in {folder} (a minute or two)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if alone:
        subprocess.run([*pip, "--no-deps", *alone], check=True)
    subprocess.run([*pip, "uv"], check=True)
    subprocess.run([python, "-m", "uv", "pip", "install", "--quiet", "--python", python, *packages], check=True)
    ready.write_text(listed)
    return python
