"""Catalogues of messages: polib is the referee of what was written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.documents import parse
from regard.errors import CorpusError
from tests.documents.answers import Said, same

polib = pytest.importorskip("polib", reason="polib is not installed")

HEADER = """# Translators: nobody
#
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

"""
CATALOGUE = (
    HEADER
    + """#. a note
#: app.py:1
#, python-format
#| msgid "old"
msgid "Hello %(name)s"
msgstr ""

msgid "done"
msgstr "fertig"

#, fuzzy
msgid "half done"
msgstr "halb"

msgctxt "menu"
msgid ""
"Two\\n"
"lines"
msgstr ""
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "gone"
#~ msgstr ""
"""
)


def test_only_what_waits_is_filled():
    document = parse("po", CATALOGUE)
    assert document.texts == ["Hello %(name)s", "Two", "lines", "%d file", "%d files"]
    made = document.rebuild([Said(text) for text in ["Hallo %(name)s", "Zwei", "Zeilen", "%d Datei", "%d Dateien"]])
    found = {(entry.msgctxt, entry.msgid): entry for entry in polib.pofile(made)}
    assert found[None, "Hello %(name)s"].msgstr == "Hallo %(name)s"
    assert found[None, "Hello %(name)s"].flags == ["fuzzy", "python-format"]
    assert found["menu", "Two\nlines"].msgstr == "Zwei\nZeilen"
    assert found["menu", "Two\nlines"].fuzzy
    assert found[None, "%d file"].msgstr_plural == {0: "%d Datei", 1: "%d Dateien"}
    assert found[None, "done"].msgstr == "fertig"
    assert not found[None, "done"].fuzzy
    between = slice(CATALOGUE.index('msgid "done"'), CATALOGUE.index("msgctxt"))
    assert CATALOGUE[between] in made
    assert made.startswith(HEADER)
    assert made.endswith('#~ msgid "gone"\n#~ msgstr ""\n')


def test_a_lost_placeholder_is_put_back_and_told():
    document = parse("po", HEADER + 'msgid "Hello %s, all of you"\nmsgstr ""\n')
    made = document.rebuild([Said("Hallo euch allen")])
    [entry] = polib.pofile(made)
    assert "%s" in entry.msgstr
    assert entry.tcomment == "Regard: check %s"
    assert document.lost([Said("Hallo euch allen")]) == [("%s",)]
    assert document.lost([Said("Hallo %s, euch allen")]) == [()]


@pytest.mark.parametrize(
    ("forms", "names", "texts"),
    [
        ("nplurals=1; plural=0", 1, ["files"]),
        ("nplurals=2; plural=n>1", 2, ["file", "files"]),
        ("nplurals=3; plural=n==1 ? 0 : n<5 ? 1 : 2", 3, ["file", "files"]),
        ("nplurals=2; plural=n==1 ? 1 : 0", 2, ["files", "file"]),
        ("nplurals=2; plural=system(1)", 2, ["file", "files"]),
    ],
)
def test_plural_forms(forms, names, texts):
    fields = "".join(f'msgstr[{number}] ""\n' for number in range(names))
    source = f'msgid ""\nmsgstr "Plural-Forms: {forms};\\n"\n\nmsgid "file"\nmsgid_plural "files"\n{fields}'
    document = parse("po", source)
    assert document.texts == texts
    [entry] = polib.pofile(document.rebuild([Said(text.upper()) for text in texts]))
    assert set(entry.msgstr_plural.values()) == {text.upper() for text in texts}
    assert len(entry.msgstr_plural) == names


PLURALS = {  # of the gettext manual and of published catalogues: the form for n = 1
    "0": 0,
    "n != 1": 0,
    "n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2": 0,
    "n%100==2 ? 0 : n%100==1 ? 1 : n%100==3 || n%100==4 ? 2 : 3": 1,
    "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5": 1,
    "2*(n==1) + (n/7>1)": 2,
}


@pytest.mark.parametrize("expression", PLURALS)
def test_the_form_for_one_is_that_of_the_expression(expression):
    header = f'msgid ""\nmsgstr "Plural-Forms: nplurals=3; plural={expression};\\n"\n\n'
    forms = "".join(f'msgstr[{number}] ""\n' for number in range(3))
    document = parse("po", f'{header}msgid "file"\nmsgid_plural "files"\n{forms}')
    [entry] = polib.pofile(document.rebuild([Said(text.upper()) for text in document.texts]))
    assert [form for form, text in entry.msgstr_plural.items() if text == "FILE"] == [PLURALS[expression]]


@pytest.mark.parametrize(
    "expression",
    ["", "n ?", "n ? 1", "(n", "n)", "n n", "system(1)", "n = 1", "__import__", "1/(n-1)", "(" * 10_000, "!" * 10_000],
)
def test_a_broken_plural_expression_means_the_first_form(expression):
    header = f'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural={expression};\\n"\n\n'
    document = parse("po", header + 'msgid "file"\nmsgid_plural "files"\nmsgstr[0] ""\nmsgstr[1] ""\n')
    assert document.texts == ["file", "files"]


def test_markup_inside_a_message():
    document = parse("po", 'msgid "the <b>red</b> house"\nmsgstr ""\n')
    assert document.texts == ["the red house"]
    assert document.needs_alignment


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('msgid "a\nmsgstr ""\n', r"a\.po:1: broken PO syntax: expected a string"),
        ('msgid "a"\n', r"a\.po:1: broken PO syntax: an entry has no msgstr"),
        ('msgstr "a"\n', r"a\.po:1: broken PO syntax: an entry has no msgid"),
        ('msgid "a"\nmsgstr ""\n\nnonsense\n', r"a\.po:4: broken PO syntax: neither"),
    ],
)
def test_damage_is_told_with_its_line(source, message):
    with pytest.raises(CorpusError, match=f"^{message}"):
        parse("a.po", source)


LINES = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t"\\%s'), max_size=12)


@given(st.lists(st.tuples(LINES, st.sampled_from(["", "fertig"])), max_size=4), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=80)
def test_what_polib_writes_is_kept_and_filled(pairs, ending):
    catalogue = polib.POFile()
    for number, (source, target) in enumerate(pairs):
        catalogue.append(polib.POEntry(msgctxt=str(number), msgid=source, msgstr=target))
    source = str(catalogue).replace("\n", ending)
    document = parse("po", source)
    assert document.rebuild([Said("") for _ in document.texts]) == source
    made = polib.pofile(str(document.rebuild(same(document))).replace("\r\n", "\n"))
    for (text, before), entry in zip(pairs, made, strict=True):
        waits = not before and any(map(str.isalpha, entry.msgid.replace("%s", "")))
        assert entry.msgid == text
        assert entry.msgstr == (before or (text if waits else ""))
        assert entry.fuzzy == waits
