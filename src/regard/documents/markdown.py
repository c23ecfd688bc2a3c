"""Markdown: headings, paragraphs, list items, quotations and table cells are texts; code and front matter stay."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from html import unescape
from typing import NamedTuple

from regard.documents import html
from regard.documents.html import VOID
from regard.documents.markup import PROTECTED, Break, Fixed, Node, Piece, Tree, Words, fixed, read_words
from regard.documents.segment import Draft, Escape

# ---------------------------------------------------------------------------------------------------------------------
# Inline markup: emphasis, links, code spans, images, and the tags and entities of HTML

_DESTINATION = r"\((?:[^()\n\\]|\\.|\([^()\n]{0,500}\)){0,2000}+\)"
_TOKEN = re.compile(
    rf"(?P<break>\n)"
    rf"|(?P<escape>\\[!-/:-@\[-`{{-~])"
    rf"|(?P<code>`+)"
    rf"|(?P<auto><(?:[a-zA-Z][a-zA-Z0-9+.-]{{1,31}}:[^\s<>]*|[^\s<>@]{{1,64}}@[^\s<>]+)>)"
    rf"|(?P<kept><(?P<code_tag>code|kbd|samp|var)\b[^<>]*>(?P<code_text>[^<>]*)</(?P=code_tag)>)"
    rf"|(?P<comment><!--[^<>]*-->)"
    rf"|(?P<tag><(?P<slash>/?)(?P<name>[a-zA-Z][\w:-]*)[^<>]*>)"
    rf"|!\[(?P<alt>[^\[\]\n]*)\](?P<target>{_DESTINATION}|\[[^\[\]\n]*\])"
    rf"|(?P<note>\[\^[^\[\]\s]+\])"
    rf"|(?P<left>\[)"
    rf"|(?P<right>\](?P<to>{_DESTINATION}|\[[^\[\]\n]*\])?)"
    rf"|(?P<entity>&(?:\#\d{{1,7}}|\#[xX][0-9a-fA-F]{{1,6}}|[a-zA-Z][a-zA-Z0-9]{{1,31}});)"
    rf"|(?P<stress>\*+|_+|~~)"
    rf"|(?P<fragile>{PROTECTED.pattern})"
)
_SPECIAL = re.compile(r"[\\`*_\[\]<]")


def _escape(text: str) -> str:
    """Put a backslash before each character that has a meaning in Markdown."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def _fold(label: str) -> str:
    """Normalize the letter case and white space of a link label, so that labels can be compared."""
    return " ".join(label.casefold().split())


