"""Word vectors as the first values of embeddings: `train.embeddings`, `train.target_embeddings`.

The vectors come from a file, or from the embeddings of another run with a vocabulary of words. They may start any
network that has a table of token embeddings (`Network.embedding_tables`), so the settings are in [train] and not in the
settings of every architecture. A word without a vector takes that of its lower-case form, else it keeps its random
values. All vectors are multiplied by one number, so that their elements have the mean square that the architecture
starts with.

With `train.freeze_embeddings`, the rows from the file are not trained (`training/frozen.py`); the others are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.config import Recipe
from regard.config.recipe import join_tables
from regard.data.vectors import VectorFile, read_vectors
from regard.errors import RunError, SettingsError
from regard.files import write_atomically
from regard.models.base import Network
from regard.run import Run
from regard.text.tokenizer import FIRST_TOKEN, SPACE_MARK, Tokenizer, words_of

Tables = Mapping[str, Mapping[str, Any]]
SETTINGS = {"source": "embeddings", "target": "target_embeddings"}
"""The setting of [train] with the vectors of each side."""
FROZEN = "frozen-rows.json"
"""File of a run with the indices of the frozen rows, by the name of the parameter."""


def files_of(recipe: Recipe) -> dict[str, str]:
    """The files or runs with vectors, by side; empty if training starts without vectors."""
    return {side: file for side, name in SETTINGS.items() if (file := getattr(recipe.train, name))}


def with_words(given: Tables) -> Tables:
    """If the settings `given` by the user name vectors and no kind of tokenizer, add a vocabulary of words."""
    train = given.get("train", {})
    if not any(train.get(name) for name in SETTINGS.values()):
        return given
    return join_tables({"tokenizer": {"kind": "word"}}, given)


def check_vectors(recipe: Recipe) -> None:
    """Raise an error if the settings of word vectors contradict others."""
    train, files = recipe.train, files_of(recipe)
    if train.freeze_embeddings and not files:
        raise SettingsError("train.freeze_embeddings: there are no vectors to freeze; set train.embeddings")
    if not files:
        return
    name = f"train.{SETTINGS[next(iter(files))]}"
    if recipe.tokenizer.kind != "word":
        kind = recipe.tokenizer.kind
        raise SettingsError(f'{name}: the vectors are of words; set tokenizer.kind to "word", not "{kind}"')
    if train.start_from:
        raise SettingsError(f"{name}: the embeddings come from the run in train.start_from; leave one of them out")
    if train.freeze_embeddings and train.fsdp:
        raise SettingsError("train.freeze_embeddings does not work with train.fsdp; set one of them to false")


def start_embeddings(run: Run, network: Network, log: Callable[[str], None]) -> dict[str, Any]:
    """Copy vectors into the embeddings of `network`, a new network of `run`. Return the facts for the card.

    With `train.freeze_embeddings`, the indices of the rows are written into the run.
    """
    recipe, tables, facts = run.recipe, network.embedding_tables(), dict[str, Any]()
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    frozen: dict[str, set[int]] = {}
    for side, file in files_of(recipe).items():
        setting = f"train.{SETTINGS[side]}"
        if side not in tables:
            what = "no table of word embeddings" if side == "source" else "no embeddings of a target"
            raise SettingsError(f'{setting}: model.arch = "{recipe.model.arch}" has {what}; leave it out')
        table, tokenizer = tables[side], run.tokenizers[side == "target"]
        found = _vectors_of(file, tokenizer)
        _check_width(setting, file, found.width, table, recipe)
        name = names[id(table.weight)]
        rows = _fill(table, tokenizer, found, leave=frozen.get(name, set()))
        words = tokenizer.size - FIRST_TOKEN - 1
        if not rows:
            problem = f"no word of the vocabulary has a vector in {file}"
            raise SettingsError(f"{setting}: {problem}; check its language and tokenizer.lowercase")
        log(f"{file}: {len(rows):,} of {words:,} words have vectors; the others start at random")
        if found.duplicates:
            log(f"{file}: {found.duplicates:,} words occur several times; the first vector of each is used")
        frozen.setdefault(name, set()).update(rows)
        facts[side] = {"file": Path(file).name, "words": words, "with_vectors": len(rows)}
    if recipe.train.freeze_embeddings:
        indices = {name: sorted(rows) for name, rows in frozen.items()}
        write_atomically(run.folder / FROZEN, (json.dumps(indices) + "\n").encode())
    return facts


def frozen_rows(run: Run) -> dict[str, list[int]]:
    """The indices of the rows that training leaves as they are, by the name of the parameter."""
    if not run.recipe.train.freeze_embeddings:
        return {}
    path = run.folder / FROZEN
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): [int(row) for row in rows] for name, rows in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        raise RunError(f"{path}: the frozen rows cannot be read; take the file from a copy of the run") from None


def _spellings(tokenizer: Tokenizer) -> dict[int, tuple[str, str]]:
    """For each token id, its word as it is and in lower case."""
    tokens = enumerate(tokenizer.tokens[FIRST_TOKEN:-1], start=FIRST_TOKEN)
    return {id: (word, word.lower()) for id, token in tokens if (word := token.removeprefix(SPACE_MARK))}


def _vectors_of(file: str, tokenizer: Tokenizer) -> VectorFile:
    """The vectors of the words of `tokenizer` in a file, or in the run folder `file`."""
    wanted = {spelling for pair in _spellings(tokenizer).values() for spelling in pair}
    return _vectors_of_run(Run.open(file), wanted) if Path(file).is_dir() else read_vectors(file, wanted)


def _vectors_of_run(run: Run, wanted: Collection[str]) -> VectorFile:
    """The embeddings of a run: of its only vocabulary, or of its source."""
    if run.recipe.tokenizer.kind != "word":
        raise SettingsError(f"{run.folder}: has no vectors of words (tokenizer.kind is not word); give another run")
    table = run.load_network().embedding_tables().get("source")
    if table is None:
        raise SettingsError(f"{run.folder}: has no table of word embeddings; give another run")
    words, matrix = words_of(run.tokenizers[0]), table.weight.numpy()
    vectors = {word: matrix[id] for word, id in words.items() if word in wanted}
    return VectorFile(vectors, len(words), matrix.shape[1])


def _check_width(setting: str, file: str, width: int, table: nn.Embedding, recipe: Recipe) -> None:
    if width != table.embedding_dim:
        field = "embedding_width" if hasattr(recipe.model, "embedding_width") else "width"
        raise SettingsError(
            f"{setting}: the vectors in {file} have {width} numbers, and the embeddings of the network"
            f" {table.embedding_dim}; set model.{field} to {width}, or give other vectors"
        )


@torch.no_grad()
def _fill(table: nn.Embedding, tokenizer: Tokenizer, found: VectorFile, leave: Collection[int]) -> list[int]:
    """Copy the vectors into the rows of their words, except the rows in `leave`; return the indices of the rows."""
    rows, values = list[int](), []
    for id, spellings in _spellings(tokenizer).items():
        vector = next((found.vectors[one] for one in spellings if one in found.vectors), None)
        if vector is not None and id not in leave:
            rows.append(id)
            values.append(vector)
    if rows:
        vectors_ND = torch.from_numpy(np.stack(values))
        wanted, given = table.weight.square().mean().sqrt(), vectors_ND.square().mean().sqrt()
        table.weight[torch.tensor(rows)] = (vectors_ND * (wanted / given.clamp_min(1e-12))).to(table.weight)
    return rows
