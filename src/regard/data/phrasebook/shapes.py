"""How a clause may be put, by what its verb tells: tense, denial, question, adverb and time that go together."""

from __future__ import annotations

import functools
from dataclasses import replace

from regard.data.phrasebook.choices import Choices, Each, Either, Of, only
from regard.data.phrasebook.english_words import past
from regard.data.phrasebook.meaning import Modal, Question, Shape, Tense
from regard.data.phrasebook.phrases import ADVERBS, times
from regard.data.phrasebook.tokens import Fixed
from regard.data.phrasebook.verbs import Verb

_SAID = Of([False, False, False, True])
EVENT: dict[Tense, float] = {"present": 3, "progressive": 2, "past": 4, "future": 2, "used to": 1, "was doing": 1}
_MODALS: tuple[Modal, ...] = ("want", "can", "must", "would like")


def _timed(shapes: Choices[Shape], moments: tuple[Fixed, ...], weight: float) -> Either[Shape]:
    """The shapes, and with `weight` against one the same with a time, at the end or, in plain statements, first."""

    def put_time(shape: Shape, time: Fixed, time_first: bool) -> Shape:
        return replace(shape, time=time, time_first=time_first)

    places = [False, True] if all(not shape.question and not shape.negated for shape in shapes) else [False]
    return Either((1, shapes), (weight, Each(put_time, shapes, Of(moments), Of(places))))
