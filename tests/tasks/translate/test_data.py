"""Training pairs as streams over corpora that may be far larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.config import Corpus, DataSettings
from regard.data.pairs import Pair, read_corpus
from regard.tasks.translate import data as prepare
from regard.tasks.translate.data import PairExamples


def test_corpora_are_read_no_more_often_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to count, once to split, once for both held-out parts: each pass takes minutes on a large corpus."""
    corpora = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{name}{number}\t{number}{name}\n" for number in range(100)), encoding="utf-8")
        corpora.append(Corpus(str(path)))
    passes = []

    def counted(corpus: Corpus, *languages: str) -> Iterator[Pair]:
        passes.append(corpus.source)
        return read_corpus(corpus, *languages)

    monkeypatch.setattr(prepare, "read_corpus", counted)
    pairs = PairExamples(DataSettings(train=tuple(corpora)), seed=1)
    assert pairs.describe() == "180 pairs to train on, 10 for validation, 10 for the test"
    assert len(passes) == 2 * 2
    valid, test = (pairs.held_out(part) for part in ("valid", "test"))
    assert len(passes) == 2 * 3
    everything = {pair for corpus in corpora for pair in read_corpus(corpus)}
    assert (len(valid), len(test), {*valid, *test, *pairs.train()}) == (10, 10, everything)
    assert len(list(pairs.train())) == len(pairs) == 180


def test_held_out_files_are_counted_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{number}\tx{number}\n" for number in range(100)), encoding="utf-8")
    (tmp_path / "v.tsv").write_text("one\tuno\n", encoding="utf-8")
    data = DataSettings(train=(Corpus(str(tmp_path / "a.tsv")),), valid=(Corpus(str(tmp_path / "v.tsv")),))
    pairs = PairExamples(data, seed=1)
    assert pairs.describe() == "100 pairs to train on, 1 for validation, 0 for the test"
    assert pairs.held_out("valid") == [Pair("one", "uno")]
    assert pairs.held_out("test") == []
