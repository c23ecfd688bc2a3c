"""Captions of pictures: read from lists, divided into parts, encoded and stored.

A list names a picture in each row. The captions are in a column for each language ("en", "de", ...), or in a column
"caption", to which a column "language" may belong. A picture may have several captions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.config import Corpus, Recipe
from regard.data.pictures import PictureSource
from regard.data.store import DocumentStore, open_documents, write_documents
from regard.errors import CorpusError, SettingsError, nearest
from regard.languages import language_scripts
from regard.run import Run
from regard.tasks.dataset import HELD_OUT, Log, open_store_folder, read_held_out, store_parts
from regard.tasks.pictures import (
    COLUMNS,
    Gallery,
    HeldOutPictures,
    PictureExamples,
    PictureRow,
    new_picture_store,
    open_gallery,
    read_examples,
    read_list,
)
from regard.text.tokenizer import SOS, Tokenizer

CAPTION_COLUMNS = ("caption", "captions", "text", "description", "sentence", "title")
LANGUAGE_COLUMNS = ("language", "lang")
FORMS = 'a list has the columns "picture" and "caption", or "picture" and a column per language, e.g. "en"'


class Captioned(NamedTuple):
    """A caption of a picture. `language`: a code such as "en", or "" if the data names no language."""

    picture: str
    text: str
    language: str = ""


class Described(NamedTuple):
    """A picture and all its captions in one language: the references of a caption by the model."""

    picture: str
    language: str
    references: tuple[str, ...]


def group_captions(examples: Sequence[Captioned]) -> list[Described]:
    """Put the captions of each picture in each language together, in the order of their first occurrence."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in examples:
        found.setdefault((one.picture, one.language), []).append(one.text)
    return [Described(*key, tuple(texts)) for key, texts in found.items()]


# ---------------------------------------------------------------------------------------------------------------------
# Lists


def read_captions(
    corpus: Corpus, source: PictureSource, wanted: Sequence[str] = (), assumed: str = ""
) -> list[Captioned]:
    """Read the captions of a list. Empty captions are left out; a list without captions is an error.

    `wanted`: only captions in these languages; empty: in all. `assumed`: the language if the list does not name it.
    """
    found, known = [], set[str]()
    for row in read_list(corpus, source, (COLUMNS[0], CAPTION_COLUMNS[0])):
        for language, text in _captions_of(row, assumed):
            known.add(language)
            if text and (not wanted or language in wanted):
                found.append(Captioned(row.picture, text, language))
    missing = sorted(set(wanted) - known)
    if missing and known:
        guess = nearest(missing[0], known) or f"; it has {', '.join(sorted(filter(None, known))) or 'no languages'}"
        raise CorpusError(corpus.source, f'there are no captions in the language "{missing[0]}"{guess}')
    if not found:
        raise CorpusError(corpus.source, f"there is no caption in this list; {FORMS}")
    return found


def _captions_of(row: PictureRow, assumed: str) -> Iterator[tuple[str, str]]:
    """Yield language and text of each caption in a row; the text may be empty."""
    column = next((name for name in CAPTION_COLUMNS if name in row.cells), None)
    if column is None:
        languages = [name for name in row.cells if name not in COLUMNS and language_scripts(name)]
        if not languages:
            raise CorpusError(row.where, f"there is no caption in this row; {FORMS}")
        yield from ((name, row.text(name)) for name in languages)
        return
    language = next((row.text(name) for name in LANGUAGE_COLUMNS if row.cells.get(name)), assumed)
    if isinstance(texts := row.cells[column], list):
        for text in texts:
            yield language, row._replace(cells={column: text}).text(column)
    else:
        yield language, row.text(column)


def read_parts(recipe: Recipe) -> PictureExamples[Captioned]:
    """Read the captions of a recipe, in parts."""
    assumed = recipe.data.target_language
    wanted = recipe.task.languages or ((assumed,) if assumed else ())

    def read(corpus: Corpus, source: PictureSource) -> list[Captioned]:
        return read_captions(corpus, source, wanted, assumed)

    return read_examples(recipe, read, "a list of pictures with captions", "captions")


