"""Inline Markdown: emphasis, links, code spans, images, and the tags and entities of HTML."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from html import unescape

from regard.documents.fragile import FRAGILE
from regard.documents.html_tokens import VOID
from regard.documents.inline import Break, Fixed, Node, Piece, Tree, Words, fixed, read_words
from regard.documents.segment import Draft

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
    rf"|(?P<fragile>{FRAGILE.pattern})"
)
_SPECIAL = re.compile(r"[\\`*_\[\]<]")


def escape_markdown(text: str) -> str:
    """Translated text as Markdown that reads as that text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def escape_cell(text: str) -> str:
    """The same, in a table."""
    return escape_markdown(text).replace("|", "\\|")


def read_inline(text: str, breaks: Sequence[tuple[str, bool]], labels: AbstractSet[str], draft: Draft) -> list[Node]:
    r"""The nodes of a paragraph. Each "\n" stands for a line break; `breaks` holds its source and whether it is hard.

    `labels` are the link definitions of the document.
    """
    return _Inline(text, breaks, labels, draft).read()


def fold_label(label: str) -> str:
    """The form in which names of links are compared."""
    return " ".join(label.casefold().split())


class _Inline:
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
            self._say(self._text[at : match.start()])
            at = self._take(match)
        self._say(self._text[at:])
        return self._tree.finish()

    def _say(self, text: str) -> None:
        if text:
            self._tree.add(Words(text, text))

    def _restore(self, raw: str) -> str:
        """Source of something that may run over line breaks."""
        first, *rest = raw.split("\n")
        return first + "".join(next(self._breaks)[0] + part for part in rest)

    def _take(self, match: re.Match[str]) -> int:
        """Add what was found to the tree; returns where to go on."""
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
            self._take_image(match)
        elif match["note"] or match["comment"]:
            tree.add(Fixed(self._restore(raw)))
        elif match["left"]:
            self._brackets.append(match.end())
            tree.open("[", raw, alone=Words(raw, raw))
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
        """A code span, up to the next run of equally many ticks; without one, the ticks are text."""
        size = len(match.group())
        places = self._ticks[size]
        following = bisect_right(places, match.start())
        if following == len(places):
            self._tree.add(Words(match.group(), match.group()))
            return match.end()
        end = places[following] + size
        raw = self._text[match.start() : end]
        self._tree.add(fixed(self._restore(raw), raw[size:-size]))
        return end

    def _take_tag(self, match: re.Match[str]) -> None:
        name, raw = match["name"].lower(), self._restore(match.group())
        if name in VOID or raw.endswith("/>"):
            self._tree.add(Fixed(raw, parts=name != "wbr"))
        elif match["slash"]:
            self._tree.close(name, raw)
        else:
            self._tree.open(name, raw)

    def _take_image(self, match: re.Match[str]) -> None:
        alt: list[Piece] = self._draft.add(list(read_words(match["alt"])), escape_markdown)
        self._tree.add(Fixed(("![", *alt, f"]{match['target']}"), parts=True))

    def _take_link(self, match: re.Match[str]) -> int:
        """The end of a link, with its address, or of a name that the document defines; else a bracket is text."""
        to = match["to"] or ""
        label = self._text[self._brackets.pop() : match.start()] if self._brackets else ""
        defined = fold_label(label) in self._labels
        if self._tree.is_open("[") and (to.startswith("(") or (to and to != "[]") or defined):
            own = not to or to == "[]"  # a name that is its own text would change with it: it is then written out
            self._tree.close("[", match.group(), f"][{label}]" if own else None)
            return match.end()
        self._tree.forget("[")
        self._tree.add(Words("]", "]"))
        return match.start() + 1

    def _take_stress(self, match: re.Match[str]) -> None:
        """Asterisks and the like: they end what they can, and begin the rest."""
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
                self._tree.add(Words(text, text))
            else:
                self._tree.open(text, text, hollow=False, alone=Words(text, text))
            left -= size
