"""Rows of tables and JSON lines, as every reader of such files gets them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.config import Corpus
from regard.data.pairs import Pair, read_corpus
from regard.data.records import by_name, read_csv, read_json_lines, read_kept, read_objects, read_tsv
from regard.errors import CorpusError, RunError
from regard.tasks.classify.document_text import plain
from regard.tasks.classify.documents import LabeledDocument, read_documents
from regard.tasks.retrieve.data import read_knowledge, read_markdown


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_header_names_columns_in_any_case_and_order(tmp_path: Path) -> None:
    find = by_name(("label", "category"), ("text",))
    path = write(tmp_path / "a.tsv", "ID\tText\t Category \n1\tone\tA\n\n2\ttwo\tB\t\n")
    assert list(read_tsv(path, ("label", "text"), find)) == [(2, ("A", "one")), (4, ("B", "two"))]
    path = write(tmp_path / "a.csv", 'ID,Text,CATEGORY\n1,"one\nmore",A\n2,two,B\n')
    assert list(read_csv(path, find, "label and text")) == [(3, ("A", "one\nmore")), (4, ("B", "two"))]
    path = write(tmp_path / "b.tsv", "id\ttext\tlabel\n1\tone\n")
    with pytest.raises(CorpusError, match=r"b\.tsv:2: too few tabs in this row; the header names more columns"):
        list(read_tsv(path, ("label", "text"), find))


def test_documents_knowledge_and_pairs_with_a_header(tmp_path: Path) -> None:
    """Headers in capitals were taken for data; pairs had none."""
    path = write(tmp_path / "a.tsv", "Label\tText\ngood\tfine\ttoo\n")
    assert list(read_documents(Corpus(str(path)))) == [LabeledDocument(("good",), "fine\ttoo")]
    path = write(tmp_path / "b.tsv", "Question\tAnswer\tSource\nWhen?\tNow.\tmanual\n")
    assert [tuple(entry) for entry in read_knowledge(Corpus(str(path)))] == [(("When?",), "Now.")]
    path = write(tmp_path / "c.tsv", "When?\tNow.\tmanual\n")
    assert [tuple(entry) for entry in read_knowledge(Corpus(str(path)))] == [(("When?",), "Now.")]
    path = write(tmp_path / "d.tsv", "Source\tTarget\none\tuno\n\ntwo\tdue\t0.9\n")
    assert list(read_corpus(Corpus(str(path)))) == [Pair("one", "uno"), Pair("", ""), Pair("two", "due")]
    path = write(tmp_path / "e.tsv", "id\tIT\ten-GB\n1\tuno\tone\n")
    assert list(read_corpus(Corpus(str(path)), "en", "it")) == [Pair("one", "uno")]
    assert next(read_corpus(Corpus(str(path)), "en", "de")) == Pair("id", "IT")  # no header of these languages


def test_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 1}\n \n[2]\n')
    assert list(read_json_lines(path)) == [(1, {"a": 1}), (3, [2])]
    assert list(read_json_lines(path, empty={})) == [(1, {"a": 1}), (2, {}), (3, [2])]
    with pytest.raises(CorpusError, match=r"a\.jsonl:3: not a JSON object; a line is so"):
        list(read_objects(path, "a line is so"))
    for text, reason in (
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "a number has too many digits"),
        ("{", "column 2"),
    ):
        path = write(tmp_path / "b.jsonl", f"{{}}\n{text}\n")
        with pytest.raises(CorpusError, match=rf"b\.jsonl:2: broken JSON \(.*{reason}"):
            list(read_json_lines(path))


def test_what_a_run_keeps_may_be_empty_but_not_gone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert read_kept(tmp_path / "a.jsonl", "pairs") == []
    with pytest.raises(RunError, match="the pairs are missing; train again with another --out"):
        read_kept(tmp_path / "b.jsonl", "pairs")


def nested(depth: int) -> Iterator[str]:
    yield '<tmx><body><tu><tuv lang="en"><seg>a'
    yield from ["<hi>b"] * depth
    yield "<ph>x</ph>c"
    yield from ["</hi>d"] * depth
    yield '</seg></tuv><tuv lang="it"><seg>e</seg></tuv></tu></body></tmx>'


def test_deeply_nested_markup_in_tmx(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", "".join(nested(5000)))
    assert list(read_corpus(Corpus(str(path)), "en", "it")) == [Pair(f"a{'b' * 5000}c{'d' * 5000}", "e")]


HOSTILE = ["[", "[](", "# a" + " " * 9 + "b", "<!--", "<!-->", "<a", "**a**" + " " * 9 + "b", "Q" + " " * 9 + "b"]


@pytest.mark.parametrize("unit", HOSTILE)
def test_reading_takes_linear_time(unit: str) -> None:
    """A line of 200,000 characters took minutes, and a request to classify 20,000 took a second."""
    text = unit.replace(" " * 9, " " * 200_000) if " " in unit else unit * (200_000 // len(unit))
    start = time.process_time()
    list(read_markdown([f"# {text}", text, "answer"]))
    plain(text)
    assert time.process_time() - start < 2


def test_comments_and_tags_are_removed() -> None:
    assert plain("a<!-- <b> -->b<br>c <i>d</i> <!-- e") == "ab\nc d <!-- e"
    assert plain("<!--><b>x</b>-->y <!-->z") == "y <!-->z"
