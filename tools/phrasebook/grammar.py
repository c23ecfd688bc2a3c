"""Every sentence of the phrasebook, as one tree of choices that can be counted and drawn from."""

from __future__ import annotations

import functools

from tools.phrasebook.being import liked, people_are, there_is, things_are
from tools.phrasebook.choices import Choices, Either
from tools.phrasebook.doing import done_alone, done_as_they_say, people_met, things_done
from tools.phrasebook.meaning import Sentence
from tools.phrasebook.reasons import reasons


@functools.cache
def grammar() -> Choices[Sentence]:
    """All sentences; each kind is as frequent as its weight."""
    return Either(
        (34, things_done()),
        (10, people_met()),
        (14, done_alone()),
        (9, done_as_they_say()),
        (12, people_are()),
        (7, things_are()),
        (4, there_is()),
        (6, liked()),
        (7, reasons()),
    )
