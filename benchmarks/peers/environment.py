"""A virtual environment for the other programs, separate from the project's own: benchmarks/out/peers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "out" / "peers"
# JoeyNMT imports importlib_metadata without requiring it, and fails with newer versions of SentencePiece.
PACKAGES = (
    "transformers>=5,<6",
    "safetensors",
    "joeynmt==2.3.0",
    "importlib_metadata",
    "sentencepiece<0.2",
    "sacremoses",
)


def peer_python() -> Path:
    """The Python interpreter of this environment, which is created on first use."""
    python = FOLDER / "bin" / "python"
    ready = FOLDER / ".ready"
    if ready.is_file() and ready.read_text() == "\n".join(PACKAGES):
        return python
    print(f"setting up the peers in {FOLDER} (a minute or two)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "torch==2.13.0"], check=True)  # alone and first: the CPU build
    subprocess.run([*pip, "uv"], check=True)
    install = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, *PACKAGES, "torch==2.13.0"], check=True)
    ready.write_text("\n".join(PACKAGES))
    return python
