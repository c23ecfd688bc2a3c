"""Standard input, read as a file is. `test_corpus.py` reads files."""

from __future__ import annotations

import io
import sys

import pytest

from regard.data.files import is_typed, read_input_lines
from regard.errors import CorpusError


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
