"""gettext catalogs (PO): untranslated entries are filled and marked fuzzy; everything else stays, byte for byte."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from gettext import GNUTranslations
from io import BytesIO

from regard.documents.markup import Answer, Piece, fill, read_tags
from regard.documents.segment import Draft, Segment, split_lines
from regard.errors import CorpusError

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FIELD = re.compile(r'[ \t]*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)[ \t]*(".*)$')
_STRING = re.compile(r'[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*$')
MOST_FORMS = 10  # upper limit of plural forms of a language; Arabic has six
_PLURAL_FORMS = re.compile(r"plural\s*=\s*([^;\n]+)")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_TO_ESCAPE = str.maketrans({text: f"\\{name}" for name, text in _NAMED.items()} | {'"': '\\"', "\\": "\\\\"})


@dataclass
class _Field:
    """A string of an entry, e.g. its msgid, and its lines in the file: from `start` up to but not including `end`."""

    start: int
    end: int
    text: str


@dataclass
class _Entry:
    """An entry of a PO catalog: its fields (msgid, msgstr and others) by name."""

    start: int  # index of the first line: a comment, or the first field
    fields: dict[str, _Field] = field(default_factory=dict)

    @property
    def forms(self) -> dict[str, _Field]:
        """The fields for translations: msgstr, or msgstr[0], msgstr[1], ... for the plural forms."""
        return {name: string for name, string in self.fields.items() if name.startswith("msgstr")}


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    lines = _LINE.findall(source)
    entries = list(_read_entries(lines, name))
    singular = 0  # index of the plural form for n = 1: in most languages the first, but not in all
    without_context = (entry.fields for entry in entries if "msgctxt" not in entry.fields and "msgstr" in entry.fields)
    header = next((fields["msgstr"].text for fields in without_context if not fields["msgid"].text), "")
    if match := _PLURAL_FORMS.search(header):
        with suppress(ValueError, ArithmeticError):  # not an expression, or it cannot be computed
            singular = _form_of_one(match[1])
    pieces: list[Piece] = []
    at = 0
    for entry in entries:
        to_translate = entry.fields["msgid"].text.strip() and not any(form.text for form in entry.forms.values())
        if to_translate and (slot := _make_slot(entry, lines, singular, draft)):
            pieces += ["".join(lines[at : entry.start]), slot]
            at = max(one.end for one in entry.fields.values())
    return [*pieces, "".join(lines[at:])]


def _read_entries(lines: Sequence[str], name: str) -> Iterator[_Entry]:
    entry = _Entry(0)
    current: _Field | None = None
    for number, line in enumerate(lines):
        text = line.strip()
        is_field = _FIELD.match(line.rstrip("\r\n"))
        if entry.forms and (not text or text.startswith("#") or (is_field and is_field[1] in ("msgid", "msgctxt"))):
            yield _checked(entry, name)
            entry = _Entry(number)
        if not text or text.startswith("#"):
            current = None
            if not text and not entry.fields:  # comments above an empty line belong to no entry
                entry.start = number + 1
        elif is_field:
            current = _Field(number, number + 1, _read_string(is_field[2], name, number))
            if is_field[1] in entry.fields:
                raise CorpusError(
                    name, f"broken PO syntax: {is_field[1]} occurs twice in an entry; remove one", line=number + 1
                )
            entry.fields[is_field[1]] = current
        elif current:
            current.text += _read_string(line, name, number)
            current.end = number + 1
        else:
            problem = "broken PO syntax: neither a comment nor a part of an entry; remove the line"
            raise CorpusError(name, problem, line=number + 1)
    if entry.fields:
        yield _checked(entry, name)


def _checked(entry: _Entry, name: str) -> _Entry:
    missing = "msgid" if "msgid" not in entry.fields else "msgstr" if not entry.forms else ""
    if missing:
        last = max(one.end for one in entry.fields.values())
        raise CorpusError(name, f"broken PO syntax: an entry has no {missing}; add it", line=last)
    return entry


def _read_string(text: str, name: str, number: int) -> str:
    match = _STRING.match(text.rstrip("\r\n"))
    if not match:
        raise CorpusError(
            name, "broken PO syntax: expected a string in quotation marks; correct the line", line=number + 1
        )
    return _ESCAPE.sub(_unescape, match[1])


def _unescape(match: re.Match[str]) -> str:
    if match[1] or match[2]:
        return chr(int(match[1], 16) if match[1] else int(match[2], 8))
    return _NAMED.get(match[3], match[3])


def _form_of_one(expression: str) -> int:
    """The index of the plural form for n = 1; `expression` is in C, such as `n%10==1 && n%100!=11 ? 0 : 1`.

    The standard library evaluates such expressions only in compiled catalogs, so a catalog of a single entry is made.
    """
    forms = "\0".join(map(str, range(MOST_FORMS)))
    header = f"Plural-Forms: nplurals={MOST_FORMS}; plural={expression};\n"
    ids, texts = [b"", b"1\0n"], [header.encode(), forms.encode()]
    start = 28 + 8 * len(ids + texts)  # strings follow the header of seven numbers, and length and place of each string
    numbers = [0x950412DE, 0, len(ids), 28, 28 + 8 * len(ids), 0, 0]
    for string in ids + texts:
        numbers += [len(string), start]
        start += len(string) + 1
    packed = struct.pack(f"<{len(numbers)}I", *numbers) + b"\0".join([*ids, *texts, b""])
    return int(GNUTranslations(BytesIO(packed)).ngettext("1", "n", 1))


# ---------------------------------------------------------------------------------------------------------------------
# Filling


@dataclass(frozen=True)
class _EntrySlot:
    """An entry without a translation, as a slot; `render` writes it with its new translations, marked fuzzy."""

    comments: Sequence[str]
    texts: Sequence[str]  # the lines from msgctxt or msgid up to the first msgstr
    forms: Sequence[tuple[str, Sequence[Piece]]]  # field names of the translations, with their pieces
    source: str
    ending: str

    def render(self, answers: Sequence[Answer]) -> str:
        """The source of the entry with its translations, marked fuzzy; unchanged if a translation is missing."""
        segments = {piece.number: piece for _, pieces in self.forms for piece in pieces if isinstance(piece, Segment)}
        if not all(answers[number].text.strip() for number in segments):
            return self.source
        lost = {piece: None for number, segment in segments.items() for piece in segment.lost(answers[number])}
        note = [f"# Regard: check {' '.join(' '.join(lost).split())}{self.ending}"] if lost else []
        made = [*note, *_mark_fuzzy(self.comments, self.ending), *self.texts]
        for name, pieces in self.forms:
            lines = [f'"{line.translate(_TO_ESCAPE)}"{self.ending}' for line in _LINE.findall(fill(pieces, answers))]
            made += [f"{name} {lines[0]}"] if len(lines) == 1 else [f'{name} ""{self.ending}', *lines]
        return "".join(made) if self.source.endswith("\n") else "".join(made).removesuffix(self.ending)


def _make_slot(entry: _Entry, lines: Sequence[str], singular: int, draft: Draft) -> _EntrySlot | None:
    """Make the slot that writes `entry` with its translations; None if the entry has no letters to translate.

    `lines` are those of the file; `singular` is the index of the plural form for n = 1; `draft` collects the texts.
    """
    names, before = list(entry.forms), len(draft.segments)
    for_one = f"msgstr[{singular}]" if len(names) > 1 else ""
    pieces: dict[str, list[Piece]] = {}
    forms: list[tuple[str, Sequence[Piece]]] = []
    for name in names:
        text = "msgid_plural" if "msgid_plural" in entry.fields and name != for_one else "msgid"
        if text not in pieces:
            pieces[text] = split_lines(entry.fields[text].text, draft, read_tags)
        forms.append((name, pieces[text]))
    if len(draft.segments) == before:
        return None
    first = min(found.start for found in entry.fields.values())
    start, end = entry.forms[names[0]].start, max(found.end for found in entry.fields.values())
    ending = "\r\n" if lines[first].endswith("\r\n") else "\n"
    source = "".join(lines[entry.start : end])
    return _EntrySlot(lines[entry.start : first], lines[first:start], forms, source, ending)


def _mark_fuzzy(comments: Sequence[str], ending: str) -> list[str]:
    """The comment lines of an entry with the flag "fuzzy" added; `ending` is the line end of the file."""
    marked = list(comments)
    for place, line in enumerate(marked):
        if line.lstrip().startswith("#,"):
            if "fuzzy" not in line:
                marked[place] = line.replace("#,", "#, fuzzy,", 1)
            return marked
    place = next((place for place, line in enumerate(marked) if line.startswith("#|")), len(marked))
    return [*marked[:place], f"#, fuzzy{ending}", *marked[place:]]
