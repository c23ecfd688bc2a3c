"""Lines as they come, files that are there only when whole, and long lines in pieces."""

import os
import threading
import time

import pytest

from regard.config import SearchSettings
from regard.config.recipe import make_recipe
from regard.data.builtin import read_phrases
from regard.errors import CorpusError, SettingsError
from regard.files import chunks
from regard.tasks.translate.output import TranslationFile, chunks_as_they_come
from regard.tasks.translate.translation import Translation, in_pieces
from regard.text.tokenizer import train_tokenizer


def test_lines_of_a_file_are_taken_many_at_once():
    assert list(chunks(map(str, range(5)), 2)) == [["0", "1"], ["2", "3"], ["4"]]


def test_a_line_does_not_wait_for_the_next():
    def slow():
        yield "a"
        yield "b"
        time.sleep(0.5)
        yield "c"

    found = list(chunks_as_they_come(slow(), delay=0.1))
    assert found == [["a", "b"], ["c"]]
    assert list(chunks_as_they_come(iter([]))) == []
    assert list(chunks_as_they_come(map(str, range(5)), size=2)) == [["0", "1"], ["2", "3"], ["4"]]


def test_a_line_does_not_wait_for_all_that_follow_steadily():
    def steady():
        for number in range(20):
            yield str(number)
            time.sleep(0.03)

    found = list(chunks_as_they_come(steady(), delay=0.1))
    assert [line for chunk in found for line in chunk] == [str(number) for number in range(20)]
    assert len(found) > 2


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("odd"), SystemExit(1)])
def test_no_error_leaves_the_reader_waiting(error):
    def broken():
        yield "a"
        raise error

    found = chunks_as_they_come(broken())
    assert next(found) == ["a"]
    with pytest.raises(type(error)):
        next(found)


def test_an_error_while_reading_reaches_the_reader():
    def broken():
        yield "a"
        raise CorpusError("f", "not UTF-8", line=2)

    found = chunks_as_they_come(broken())
    assert next(found) == ["a"]
    with pytest.raises(CorpusError, match="f:2"):
        next(found)


def test_a_file_is_there_only_when_it_is_whole(tmp_path):
    path = tmp_path / "out.de"
    with TranslationFile(path, {"a": 1}, resume=False) as output:
        output.write(["eins", "zwei"])
    assert not path.exists()
    with (tmp_path / "out.de.part").open("a") as file:
        file.write("dr")  # cut off by a kill
    with pytest.raises(SettingsError, match="continue it with --resume"):
        TranslationFile(path, {"a": 1}, resume=False)
    with pytest.raises(SettingsError, match="another file, run or setting"):
        TranslationFile(path, {"a": 2}, resume=True)
    with TranslationFile(path, {"a": 1}, resume=True) as again:
        assert again.done == 2
        again.write(["drei"])
        again.finish()
    assert path.read_text() == "eins\nzwei\ndrei\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.de"]


def test_a_pipe_is_gone_on_with_where_it_begins_as_before(tmp_path):
    path, text = tmp_path / "out.de", ["one", "two", "three", "four"]
    with TranslationFile(path, {"file": "-"}, resume=False) as output:
        rest = output.rest_of_pipe(text)
        chunk = [next(rest), next(rest)]
        output.write(chunk)
        output.remember(chunk)
        output.write(["three"])  # killed before it was noted
    with (
        TranslationFile(path, {"file": "-"}, resume=True) as other,
        pytest.raises(SettingsError, match="another input"),
    ):
        other.rest_of_pipe(["one", "zwei", "three", "four"])
    with (
        TranslationFile(path, {"file": "-"}, resume=True) as shorter,
        pytest.raises(SettingsError, match="another input"),
    ):
        shorter.rest_of_pipe(["one"])
    with TranslationFile(path, {"file": "-"}, resume=True) as again:
        assert list(again.rest_of_pipe(text)) == ["four"]
        again.write(["four"])
        again.remember(["four"])
    with TranslationFile(path, {"file": "-"}, resume=True) as last:
        assert list(last.rest_of_pipe(text)) == []
        last.finish()
    assert path.read_text().split() == text
    assert [file.name for file in tmp_path.iterdir()] == ["out.de"]


@pytest.mark.parametrize("note", [b"", b"{", b"\xff"])
def test_a_note_that_a_power_cut_has_emptied_is_told(tmp_path, note):
    (tmp_path / "out.de.part").write_text("eins\n")
    (tmp_path / "out.de.part.json").write_bytes(note)
    with pytest.raises(
        SettingsError, match=r"out\.de\.part\.json: damaged; remove it and .*out\.de\.part, and translate"
    ):
        TranslationFile(tmp_path / "out.de", {"a": 1}, resume=True)
    assert (tmp_path / "out.de.part").read_text() == "eins\n"


def test_a_whole_file_is_not_resumed_over(tmp_path):
    path = tmp_path / "out.de"
    path.write_text("eins\n")
    with pytest.raises(SettingsError, match="is complete; leave out --resume"):
        TranslationFile(path, {}, resume=True)
    assert path.read_text() == "eins\n"


def test_a_link_stays_and_a_folder_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real.de")
    with TranslationFile(tmp_path / "link", {}, resume=False) as output:
        output.write(["eins"])
        output.finish()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real.de").read_text() == "eins\n"
    with pytest.raises(CorpusError, match="is a folder"):
        TranslationFile(tmp_path, {}, resume=False)


def test_a_pipe_is_written_into_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    with TranslationFile(pipe, {}, resume=False) as output:
        output.write(["eins", "zwei"])
        output.finish()
    reader.join(timeout=30)
    assert heard == ["eins\nzwei\n"]
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.fixture(scope="module")
def tokenizer():
    text = [phrase.source for phrase in read_phrases()[:100]]
    return train_tokenizer(text, make_recipe({"tokenizer": {"vocab_size": 420}}).tokenizer, seed=1)


def echo(parts):
    return [Translation(part, part.upper(), -1.0, (part,), (-1.0, -1.0), True) for part in parts]


def test_long_lines_are_translated_in_pieces(tokenizer):
    long = " ".join(f"This is sentence {number}." for number in range(2000))
    seen = []

    def translate(parts):
        seen.extend(parts)
        return echo(parts)

    search = SearchSettings(max_source_tokens=60, max_joined_tokens=60)
    short, joined, empty = in_pieces(["I am here.", long, ""], tokenizer, search, translate)
    assert (short.text, empty.text) == ("I AM HERE.", "")
    assert joined.text == long.upper()
    assert joined.flags == ("split",)
    assert joined.score == -1.0
    assert max(len(tokenizer.encode(part)) for part in seen) <= 60
    assert all(part.endswith(".") for part in seen if part)  # cut at sentence ends


@pytest.mark.parametrize(("max_joined_tokens", "pieces"), [(0, 2), (1, 2), (250, 1)])
def test_sentences_of_a_line_are_joined_only_where_it_is_known_how_far(tokenizer, max_joined_tokens, pieces):
    seen = []

    def translate(parts):
        seen.extend(parts)
        return echo(parts)

    [answer] = in_pieces(
        ["I am here. You are there."], tokenizer, SearchSettings(max_joined_tokens=max_joined_tokens), translate
    )
    assert answer.text == "I AM HERE. YOU ARE THERE."
    assert len(seen) == pieces


def test_long_lines_can_be_refused(tokenizer):
    with pytest.raises(SettingsError, match=r"text 2 has .* tokens, more than search\.max_source_tokens = 20"):
        in_pieces(["a", "b " * 100], tokenizer, SearchSettings(max_source_tokens=20, long_lines="refuse"), echo)