class _Inline:
    r"""Parses the inline markup of a paragraph into nodes: words, elements around words, code, line breaks.

    `breaks` has, for each "\n" in the text, the source of this line break, and whether it is a hard line break.
    `labels` are the link labels that the document defines ("[label]: URL"). `draft` collects the alternative
    texts of images, which are translated too.
    """

    def __init__(self, text: str, breaks: Sequence[tuple[str, bool]], labels: AbstractSet[str], draft: Draft):
        self._text, self._labels, self._draft = text, labels, draft
        self._breaks = iter(breaks)
        self._tree = Tree()
        self._ticks: dict[int, list[int]] = defaultdict(list)
        for match in re.finditer("`+", text):
            self._ticks[len(match.group())].append(match.start())
        self._brackets: list[int] = []

    def read(self) -> list[Node]:
        at = 0
        while match := _TOKEN.search(self._text, at):
            self._add_words(self._text[at : match.start()])
            at = self._take(match)
        self._add_words(self._text[at:])
        return self._tree.finish()

    def _add_words(self, text: str) -> None:
        if text:
            self._tree.add(Words(text, text))

    def _restore(self, raw: str) -> str:
        r"""Return `raw` as in the file: each "\n" is replaced by the source of this line break (from `breaks`)."""
        first, *rest = raw.split("\n")
        return first + "".join(next(self._breaks)[0] + part for part in rest)

    def _take(self, match: re.Match[str]) -> int:
        """Add the node for a match of _TOKEN to the tree; return the position in the text where reading continues."""
        raw, tree = match.group(), self._tree
        if match["break"]:
            tree.add(Break(*next(self._breaks)))
        elif match["escape"]:
            tree.add(Words(raw, raw[1:]))
        elif match["code"]:
            return self._take_code(match)
        elif match["auto"]:
            tree.add(fixed(raw, raw[1:-1]))
        elif match["kept"]:
            tree.add(fixed(self._restore(raw), unescape(match["code_text"])))
        elif match["tag"]:
            self._take_tag(match)
        elif match["alt"] is not None:
            alt = self._draft.add(list(read_words(match["alt"])), _escape)
            tree.add(Fixed(("![", *alt, f"]{match['target']}"), separates=True))
        elif match["note"] or match["comment"]:
            tree.add(Fixed(self._restore(raw)))
        elif match["left"]:
            self._brackets.append(match.end())
            tree.open("[", raw, unmatched=Words(raw, raw))
        elif match["right"]:
            return self._take_link(match)
        elif match["entity"]:
            tree.add(Words(raw, unescape(raw)))
        elif match["stress"]:
            self._take_stress(match)
        else:
            tree.add(fixed(raw, raw))
        return match.end()

    def _take_code(self, match: re.Match[str]) -> int:
        """Add a code span up to the next run of equally many backticks; if there is none, the first run is text.

        Returns the position in the text where reading continues.
        """
        size = len(match.group())
        places = self._ticks[size]
        following = bisect_right(places, match.start())
        if following == len(places):
            self._add_words(match.group())
            return match.end()
        end = places[following] + size
        raw = self._text[match.start() : end]
        self._tree.add(fixed(self._restore(raw), raw[size:-size]))
        return end

    def _take_tag(self, match: re.Match[str]) -> None:
        name, raw = match["name"].lower(), self._restore(match.group())
        if name in VOID or raw.endswith("/>"):
            self._tree.add(Fixed(raw, separates=name != "wbr"))
        elif match["slash"]:
            self._tree.close(name, raw)
        else:
            self._tree.open(name, raw)

    def _take_link(self, match: re.Match[str]) -> int:
        """Close a link at "]" if it has a URL or a defined label; otherwise the bracket is text.

        Returns the position in the text where reading continues.
        """
        to = match["to"] or ""
        label = self._text[self._brackets.pop() : match.start()] if self._brackets else ""
        defined = _fold(label) in self._labels
        if self._tree.innermost("[") and (to.startswith("(") or (to and to != "[]") or defined):
            own = not to or to == "[]"  # the name equals the text, which changes: write the name out
            self._tree.close("[", match.group(), f"][{label}]" if own else None)
            return match.end()
        self._tree.forget("[")
        self._add_words("]")
        return match.start() + 1

    def _take_stress(self, match: re.Match[str]) -> None:
        """Process a run of *, _ or ~: its first characters close open emphasis, the others open new emphasis."""
        raw, mark = match.group(), match.group()[0]
        before = self._text[match.start() - 1 : match.start()] or " "
        after = self._text[match.end() : match.end() + 1] or " "
        inside_word = mark == "_" and before.isalnum() and after.isalnum()
        left = len(raw)
        while left and not before.isspace() and not inside_word:
            name = self._tree.innermost(mark, mark * 2) if left > 1 else self._tree.innermost(mark)
            if not name:
                break
            self._tree.close(name, name)
            left -= len(name)
        while left:
            size = 2 if left >= 2 else 1
            text = mark * size
            if after.isspace() or inside_word or left > 3:
                self._add_words(text)
            else:
                self._tree.open(text, text, may_be_empty=False, unmatched=Words(text, text))
            left -= size


# ---------------------------------------------------------------------------------------------------------------------
# Blocks