def languages_of(examples: PictureExamples[Captioned]) -> tuple[str, ...]:
    """The languages of the training captions, in the order of the list; () if the data names no language."""
    found = dict.fromkeys(one.language for one in examples.parts.train())
    if "" in found and len(found) > 1:
        named = ", ".join(filter(None, found))
        raise CorpusError("captions", f"some have no language, others have {named}; name the language of each")
    return tuple(filter(None, found))


# ---------------------------------------------------------------------------------------------------------------------
# Languages of a model


def language_tags(languages: Sequence[str]) -> tuple[str, ...]:
    """The special token of each language, if there are several. The decoder reads it in place of the start token."""
    return tuple(f"<{language}>" for language in languages) if len(languages) > 1 else ()


def start_tokens(tokenizer: Tokenizer, languages: Sequence[str]) -> dict[str, int]:
    """For each language, the token that the decoder reads first: SOS, unless there are several languages."""
    tags = language_tags(languages)
    if missing := sorted(set(tags) - set(tokenizer.symbols)):
        raise SettingsError(f"the vocabulary has no token {missing[0]} for a language; train with another vocabulary")
    if not tags:
        return {"": SOS} | dict.fromkeys(languages, SOS)
    return {language: tokenizer.tokens.index(tag) for language, tag in zip(languages, tags, strict=True)}


# ---------------------------------------------------------------------------------------------------------------------
# The store


@dataclass(frozen=True)
class TrainCaptions:
    """Encoded training captions; the labels of each are the place of its picture, and the index of its language."""

    captions: DocumentStore
    gallery: Gallery

    def __len__(self) -> int:
        return len(self.captions)

    def close(self) -> None:
        self.captions.close()
        self.gallery.close()


@dataclass(frozen=True)
class CaptionData:
    """The tokenizer, the training data, and the held-out captions with their pictures."""

    tokenizer: Tokenizer
    train: TrainCaptions
    valid: HeldOutPictures[Captioned]
    test: HeldOutPictures[Captioned]


def write_store(run: Run, examples: PictureExamples[Captioned], log: Log) -> None:
    """Write pictures, encoded training captions and held-out captions into the folder store/ of a run."""
    tokenizer, languages, limit = run.tokenizers[1], run.recipe.task.languages, run.recipe.data.max_length
    known = {language: place for place, language in enumerate(languages)} or {"": 0}
    corpora: list[list[tuple[list[list[int]], tuple[str, int]]]] = []
    for found, _ in examples.parts.corpora:
        if unknown := next((one for one in found if one.language not in known), None):
            named = f'captions are in the language "{unknown.language}"' if unknown.language else "captions have none"
            problem = f"{named}, but caption.languages is {list(languages)}; correct this setting"
            raise CorpusError(run.recipe.data.train[0].source, problem)
        ids = tokenizer.encode_many([one.text for one in found])
        rows = [([part], (one.picture, known[one.language])) for one, part in zip(found, ids, strict=True)]
        corpora.append([row for row in rows if 0 < len(row[0][0]) <= limit])
    kept = sum(map(len, corpora))
    if kept < len(examples):
        log(f"{len(examples) - kept:,} captions are left out: no tokens, or more than data.max_length = {limit}")
    if not kept:
        raise CorpusError(run.recipe.data.train[0].source, "no caption is left to train on; raise data.max_length")
    parts = store_parts((len(rows), weight) for rows, (_, weight) in zip(corpora, examples.parts.corpora, strict=True))
    with new_picture_store(run, examples, log) as (folder, places):
        numbered = ((ids, (places[name], language)) for rows in corpora for ids, (name, language) in rows)
        write_documents(folder / "train", numbered, parts, tokenizer.size)


def open_captions(run: Run, log: Log) -> CaptionData:
    """Open the data that `write_store` wrote; if it is missing, write it again."""
    folder = open_store_folder(run, lambda: write_store(run, read_parts(run.recipe), log))
    gallery = open_gallery(folder, run.recipe.pictures)
    held_out = (from_records(read_held_out(folder, part, "captions"), gallery) for part in HELD_OUT)
    return CaptionData(run.tokenizers[1], TrainCaptions(open_documents(folder / "train"), gallery), *held_out)


def from_records(records: Sequence[Any], gallery: Gallery) -> HeldOutPictures[Captioned]:
    """Held-out captions from their records as JSON data, and a gallery with their pictures."""
    return HeldOutPictures([Captioned(one["picture"], one["text"], one["language"]) for one in records], gallery)
