"""The adjectives: English, Italian, and the tags of the nouns that each can describe.

One adjective per line: `english | italian | tags`. Besides the tags of nouns: `before` places the Italian adjective
before its noun; `absolute` adjectives take no very or too; `attribute` adjectives are used only beside a noun; after to
be, people can have `mood` adjectives (temporary) and `trait` adjectives (permanent), and animals can have `weary` ones.
An `excuse` explains why somebody did not do something.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tools.phrasebook.nouns import Noun

_ADJECTIVES = """
beautiful | bello | before clothes vehicle sight building sung told instrument drawn
good | buono | before food drink text show sung
old | vecchio | before vehicle furniture building luggage instrument pet trade adult
young | giovane | before trade adult trait
dear | caro | before attribute absolute kin companion
new | nuovo | absolute clothes vehicle machine furniture instrument luggage
big | grande | animal building vehicle luggage room surface baked
small | piccolo | animal building vehicle luggage room surface
red | rosso | absolute coloured
green | verde | absolute coloured
yellow | giallo | absolute coloured
black | nero | absolute coloured pet
white | bianco | absolute coloured pet
blue | blu | absolute coloured
grey | grigio | absolute coloured pet
brown | marrone | absolute coloured pet
pink | rosa | absolute coloured
elegant | elegante | clothes
warm | caldo | warm
expensive | costoso | clothes vehicle machine furniture instrument
cheap | economico | clothes vehicle machine furniture
long | lungo | long
heavy | pesante | heavy luggage furniture
full | pieno | absolute full container
empty | vuoto | absolute full container
clean | pulito | clothes cleaned dishes vehicle
dirty | sporco | clothes cleaned dishes vehicle
open | aperto | absolute opened
closed | chiuso | absolute opened
broken | rotto | absolute machine fragile fixed
fresh | fresco | fresh fruit vegetable
hot | caldo | hot hotdrink
cold | freddo | hot hotdrink cool
sweet | dolce | fruit sweet
delicious | squisito | absolute hot sweet baked snack
ripe | maturo | fruit
interesting | interessante | text show watched lesson subject
boring | noioso | text show watched lesson subject
funny | divertente | text show
difficult | difficile | lesson subject language
easy | facile | lesson subject language
important | importante | lesson mail
strange | strano | noise text
loud | forte | noise
famous | famoso | trade sight sung
wide | largo | wide
narrow | stretto | narrow
dangerous | pericoloso | road wild
crowded | affollato | crowded transport
deep | profondo | deep
dark | buio | dark room
muddy | fangoso | muddy
modern | moderno | building furniture
ancient | antico | sight
bright | luminoso | room
comfortable | comodo | soft
fast | veloce | vehicle fast
tall | alto | role tall trait
kind | gentile | trade companion trait
nice | simpatico | trade adult companion trait
intelligent | intelligente | trade companion pet trait
rich | ricco | trade adult trait
lazy | pigro | trade pet trait
shy | timido | role wild trait
brave | coraggioso | role pet trait
patient | paziente | trade trait
generous | generoso | companion trait
curious | curioso | role pet trait
Italian | italiano | absolute trade show choice trait
French | francese | absolute trade show choice trait
English | inglese | absolute trade text trait
German | tedesco | absolute trade vehicle trait
happy | felice | mood
sad | triste | mood sung told show excuse
tired | stanco | mood weary excuse
busy | occupato | mood excuse
ready | pronto | absolute mood
ill | malato | mood excuse
angry | arrabbiato | mood excuse
worried | preoccupato | mood excuse
nervous | nervoso | mood weary excuse
calm | calmo | mood
alone | solo | absolute mood
surprised | sorpreso | mood
scared | spaventato | mood weary
slow | lento | mood weary
late | in ritardo | mood
trendy | alla moda | mood
fit | in forma | mood
safe | al sicuro | absolute mood
"""


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective in both languages; the Italian side may be a phrase that does not change ("alla moda")."""

    english: str
    italian: str
    tags: frozenset[str]

    @property
    def before(self) -> bool:
        """Whether Italian places it before the noun."""
        return "before" in self.tags

    @property
    def classifies(self) -> bool:
        """Whether it names a color or an origin, so that another adjective can come first: "a beautiful red car"."""
        return not self.gradable and not self.tags.isdisjoint(("coloured", "trade"))

    @property
    def gradable(self) -> bool:
        """Whether it can follow very and too."""
        return "absolute" not in self.tags


@functools.cache
def adjectives() -> tuple[Adjective, ...]:
    """Every adjective, in the order of the table."""
    rows = (line.split("|") for line in _ADJECTIVES.splitlines() if line)
    return tuple(
        Adjective(english.strip(), italian.strip(), frozenset(tags.split())) for english, italian, tags in rows
    )


@functools.cache
def adjectives_with(tag: str) -> tuple[Adjective, ...]:
    """The adjectives that have the tag."""
    return tuple(adjective for adjective in adjectives() if tag in adjective.tags)


@functools.cache
def adjectives_for(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that can describe the noun."""
    return tuple(adjective for adjective in adjectives() if not adjective.tags.isdisjoint(noun.tags))


def adjective(english: str) -> Adjective:
    """The adjective with that English name."""
    return next(adjective for adjective in adjectives() if adjective.english == english)
