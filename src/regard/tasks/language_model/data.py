"""Training texts of a language model, encoded and stored.

A text with more than `data.max_length` tokens is divided into windows of that length. Each window is a separate
example, with SOS before it and EOS after it.
"""

from __future__ import annotations

from regard.data.store import DocumentStore, write_documents
from regard.errors import CorpusError
from regard.run import Run
from regard.tasks.dataset import Parts, PreparedData, new_store, store_parts
from regard.tasks.text_scores import windows

TextData = PreparedData[DocumentStore, str]
"""Each document of the store is one window of a training text, without labels."""


def write_store(run: Run, examples: Parts[str]) -> None:
    """Encode the training texts in windows, and write them and the held-out texts into the folder store/ of a run."""
    tokenizer, size = run.tokenizers[0], run.recipe.data.max_length
    encoded = [
        ([part for ids in tokenizer.encode_many(texts) for part in windows(ids, size)], weight)
        for texts, weight in examples.corpora
    ]
    if not any(found for found, _ in encoded):
        raise CorpusError(
            run.recipe.data.train[0].source, "the tokenizer finds no tokens in the training texts; give other texts"
        )
    with new_store(run, examples.held_out) as folder:
        parts = store_parts((len(found), weight) for found, weight in encoded)
        rows = (([list(part)], ()) for found, _ in encoded for part in found)
        write_documents(folder / "train", rows, parts, tokenizer.size)
