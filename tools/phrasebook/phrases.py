"""Phrases that are translated as a whole: names, idioms, places, manners, times. Numbers after a slash align words."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tools.phrasebook.tokens import Fixed, parse_fixed
from tools.phrasebook.verbs import Verb, make_verb

# Idioms: verb and rest in English, verb and rest in Italian, behaviour as in the table of verbs.
_IDIOMS = """
take | a/1 shower/2 | fare | la/1 doccia/2 | alone
take | a/1 bath/2 | fare | il/1 bagno/2 | alone
take | a/1 walk/2 | fare | una/1 passeggiata/2 | at:outdoors with alone
take | a/1 nap/2 | fare | un/1 pisolino/2 | at:asleep alone
have | breakfast | fare | colazione | where at:meal at:cafe with alone
have | a/1 party/2 | fare | una/1 festa/2 | where with alone
make | the/1 bed/2 | fare | il/1 letto/2 | alone
make | a/1 mistake/2 | fare | un/1 errore/2 | point alone
prepare | dinner | preparare | la cena | alone
prepare | lunch | preparare | il pranzo | alone
do | the/1 shopping/2 | fare | la/1 spesa/2 | where at:shop with alone
do | the/1 homework/2 | fare | i/1 compiti/2 | where at:reading with alone
do | the/1 washing/2 up/2 | lavare | i/1 piatti/2 | alone
pay | attention | fare | attenzione | long alone
ask | a/1 question/2 | fare | una/1 domanda/2 | alone
tell | the/1 truth/2 | dire | la/1 verità/2 | alone
tell | a/1 lie/2 | dire | una/1 bugia/2 | alone
play | football | giocare | a calcio | where at:playing with alone
play | tennis | giocare | a tennis | where with alone
play | cards | giocare | a carte | where at:cafe with alone
play | chess | giocare | a scacchi | where at:reading with alone
ride | a/1 bike/2 | andare | in/1 bicicletta/2 | where at:outdoors with alone
have | a/1 cold/2 | avere | il/1 raffreddore/2 | state alone
have | a headache | avere | mal di testa | state alone
"""

# What one is in English, one has in Italian.
_STATES = """
hungry | fame
thirsty | sete
sleepy | sonno
afraid | paura
cold | freddo
hot | caldo
right | ragione
wrong | torto
in a hurry | fretta
"""

# Where and how. Of a place, `in/to the kitchen` gives at once where one is and where one goes; `-` is no preposition.
_CIRCUMSTANCES = """
in/to the kitchen | in cucina | kitchen meal go
in/to the garden | in giardino | meal reading playing sleeping go
at/to school | a scuola | study teaching playing go return
at/to the university | all' università | study teaching working go return arrival
at/to the office | in ufficio | working staffed meal go return arrival
at/to the hospital | in ospedale | working staffed go arrival
at/to the bank | in banca | working staffed go
at/to the station | alla stazione | meeting go arrival
at/to the airport | all' aeroporto | working meeting go arrival
at/to the cinema | al cinema | go meeting
at/to the theatre | a teatro | go meeting
at/to the museum | al museo | working go meeting
at/to the market | al mercato | shop go meeting
at/to the supermarket | al supermercato | shop working go
at/to the restaurant | al ristorante | meal working staffed go party
at/to the bar | al bar | cafe working go meeting
at/to the stadium | allo stadio | go playing
at/to the zoo | allo zoo | working staffed go
at/to the gym | in palestra | go
in/to the library | in biblioteca | reading study working go meeting
in/to the park | al parco | outdoors playing reading go meeting
on/to the beach | in spiaggia | outdoors playing reading sleeping staying go
at/to the seaside | al mare | staying go return
in/to the mountains | in montagna | living outdoors staying go return
in/to the countryside | in campagna | living outdoors staying go return
in/to the city | in città | living working go return
in/to the square | in piazza | meeting playing go
at/- home | a casa | home meal reading study staying sleeping kitchen return go
in/to bed | a letto | staying reading go
on the sofa | sul divano | reading asleep sleeping
at/to the party | alla festa | party go arrival meeting
in/to Italy | in Italia | living working
in/to France | in Francia | living working
in/to Spain | in Spagna | living working
in/to Germany | in Germania | living working
in/to Rome | a Roma | living working study go return arrival
in/to Milan | a Milano | living working study go return arrival
in/to Florence | a Firenze | living working study go return arrival
in/to Venice | a Venezia | living working go return arrival
in the sea | in mare | swimming
in the lake | nel lago | swimming
in the swimming pool | in piscina | swimming
by train | in treno | transport
by car | in macchina | transport
by plane | in aereo | transport
early | presto | early punctual
late | tardi | early punctual
well | bene | well
badly | male | well
slowly | lentamente | slow
"""

_TIMES = """
every/1 day/2 | ogni/1 giorno/2 | present habit
every/1 morning/2 | ogni/1 mattina/2 | present habit
every/1 evening/2 | ogni/1 sera/2 | present
every/1 Sunday/2 | ogni/1 domenica/2 | present habit
in/1 the/1 morning/2 | la/1 mattina/2 | present
in/1 the/1 afternoon/2 | il/1 pomeriggio/2 | present
now | adesso | progressive modal
today | oggi | being modal
yesterday | ieri | past was
last/1 night/2 | ieri/1 sera/2 | past
last/1 week/2 | la/2 settimana/2 scorsa/1 | past
last/1 Saturday/2 | sabato/2 scorso/1 | past
this/1 morning/2 | stamattina/1,2 | past was
two/1 days/2 ago/3 | due/1 giorni/2 fa/3 | past
tomorrow | domani | future modal
tonight | stasera | future modal
next/1 week/2 | la/2 settimana/2 prossima/1 | future modal
next/1 Friday/2 | venerdì/2 prossimo/1 | future
next/1 month/2 | il/2 mese/2 prossimo/1 | future
"""

ADVERBS = {"always": "sempre", "often": "spesso", "never": "mai"}

_WOMEN = ("Maria", "Anna", "Giulia", "Sara", "Elena", "Sofia", "Laura", "Chiara")
_MEN = ("Marco", "Luca", "Paolo", "Matteo", "Andrea", "Francesco", "Davide", "Pietro")


class Name(NamedTuple):
    """A person's name, the same in both languages."""

    text: str
    feminine: bool