_FRONT_MATTER = re.compile(
    r"(---(?=[ \t]*\r?\n(?:[\w\"'-]+[ \t]*:|\#))|\+\+\+(?=[ \t]*\r?\n(?:[\w\"'.-]+[ \t]*=|[\[\#])))"
    r"[ \t]*\r?\n(?:.*\n)*?\1[ \t]*(?:\r?\n|\Z)"
)
_LINE = re.compile(
    r"((?:[ \t]*(?:>|[-*+](?=[ \t])(?:[ \t]+\[[ xX]\](?=[ \t]))?|\d{1,9}[.)](?=[ \t])))*+[ \t]*)"
    r"([^\r\n]*)(\r\n|\n|\r|\Z)"
)
_LIST_MARKER = re.compile(r"(?:^|[ \t>])(?:[-*+]|\d{1,9}[.)])[ \t]")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_HEADING = re.compile(r"#{1,6}[ \t]+")
_DEFINITION = re.compile(r"[ \t]{0,3}\[([^\^\[\]][^\[\]]*)\]:[ \t]*\S")
_NOTE = re.compile(r"\[\^[^\[\]\s]+\]:[ \t]+")
_DELIMITER_ROW = re.compile(r"[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+$")
_CELL_END = re.compile(r"((?<!\\)\|)")
_HTML_BLOCK = re.compile(
    r"<(?:!--|[!?]|/?(?:address|article|aside|blockquote|body|center|dd|details|dialog|div|dl|dt|fieldset|figcaption|"
    r"figure|footer|form|h[1-6]|head|header|hr|html|iframe|li|link|main|menu|meta|nav|ol|option|p|pre|script|section|"
    r"select|style|summary|table|tbody|td|textarea|tfoot|th|thead|title|tr|ul)(?=[\s/>]|$))",
    re.IGNORECASE,
)
# HTML blocks that may contain blank lines, and their ends.
_HTML_ENDS = {"<!--": "-->", "<script": "</script", "<pre": "</pre", "<style": "</style", "<textarea": "</textarea"}
_LINE_START = re.compile(r"(\n[ \t>]*+|^)([-+*#=>]|\d+(?=[.)]))(?=[.)]?(?:\s|$))")


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    front = _FRONT_MATTER.match(source)
    start = front.end() if front else 0
    lines = [_Line(*match.groups()) for match in _LINE.finditer(source, start) if match.group()]
    return [source[:start], *_Reader(lines, draft).read()]


class _Line(NamedTuple):
    """A line of the source, split into its indentation and list marks, the rest of the line, and the line end."""

    marks: str  # indentation, quotation marks and list marks
    rest: str
    end: str

    @property
    def text(self) -> str:
        return self.marks + self.rest


def _guard_lines(text: str) -> str:
    """Escape line starts of a translated paragraph that Markdown would read as list items, headings or quotations."""
    return _LINE_START.sub(
        lambda found: f"{found[1]}{found[2]}\\" if found[2][0].isdigit() else rf"{found[1]}\{found[2]}", text
    )


