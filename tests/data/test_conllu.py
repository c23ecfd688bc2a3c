"""CoNLL-U: texts, places and relations; and what is no CoNLL-U."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.records import DependencyArc, read_conllu
from regard.errors import CorpusError


def row(id: str, form: str, head: str = "_", relation: str = "_", misc: str = "_") -> str:
    return "\t".join([id, form, "_", "_", "_", "_", head, relation, "_", misc])


GERMAN = [
    "# sent_id = 1",
    "# text = Sie geht zum Haus.",
    row("1", "Sie", "2", "nsubj"),
    row("2", "geht", "0", "root"),
    row("3-4", "zum"),
    row("3", "zu", "5", "case"),
    row("4", "dem", "5", "det"),
    row("5", "Haus", "2", "obl:arg", "SpaceAfter=No"),
    row("5.1", "geht"),
    row("6", ".", "2", "punct"),
    "",
]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "text.conllu"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_sentence_with_words_written_as_one(tmp_path: Path) -> None:
    first, second = read_conllu(write(tmp_path, *GERMAN, row("1", "Ja", "0", "root"), ""))
    assert first.text == "Sie geht zum Haus."
    assert [first.text[start:end] for start, end in first.spans] == ["Sie", "geht", "zum", "zum", "Haus", "."]
    assert first.arcs == (
        DependencyArc(0, 1, "nsubj"),
        DependencyArc(2, 4, "case"),
        DependencyArc(3, 4, "det"),
        DependencyArc(4, 1, "obl"),  # without its subtype
        DependencyArc(5, 1, "punct"),
    )
    assert (second.text, second.arcs) == ("Ja", ())


def test_the_last_sentence_needs_no_empty_line(tmp_path: Path) -> None:
    assert len(list(read_conllu(write(tmp_path, *GERMAN[:-1])))) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Sie geht zum Haus.", ":1: 1 columns between tabs, but CoNLL-U has 10"),
        (row("one", "Sie"), ':1: "one" is not a word number'),
        (row("1", "Sie", "7", "nsubj"), ':1: the head "7" is not 0 or a word number of the sentence'),
    ],
)
def test_what_is_no_conllu(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message):
        list(read_conllu(write(tmp_path, line)))
