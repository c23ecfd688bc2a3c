"""Lines of files and of standard input. `test_corpus.py` reads corpora."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from regard import files
from regard.errors import CorpusError
from regard.files import is_typed, read_input_lines, read_lines


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_byte_order_mark_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, "\ufeffone\r\n\ufefftwo\nlast".encode())
    assert list(read_input_lines()) == ["one", "\ufefftwo", "last"]


def test_what_is_not_utf8_is_told_or_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"one\ncaf\xe9\n")
    with pytest.raises(CorpusError, match=r"standard input:2: not UTF-8 \(byte 4 of the line is 0xe9\)"):
        list(read_input_lines())
    pipe(monkeypatch, b"one\ncaf\xe9\n")
    assert list(read_input_lines(forgiving=True)) == ["one", "caf\ufffd"]


def test_a_closed_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert not is_typed()
    with pytest.raises(CorpusError, match="standard input: is closed; name a file"):
        next(read_input_lines())


def test_a_read_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hung(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Hung())))
    with pytest.raises(CorpusError, match=r"standard input: cannot be read \(Input/output error\)"):
        next(read_input_lines())


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 16])
def test_lines_do_not_depend_on_how_much_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(files, "BLOCK", block)
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffß\r\n\n\u2028x\ry\r\r\n\ufeffé\nlast\r".encode())
    assert list(read_lines(path)) == ["ß", "", "\u2028x\ry\r", "\ufeffé", "last\r"]
    path.write_bytes(b"one\ntwo\ncaf\xe9\nfour\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(CorpusError, match=r"a.txt:3: not UTF-8 \(byte 4 of the line is 0xe9\)"):
        next(lines)


def test_a_line_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .gz of one endless line, or /dev/zero, must not fill the memory."""
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"one\n" + bytes(3 << 20))
    lines = read_lines(path)
    assert next(lines) == "one"
    with pytest.raises(CorpusError, match=r"a.txt.gz:2: a line of more than 1 MB"):
        next(lines)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize("text", ["The cat.\nThe dog.\n", "Кот и пёс.\nДом и сад.\n", "one line"])
def test_utf16_is_refused_with_and_without_a_mark(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(CorpusError, match=r"a.txt:1: UTF-16, not UTF-8; convert it, e.g. iconv -f utf-16"):
        list(read_lines(path))


def test_a_stray_zero_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\x00b\n" + b"The cat sees the house.\n" * 3 + b"\x00\x00\x00\n")
    assert next(read_lines(path)) == "a\x00b"
