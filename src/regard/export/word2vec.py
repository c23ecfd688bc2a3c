"""Export of word vectors to word2vec's text or binary format, which gensim, spaCy, fastText and others read."""

from __future__ import annotations

from pathlib import Path

from regard.config import Recipe
from regard.data.vectors import binary_parts, text_lines
from regard.export import Log, Option, export_folder
from regard.run import Run
from regard.text.tokenizer import words_of

KIND = "word-vectors"
NEEDS: tuple[str, ...] = ()
OPTIONS = {"layout": Option(("text", "binary"), "vectors.txt or vectors.bin")}


def obstacle(recipe: Recipe) -> str:
    arch = recipe.model.arch
    return "" if recipe.model.kind == KIND else f'word2vec has only word vectors, and model.arch is "{arch}"'


def write(run: Run, folder: Path, log: Log, layout: str) -> None:
    """Write vectors.txt or vectors.bin: the vectors of all words, the most frequent word first."""
    words = words_of(run.tokenizers[0])
    table = run.load_network().embedding_tables()["source"]
    vectors_VD = table.weight.numpy()[list(words.values())]
    with export_folder(run, folder, {"format": "word2vec", "layout": layout}) as draft:
        if layout == "binary":
            with (draft / "vectors.bin").open("wb") as file:
                file.writelines(binary_parts(words, vectors_VD))
        else:
            with (draft / "vectors.txt").open("w", encoding="utf-8", newline="\n") as text:
                text.writelines(text_lines(words, vectors_VD))
    log(f"{len(words):,} words, {vectors_VD.shape[1]} numbers each")