class Circumstance(NamedTuple):
    """A place or a manner, with the phrases for being there and for going there, and tags of fitting verbs."""

    at: Fixed
    to: Fixed
    tags: frozenset[str]

    @property
    def is_place(self) -> bool:
        """Whether it is a place (at the station), not a manner (early)."""
        return len(self.at.italian) > 1


def _rows(table: str) -> list[list[str]]:
    return [[column.strip() for column in line.split("|")] for line in table.splitlines() if line]


@functools.cache
def names() -> tuple[Name, ...]:
    """The people of the phrasebook."""
    return tuple(
        Name(text, feminine)
        for pair in zip(_WOMEN, _MEN, strict=True)
        for text, feminine in zip(pair, (True, False), strict=True)
    )


@functools.cache
def idioms() -> tuple[tuple[Verb, Fixed], ...]:
    """Verb and rest of each idiom."""
    return tuple(
        (make_verb(verb, verbo, "", behaviour), parse_fixed(rest, resto))
        for verb, rest, verbo, resto, behaviour in _rows(_IDIOMS)
    )


def idiom(name: str) -> tuple[Verb, Fixed]:
    """The idiom with that English name."""
    return next((verb, rest) for verb, rest in idioms() if f"{verb.name} {rest.name}" == name)


@functools.cache
def states() -> tuple[Fixed, ...]:
    """What follows to be in "to be hungry", and avere in "avere fame"."""
    return tuple(parse_fixed(english, italian) for english, italian in _rows(_STATES))


@functools.cache
def times(tag: str) -> tuple[Fixed, ...]:
    """The times that fit a tense or another use."""
    return tuple(parse_fixed(english, italian) for english, italian, tags in _rows(_TIMES) if tag in tags.split())


@functools.cache
def circumstances() -> tuple[Circumstance, ...]:
    """Every place and manner."""
    return tuple(_parse_circumstance(*row) for row in _rows(_CIRCUMSTANCES))


def _parse_circumstance(english: str, italian: str, tags: str) -> Circumstance:
    head, *rest = english.split()
    at, _, to = head.partition("/")
    return Circumstance(
        _place([at, *rest], italian.split()), _place([to or at, *rest], italian.split()), frozenset(tags.split())
    )


def _place(english: list[str], italian: list[str]) -> Fixed:
    """Align a place by rule: preposition, article if both sides show one, noun."""
    if len(italian) == 1:
        return Fixed(tuple((word, ("0",)) for word in english), ((italian[0], ("0",)),))
    preposition, *noun = italian
    articulated = preposition not in ("a", "in")
    article_mark = "article" if articulated else "noun"
    marks: dict[str, tuple[str, ...]] = {"the": (article_mark,)}
    words = [(word, marks.get(word, ("noun",))) for word in english[1:]]
    if english[0] == "-":  # "home" alone says what "a casa" says
        words = [(word, ("preposition", "noun")) for word, _ in words]
    else:
        words.insert(0, (english[0], ("preposition",)))
    first = (preposition, ("preposition", "article") if articulated else ("preposition",))
    return Fixed(tuple(words), (first, *((word, ("noun",)) for word in noun)))
