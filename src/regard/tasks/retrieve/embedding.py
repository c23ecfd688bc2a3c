"""Text encoders: a trained encoder, or a sentence-embedding model in a folder. They return vectors of length one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import in_batches, make_sources
from regard.errors import RunError, SettingsError
from regard.models.base import Network
from regard.run import WEIGHTS, Run
from regard.tasks.retrieve.settings import RetrieveSettings
from regard.text.tokenizer import Tokenizer

Vectors = NDArray[np.float32]


def open_embedder(run: Run, settings: RetrieveSettings) -> Embedder:
    if settings.encoder:
        return FolderEmbedder(Path(settings.encoder), settings)
    if not run.recipe.data.train:
        raise RunError(f'{run.folder}: has no encoder, because it was not trained; set retrieve.method = "bm25"')
    model = run.load_network()
    mark = hashlib.sha256((run.folder / WEIGHTS).read_bytes()).hexdigest()
    return TrainedEmbedder(model, run.tokenizers[0], settings, mark)


class TrainedEmbedder:
    """Encodes texts as vectors with the trained encoder of a run. `mark` is a hash of its weights."""

    def __init__(self, model: Network, tokenizer: Tokenizer, settings: RetrieveSettings, mark: str = ""):
        self.model, self.tokenizer, self.settings, self.mark = model, tokenizer, settings, mark

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> Vectors:
        device = self.model.output.weight.device
        ids = [one[: self.settings.max_tokens] for one in self.tokenizer.encode_many(list(texts))]
        vectors = np.zeros((len(texts), self.model.output.out_features), np.float32)
        for places in in_batches([len(one) + 1 for one in ids], self.settings.batch_tokens):
            batch = make_sources([ids[place] for place in places], self.tokenizer.pad)
            vectors[places] = self.model(batch.to(device)).float().cpu().numpy()
        return vectors


class FolderEmbedder:
    """Encodes texts as vectors with a Hugging Face or sentence-transformers model in a local folder.

    A vector is the mean of the last hidden states of a text, or the first of them (CLS), as the folder configures it.
    Weights are read only from safetensors, nothing is downloaded, and no code in the folder is run.
    """

    def __init__(self, folder: Path, settings: RetrieveSettings):
        self.settings = settings
        config = folder / "config.json"
        if not config.is_file():
            raise SettingsError(
                f"retrieve.encoder: {folder} has no config.json; give the folder of a Hugging Face model"
            )
        self._by_first = _pools_by_first(folder)
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError:
            raise SettingsError(
                'retrieve.encoder needs transformers, which is not installed: pip install "regard[embed]"'
            ) from None
        safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(folder), **safe)
            model = AutoModel.from_pretrained(str(folder), use_safetensors=True, **safe)
        except Exception as error:  # transformers raises errors of many kinds
            reason = " ".join(str(error).split())[:200]
            raise SettingsError(
                f"retrieve.encoder: {folder} cannot be opened ({reason}); choose another model folder"
            ) from None
        self._model = model.eval().requires_grad_(False)
        sizes = [f"{path.name} {path.stat().st_size}" for path in sorted(folder.glob("*.safetensors"))]
        self.mark = hashlib.sha256(config.read_bytes() + " ".join(sizes).encode()).hexdigest()

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> Vectors:
        most = self.settings.max_tokens
        made: dict[int, Vectors] = {}
        for places in in_batches([min(len(text) // 4 + 3, most) for text in texts], self.settings.batch_tokens):
            chosen = [texts[place] for place in places]
            batch = self._tokenizer(chosen, padding=True, truncation=True, max_length=most, return_tensors="pt")
            states_BSD = self._model(**batch).last_hidden_state.float()
            real_BS1 = batch["attention_mask"][..., None].float()
            mean_BD = (states_BSD * real_BS1).sum(1) / real_BS1.sum(1).clamp(min=1.0)
            pooled_BD = states_BSD[:, 0] if self._by_first else mean_BD
            made |= zip(places, torch.nn.functional.normalize(pooled_BD, dim=-1).numpy(), strict=True)
        return np.stack([made[place] for place in range(len(texts))])


Embedder = TrainedEmbedder | FolderEmbedder
"""Encodes texts as vectors of length one. `mark` is a hash of the encoder, to recognize outdated vectors."""


def _pools_by_first(folder: Path) -> bool:
    """Whether the sentence-transformers configuration in `folder` sets CLS pooling (first state), not mean pooling."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return False
    settings = json.loads(path.read_text(encoding="utf-8"))
    modes = {name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True}
    if not modes <= {"pooling_mode_mean_tokens", "pooling_mode_cls_token"}:
        raise SettingsError(
            f"retrieve.encoder: {path} sets {', '.join(sorted(modes))}; "
            "choose a model with mean or cls pooling, no other is supported"
        )
    return "pooling_mode_cls_token" in modes
