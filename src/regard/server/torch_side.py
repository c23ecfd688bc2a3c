"""What a run does with torch: opened when it is first needed, and only ever touched by the one thread for torch.

One thread, because switching a head off, or recording what passes, changes the model for whoever else is using it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from regard.config import Search
from regard.run import Run
from regard.tasks.answer import Answer

if TYPE_CHECKING:
    from regard.server.knowledge import Librarian
    from regard.tasks.align import Aligner
    from regard.tasks.chat import Chatter
    from regard.tasks.classify import Classifier
    from regard.tasks.open import Opened
    from regard.tasks.tag import Tagger
    from regard.tasks.translate import Translator

Json = dict[str, Any]
Off = tuple[tuple[str, int], ...]
"""Heads to switch off: names of attentions, and numbers of heads."""


@dataclass(frozen=True)
class Sentence:
    """A piece of text to translate, and how."""

    text: str
    settings: Search
    nbest: int = 1
    details: bool = False

    @property
    def key(self) -> tuple[Search, int, bool]:
        """What sentences that are translated together have in common."""
        return self.settings, self.nbest, self.details


@dataclass(frozen=True)
class Look:
    """A sentence to look inside; its translation may be given, and heads may be off."""

    text: str
    target: str | None = None
    off: Off = ()
    quick: bool = True


class TorchSide:
    """A run, opened with torch."""

    def __init__(self, run: Run):
        self.run = run

    @cached_property
    def opened(self) -> Opened:
        """The run, loaded."""
        from regard.system import keep_memory
        from regard.tasks.open import open_run

        keep_memory()
        return open_run(self.run)

    @property
    def translator(self) -> Translator:
        """A run that translates."""
        from regard.tasks.translate import Translator

        assert isinstance(self.opened, Translator)
        return self.opened

    @property
    def chatter(self) -> Chatter | Librarian:
        """A run that talks."""
        from regard.server.knowledge import Librarian
        from regard.tasks.chat import Chatter
        from regard.tasks.retrieve import Retriever

        if isinstance(self.opened, Retriever):
            return Librarian(self.opened)
        assert isinstance(self.opened, Chatter)
        return self.opened

    @property
    def classifier(self) -> Classifier:
        """A run that classifies."""
        from regard.tasks.classify import Classifier

        assert isinstance(self.opened, Classifier)
        return self.opened

    @property
    def tagger(self) -> Tagger:
        """A run that tags words."""
        from regard.tasks.tag import Tagger

        assert isinstance(self.opened, Tagger)
        return self.opened

    def translate(self, sentences: list[Sentence]) -> list[Answer]:
        """Answers to sentences that have their settings in common."""
        first, texts = sentences[0], [sentence.text for sentence in sentences]
        return self.translator.translate(texts, nbest=first.nbest, **vars(first.settings))

    def align(self, answers: list[Answer]) -> list[Answer]:
        """The answers with their alignments, whoever translated them."""
        return self._aligner.add(answers)

    def inspect(self, look: Look) -> Json:
        """The inspection of a sentence, as `regard inspect` makes it."""
        from regard.tasks.inspect_page import inspect_run

        with self._without(look.off):
            return inspect_run(
                self.run,
                look.text,
                look.target,
                quick=look.quick,
                translator=self.translator,
                measured=self._measured,
            )

    @cached_property
    def _aligner(self) -> Aligner:
        from regard.tasks.align import Aligner

        translator = self.translator
        return Aligner(translator.model, translator.source, translator.target, translator.alignment)

    @cached_property
    def _measured(self) -> dict[str, Json]:
        from regard.tasks.inspect_page import read_measured

        return read_measured(self.run)

    @contextmanager
    def _without(self, off: Off) -> Iterator[None]:
        """Some heads switched off."""
        from regard.layers.taps import listen, without_heads

        by_attention: dict[str, list[int]] = defaultdict(list)
        for attention, head in off:
            by_attention[attention].append(head)
        with ExitStack() as stack:
            for attention, heads in by_attention.items():
                stack.enter_context(listen(self.translator.model, attention, without_heads(*heads)))
            yield
