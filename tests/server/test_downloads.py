"""Translated files that can be downloaded."""

from regard.server import files
from regard.server.files import Downloads


def test_a_large_file_waits_and_spares_the_others(monkeypatch):
    monkeypatch.setattr(files, "DOWNLOAD_BYTES", 10)
    waiting = Downloads()
    small, large = waiting.keep("a", b"1234"), waiting.keep("b", b"1" * 20)
    assert waiting.find(large) is not None
    assert waiting.find(small) is not None


def test_the_oldest_go_first(monkeypatch):
    monkeypatch.setattr(files, "DOWNLOAD_BYTES", 10)
    waiting = Downloads()
    first, second, third, fourth = (waiting.keep(str(number), b"12345") for number in range(4))
    assert waiting.find(first) is None
    assert all(waiting.find(token) for token in (second, third, fourth))
