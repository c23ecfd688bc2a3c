"""`regard translate` for documents."""

import re

import pytest

from regard.cli import main
from regard.documents import parse
from regard.models import settings_of
from regard.tasks.translate.output import translate_document
from regard.tasks.translate.translation import Translation
from tests.export.runs import random_recipe, random_run, sentences


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return str(random_run(tmp_path_factory.mktemp("document") / "run", random_recipe()).folder)


def test_equal_texts_are_translated_once():
    asked, heard = [], []

    def translate(texts):
        asked.extend(texts)
        return [Translation(text, text.upper(), 0.0, (), (), True) for text in texts]

    document = parse("html", "<p>one</p><p>two</p><p>one 2</p><p>one</p>")
    content, lost = translate_document(document, translate, heard.append)
    assert content == "<p>ONE</p><p>TWO</p><p>ONE 2</p><p>ONE</p>"
    assert lost == []
    assert asked == ["one", "two", "one 2"]
    assert sum(heard) == 3


def test_models_without_attention_cannot_align():
    assert settings_of("transformer-small").attends
    assert settings_of("bahdanau").attends
    assert not settings_of("seq2seq-lstm").attends


def test_a_page_keeps_its_tags(run, tmp_path, capsys):
    first, second = sentences(2)
    middle = first.split()[1]
    page = f'<html>\n<p class="a">{first.replace(middle, f"<b>{middle}</b>", 1)}</p>\n<p>{second}<br></p></html>\n'
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    out = tmp_path / "page.it.html"
    assert main(["translate", run, str(tmp_path / "page.html"), "--out", str(out), "--beam", "1"]) == 0
    made = out.read_text(encoding="utf-8")
    assert re.findall(r"<[^>]*>", made) == re.findall(r"<[^>]*>", page)
    assert first not in made
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "page.it.html"]


def test_other_formats_and_standard_output(run, tmp_path, capsys):
    text = sentences(1)[0]
    (tmp_path / "a.md").write_text(f"# {text}\n\n```\n{text}\n```\n", encoding="utf-8")
    assert main(["translate", run, str(tmp_path / "a.md"), "--beam", "1"]) == 0
    made = capsys.readouterr().out
    assert made.startswith("# ")
    assert made.endswith(f"\n\n```\n{text}\n```\n")
    assert f"# {text}" not in made
    assert main(["translate", run, str(tmp_path / "a.md"), "--beam", "1", "--format", "txt"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert (
        main(["translate", run, str(tmp_path / "a.md"), "--beam", "1", "--format", "html", "--engine", "ctranslate2"])
        == 0
    )


BAD = {
    "lines only": (["a.html", "--json"], "--json is for lines of text; a.html"),
    "nbest": (["a.html", "--nbest", "2"], "--nbest is for lines of text; a.html"),
    "missing": (["b.html"], "b.html: no such file"),
    "damaged": (["a.srt"], "a.srt:1: no subtitles found"),
    "broken": (["a.po"], "a.po:1: broken PO syntax"),
    "not text": (["bytes.html"], "bytes.html:1: not UTF-8 (byte 0xff)"),
    "unknown": (["a.html", "--format", "docx"], "argument --format: invalid choice: 'docx'"),
    "no folder": (["a.html", "--out", "none/b.html"], "--out none/b.html: there is no folder none"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line(run, tmp_path, capsys, monkeypatch, case):
    for name in ("a.html", "a.srt", "a.po"):
        (tmp_path / name).write_text("some text", encoding="utf-8")
    (tmp_path / "bytes.html").write_bytes(b"\xff\xfe")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    arguments, message = BAD[case]
    assert main(["translate", run, *arguments]) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert error.startswith("regard: ")
    assert message in error
    assert sorted(tmp_path.rglob("*")) == before
