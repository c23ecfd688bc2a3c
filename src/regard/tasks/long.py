"""Lines that are longer than a model should be given: cut at sentence ends, translated in pieces, and joined again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.config import Search
from regard.data.sentences import cut
from regard.data.tokenizer import Tokenizer
from regard.errors import SettingsError
from regard.tasks.answer import Answer

Translate = Callable[[list[str]], list[Answer]]
TOO_LONG = "cut it, or set search.long_lines=split"


def in_pieces(texts: Sequence[str], tokenizer: Tokenizer, settings: Search, translate: Translate) -> list[Answer]:
    """Translate texts of any length. Most need no cutting, and are passed on as they are."""
    pieces = [pieces_of(text, tokenizer, settings, f"text {number}") for number, text in enumerate(texts, 1)]
    answers = iter(translate([piece for parts in pieces for piece in parts]))
    return [join(text, [next(answers) for _ in parts]) for text, parts in zip(texts, pieces, strict=True)]


def pieces_of(text: str, tokenizer: Tokenizer, settings: Search, name: str = "the text") -> list[str]:
    """What of a text is translated at a time. `name` is what it is called where long ones are refused."""
    limit = settings.max_source

    def fits(text: str) -> bool:
        return _within(text, tokenizer, limit)

    def together(text: str) -> bool:
        return _within(text, tokenizer, min(settings.join_up_to or 1, limit))

    if settings.long_lines == "split":
        return cut(text, fits, together) or [text]
    refuse_long(text, tokenizer, limit, name, TOO_LONG)
    return [text]


def refuse_long(text: str, tokenizer: Tokenizer, limit: int, name: str, advice: str) -> None:
    """An error where a text has more tokens than that."""
    if not _within(text, tokenizer, limit):
        size = len(tokenizer.encode(text))
        raise SettingsError(f"{name} has {size:,} tokens, more than search.max_source = {limit}; {advice}")


def _within(text: str, tokenizer: Tokenizer, most: int) -> bool:
    if len(text.encode(errors="surrogatepass")) <= most:  # no token is shorter than a byte
        return True
    return len(tokenizer.encode(text)) <= most


def join(source: str, parts: Sequence[Answer]) -> Answer:
    """One answer of several. Its score is the mean over their tokens; alternatives are not joined."""
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part.tokens) + 1 for part in parts]
    flags = dict.fromkeys(flag for part in parts for flag in part.flags)
    return Answer(
        source,
        " ".join(part.text for part in parts if part.text),
        sum(part.score * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes),
        tuple(token for part in parts for token in part.tokens),
        tuple(value for part in parts for value in part.log_probs),
        all(part.ended for part in parts),
        (*flags, "split"),
    )
