"""What goes in comes out; what is left out is counted; a damaged or half-built store is never opened."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import config
from regard.data import store as store_module
from regard.data.pairs import Pair
from regard.data.store import StorePart, TokenStore, build_store, open_documents, open_store, write_documents
from regard.errors import CorpusError, RunError
from regard.files import draft_of
from regard.text.tokenizer import Tokenizer, VocabularyTokenizer, train_tokenizer

LINES = ["The cat sees the house", "Die Katze sieht das Haus", "nothing at all"]
SOURCE = train_tokenizer(LINES, config.TokenizerSettings(kind="word"), seed=1)
TARGET = train_tokenizer(LINES, config.TokenizerSettings(kind="character"), seed=1)
PAIRS = [Pair("The cat", "Die Katze"), Pair("", "Haus"), Pair("the house", "das"), Pair("the " * 13, "Haus")]

sentences = st.lists(st.sampled_from(["The", "cat", "house", "Haus", "unknown"]), max_size=12).map(" ".join)
corpora = st.lists(st.tuples(st.lists(st.builds(Pair, sentences, sentences), max_size=12), st.floats(0.1, 3.0)))


@given(corpora, st.integers(1, 40), st.integers(1, 5))
@settings(max_examples=25)
def test_round_trip(corpora: list[tuple[list[Pair], float]], max_length: int, chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "CHUNK", chunk)
        built = build_store(Path(folder) / "store", corpora, SOURCE, TARGET, max_length)
        for store in (built, open_store(Path(folder) / "store")):
            check(store, corpora, max_length)


def check(store: TokenStore, corpora: list[tuple[list[Pair], float]], max_length: int) -> None:
    kept: list[tuple[list[int], list[int]]] = []
    ends, empty, long = [], 0, 0
    for pairs, _ in corpora:
        for pair in pairs:
            ids = SOURCE.encode(pair.source), TARGET.encode(pair.target)
            if not ids[0] or not ids[1]:
                empty += 1
            elif len(ids[0]) > max_length or len(ids[1]) > max_length:
                long += 1
            else:
                kept.append(ids)
        ends.append(len(kept))
    assert [(source.tolist(), target.tolist()) for source, target in map(store.__getitem__, range(len(store)))] == kept
    assert [side.tolist() for side in store.lengths] == [[len(pair[side]) for pair in kept] for side in (0, 1)]
    assert (store.header.left_out_empty, store.header.left_out_long) == (empty, long)
    assert store.weights == tuple(StorePart(end, weight) for end, (_, weight) in zip(ends, corpora, strict=True))
    assert (store.header.source_hash, store.header.target_hash) == (SOURCE.hash(), TARGET.hash())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build_store(tmp_path / "store", [(PAIRS, 1.0)], SOURCE, TARGET, max_length=12)
    return tmp_path / "store"


def test_counts_and_bounds(folder: Path) -> None:
    store = open_store(folder)
    assert (len(store), store.header.left_out_empty, store.header.left_out_long) == (2, 1, 1)
    assert SOURCE.decode(store[1][0]) == "the house"
    for index in (-1, 2):
        with pytest.raises(IndexError):
            store[index]


def test_views_cannot_be_written(folder: Path) -> None:
    source, _ = open_store(folder)[0]
    assert source.base is not None
    with pytest.raises(ValueError, match="read-only"):
        source[0] = 1


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_are_as_small_as_the_vocabularies_allow(tmp_path: Path, size: int, dtype: type) -> None:
    large = VocabularyTokenizer("word", False, [f"▁{number}" for number in range(size - 4)])
    last = size - 5
    store = build_store(tmp_path / "store", [([Pair(f"{last}", "Haus")], 1.0)], large, TARGET, max_length=12)
    source, target = store[0]
    assert source.dtype == target.dtype == dtype
    assert source.tolist() == [size - 2]
    assert large.decode(source) == f"{last}"


def broken_corpus() -> Iterator[Pair]:
    yield PAIRS[0]
    raise CorpusError("train.en", "ends too early", line=2)


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CorpusError):
        build_store(tmp_path / "store", [(broken_corpus(), 1.0)], SOURCE, TARGET, max_length=12)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_build_is_swept_away(tmp_path: Path) -> None:
    killed, other = draft_of(tmp_path / "store"), draft_of(tmp_path / "other")
    for draft in (killed, other):
        draft.mkdir()
        (draft / "ids").write_bytes(b"half")
    build_store(tmp_path / "store", [(PAIRS, 1.0)], SOURCE, TARGET, max_length=12)
    assert {path.name for path in tmp_path.iterdir()} == {"store", other.name}


def test_a_store_is_not_overwritten(folder: Path) -> None:
    with pytest.raises(RunError, match="exists already"):
        build_store(folder, [(PAIRS, 1.0)], SOURCE, TARGET, max_length=12)
    assert len(open_store(folder)) == 2


def test_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        build_store(tmp_path / "file" / "store", [(PAIRS, 1.0)], SOURCE, TARGET, max_length=12)


@pytest.mark.parametrize("name", ["ids", "ids.offsets"])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_truncated_file_is_noticed(folder: Path, name: str, change: int) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:change] if change < 0 else content + b"x")
    expected = f"{folder / name}: {len(content) + change} bytes instead of {len(content)}"
    with pytest.raises(RunError, match=re.escape(expected)):
        open_store(folder)


@pytest.mark.parametrize("name", ["ids", "ids.offsets", "header.json"])
def test_a_missing_file_is_noticed(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"{name}: cannot read the token store"):
        open_store(folder)


def test_offsets_that_do_not_belong_are_noticed(folder: Path) -> None:
    offsets = np.fromfile(folder / "ids.offsets", "<i8")
    (offsets + 1).tofile(folder / "ids.offsets")
    with pytest.raises(RunError, match="damaged"):
        open_store(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "|O"},
        {"items": "2"},
        {"parts": 3},
        {"surprise": 1},
        {"format": 2},
    ],
)
def test_a_strange_header_is_refused(folder: Path, change: dict[str, object]) -> None:
    header = dataclasses.asdict(open_store(folder).header)
    (folder / "header.json").write_text(json.dumps(header | change), encoding="utf-8")
    with pytest.raises(RunError, match="remove") as raised:
        open_store(folder)
    assert "\n" not in str(raised.value)


def test_tokenizers_encode_a_chunk_at_once(tmp_path: Path) -> None:
    class Counting(VocabularyTokenizer):
        calls = 0

        def encode_many(self, texts: list[str]) -> list[list[int]]:
            self.calls += 1
            return super().encode_many(texts)

    tokenizer: Tokenizer = Counting("word", False, SOURCE.tokens[3:-1])
    build_store(tmp_path / "store", [(PAIRS * 1500, 1.0)], tokenizer, tokenizer, max_length=12)
    assert tokenizer.calls == 2 * 2  # 6,000 pairs, two sides, 4,096 at a time


DOCUMENTS = [([[5, 6], [7]], [1]), ([[8]], [0, 1]), ([[9, 9, 9], [4], [3]], [])]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    write_documents(tmp_path / "store", iter(DOCUMENTS), [StorePart(2, 1.0), StorePart(3, 0.5)], vocabulary=10)
    return tmp_path / "store"


def test_documents_come_back_as_written(documents: Path) -> None:
    store = open_documents(documents)
    assert [([ids.tolist() for ids in store[n][0]], store[n][1]) for n in range(len(store))] == DOCUMENTS
    assert store.tokens.tolist() == [3, 1, 5]
    assert store.sentence_counts.tolist() == [2, 1, 3]
    assert store.weights == (StorePart(2, 1.0), StorePart(3, 0.5))
    assert store.label_counts(3).tolist() == [1, 2, 0]
    for index in (-1, 3):
        with pytest.raises(IndexError):
            store[index]


def test_documents_are_written_in_chunks(tmp_path: Path, documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "CHUNK", 2)
    write_documents(tmp_path / "chunks", iter(DOCUMENTS), [StorePart(2, 1.0), StorePart(3, 0.5)], vocabulary=10)
    for path in documents.iterdir():
        assert (tmp_path / "chunks" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["ids", "ids.offsets", "labels", "labels.offsets", "documents.offsets"])
def test_damaged_documents_are_noticed(documents: Path, name: str) -> None:
    content = (documents / name).read_bytes()
    (documents / name).write_bytes(content[:-1])
    with pytest.raises(RunError, match=re.escape(f"{name}: {len(content) - 1} bytes instead of {len(content)}")):
        open_documents(documents)
    if name.endswith("offsets"):
        (documents / name).write_bytes(content[8:] + content[:8])
        with pytest.raises(RunError, match="disagree"):
            open_documents(documents)
    (documents / name).unlink()
    with pytest.raises(RunError, match="cannot read the token store"):
        open_documents(documents)


def test_closed_stores_hold_no_file(folder: Path) -> None:
    store = open_store(folder)
    lengths = store.lengths
    store.close()
    assert store.lengths is lengths
    with pytest.raises(ValueError, match="unpack"):
        store[0]