class _Reader:
    """Splits lines into blocks (paragraphs, tables, code and others); `draft` collects the texts of the blocks."""

    def __init__(self, lines: Sequence[_Line], draft: Draft):
        self._lines, self._draft = lines, draft
        self._labels = {_fold(match[1]) for line in lines if (match := _DEFINITION.match(line.text))}
        self._pieces: list[Piece] = []
        self._paragraph: list[_Line] = []
        self._in_list = False

    def read(self) -> list[Piece]:
        at = 0
        while at < len(self._lines):
            at = self._read_block(at)
        self._flush()
        return self._pieces

    def _read_block(self, at: int) -> int:
        """Read the line with index `at`, or the whole block that starts there; return the index of the next line."""
        line = self._lines[at]
        if not line.rest.strip():
            return self._keep_until(at, at + 1)
        if fence := _FENCE.match(line.rest):
            return self._keep_until(at, self._end_of_fence(at, fence[1] or fence[2]))
        is_indented = line.text.startswith(("    ", "\t")) and not self._paragraph and not self._in_list
        if is_indented:  # code
            return self._keep_until(at, at + 1)
        if _HTML_BLOCK.match(line.rest):
            return self._read_html(at)
        if "|" in line.text and at + 1 < len(self._lines) and _DELIMITER_ROW.match(self._lines[at + 1].text):
            return self._read_table(at)
        if _DEFINITION.match(line.text) or not any(map(str.isalpha, line.rest)):
            return self._keep_until(at, at + 1)
        self._read_line(line)
        return at + 1

    def _read_line(self, line: _Line) -> None:
        """Add the text of a heading, or append any other line to the current paragraph."""
        begins_item = bool(_LIST_MARKER.search(line.marks))
        if begins_item or line.marks.count(">") > (self._paragraph[0].marks.count(">") if self._paragraph else 0):
            self._flush()
        self._in_list = begins_item or (self._in_list and line.text[:1].isspace())
        if heading := _HEADING.match(line.rest):
            self._flush()
            text = line.rest[heading.end() :]
            words = text.rstrip()
            unclosed = words.rstrip("#")  # "## Heading ##"
            words = unclosed if unclosed[-1:].isspace() else words
            self._pieces.append(line.marks + heading.group())
            self._add(words)
            self._pieces.append(text[len(words) :] + line.end)
        else:
            self._paragraph.append(line)

    def _add(self, text: str, breaks: Sequence[tuple[str, bool]] = (), escape: Escape = _escape) -> None:
        nodes = _Inline(text, breaks, self._labels, self._draft).read()
        self._pieces += self._draft.add(nodes, escape, _guard_lines)

    def _flush(self) -> None:
        """End the current paragraph, if there is one: add its lines as one text to translate."""
        lines, self._paragraph = self._paragraph, []
        if not lines:
            return
        note = _NOTE.match(lines[0].rest)
        marks = lines[0].marks + (note.group() if note else "")
        texts = [lines[0].text[len(marks) :], *(line.rest for line in lines[1:])]
        # The end of each line: spaces, or the backslash of a hard line break.
        ends = [text[len(text.rstrip()) :] or ("\\" if text.endswith("\\") else "") for text in texts]
        breaks = [
            (end + line.end + following.marks, end.endswith(("  ", "\\")))
            for end, line, following in zip(ends, lines, lines[1:], strict=False)
        ]
        self._pieces.append(marks)
        self._add("\n".join(text.removesuffix(end) for text, end in zip(texts, ends, strict=True)), breaks)
        self._pieces.append(ends[-1] + lines[-1].end)

    # Blocks that stay unchanged, and blocks with their own parser

    def _keep_until(self, at: int, end: int) -> int:
        self._flush()
        self._pieces += map("".join, self._lines[at:end])
        return end

    def _end_of_fence(self, at: int, fence: str) -> int:
        """The index of the line after the code block that starts at line `at` with `fence` (three or more ` or ~)."""
        for place in range(at + 1, len(self._lines)):
            text = self._lines[place].text.strip(" \t>")
            if text.startswith(fence) and not text.strip(fence[0]):
                return place + 1
        return len(self._lines)

    def _read_html(self, at: int) -> int:
        """Read the HTML block that starts at line `at`; return the index of the line after it.

        A block ends at a blank line; an element of _HTML_ENDS, e.g. <pre>, ends at its end tag.
        """
        self._flush()
        lowered = self._lines[at].rest.lower()
        closing = next((end for start, end in _HTML_ENDS.items() if lowered.startswith(start)), "")
        end = at
        while end < len(self._lines) and (closing or self._lines[end].text.strip()):
            end += 1
            if closing and closing in self._lines[end - 1].text.lower():
                break
        self._pieces += html.parse("".join(map("".join, self._lines[at:end])), self._draft, "html")
        return end

    def _read_table(self, at: int) -> int:
        """Read the table that starts at line `at`, with each cell as a text; return the index of the line after it."""
        self._flush()
        head = at
        while at < len(self._lines) and (at <= head + 1 or "|" in self._lines[at].text):
            line = self._lines[at]
            at += 1
            if at == head + 2:
                self._pieces.append("".join(line))
                continue
            self._pieces.append(line.marks)
            for place, part in enumerate(_CELL_END.split(line.rest)):
                if place % 2:
                    self._pieces.append(part)
                else:
                    self._add(part, escape=lambda text: _escape(text).replace("|", "\\|"))
            self._pieces.append(line.end)
        return at
