"""The verbs: English, Italian, what they take as an object, and how they behave.

One verb per line: `english | italian | tags of the objects | behaviour`. Words that belong together have the same
number after a slash; without numbers, all words of one side translate all of the other. An Italian verb may end in the
preposition that its object takes ("pensare a"); -si makes it reflexive.

Behaviour, by what it is about:
  when    a `state` has no progressive and its past is the imperfetto; a `point` has no duration, so that it is told in
          the past or of habits; an `accident` befalls; a `perception` and what is `lasting` have no progressive;
          what is `long` has no time
  what    `the`, `one`, `new`, `plain`, `single`, `own`, `bare`, `general` limit the object (see `noun_choices`)
  where   `at:tag` and `to:tag` name the circumstances that fit, `with` allows company, `alone` allows none of them;
          an `outing` is what tired people put off
  whom    `to` allows somebody to whom, `whom` needs somebody; `by:tag` names subjects other than people
  asking  `what` and `where` allow that question
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tools.phrasebook.tokens import parse_marked

_VERBS = """
eat | mangiare | food | what where at:meal
drink | bere | drink | what at:cafe
cook | cucinare | hot vegetable | what at:kitchen
cut | tagliare | fruit vegetable baked |
buy | comprare | clothes text furniture vehicle machine give luggage | what where
buy | comprare | food drink | where at:shop
sell | vendere | owned furniture instrument fruit | what where
read | leggere | text | what where at:reading
write | scrivere | written | what
write | scrivere | mail | to
send | mandare | mail | what to
receive | ricevere | mail give | what
open | aprire | opened luggage mail |
close | chiudere | opened luggage |
clean | pulire | cleaned |
wash | lavare | clothes dishes vehicle | what
wear | indossare | clothes | single state
find | trovare | small | point what where
lose | perdere | small | point what where
look for | cercare | small item | what
forget | dimenticare | small luggage | point what
carry | portare | luggage |
take | prendere | transport | one
wait for | aspettare | transport | one
get on | salire su | transport | one
get off | scendere da | transport | one
drive | guidare | driven | single
repair | riparare | machine fixed | what
break | rompere | fragile machine | point what
turn on | accendere | switch | one
turn off | spegnere | switch | one
watch | guardare | show watched | what where
listen to | ascoltare | heard sung | what
hear | sentire | noise sung | plain perception
sing | cantare | sung | what
play | suonare | instrument | one
study | studiare | subject | bare what where at:study
teach | insegnare | subject language | bare what where at:teaching
speak | parlare | language | long bare
learn | imparare | language | long general
visit | visitare | sight city | the
cross | attraversare | road | one by:animal
draw | disegnare | drawn pet | what
paint | dipingere | drawn | what
build | costruire | built | long what
give | dare | give flower | what whom
lend | prestare | text fixed tool | whom
show | mostrare | give shown | whom
tell | raccontare | told | whom
explain | spiegare | lesson | what to
understand | capire | lesson | perception the
finish | finire | work long | the
pay | pagare | bill | the
choose | scegliere | choice clothes give | what
use | usare | tool machine | what
answer | rispondere a | answered mail | the
leave/1 for/2 | partire/1 per/2 | city | bare
enter | entrare in | room sight | the
win | vincere | match | one
have | avere | owned pet furniture small | new state
want | volere | snack drink clothes machine give owned | plain state what
need | avere bisogno di | tool machine small luggage | state
prefer | preferire | food drink subject | state general
hate | odiare | subject vegetable fish | state general
be/1 afraid/2 of/3 | avere/1 paura/2 di/3 | animal | state general
feed | dare da mangiare a | pet farm |
wash | lavarsi | body hair | own
brush | lavarsi | teeth | own
comb | pettinarsi | hair | own
break | rompersi | limb | own accident
put on | mettersi | clothes | own
take off | togliersi | clothes | own
see | vedere | animal sight | perception
think about | pensare a | lesson sight city | the
"""

_PERSON_VERBS = """
see | vedere | | perception where
meet | incontrare | | where at:meeting
help | aiutare | |
call | chiamare | |
thank | ringraziare | |
greet | salutare | |
invite | invitare | | to:party
wait for | aspettare | | where at:meeting
look for | cercare | |
know | conoscere | | state
love | amare | | state
listen to | ascoltare | |
hug | abbracciare | |
phone | telefonare a | |
answer | rispondere a | |
talk/1 to/2 | parlare/1 con/2 | |
take care of | prendersi cura di | |
think/1 about/2 | pensare/1 a/2 | |
"""

_BARE_VERBS = """
go | andare | | where to:go with outing
come | venire | | to:party to:home with outing
return | tornare | | to:return
arrive | arrivare | | where at:arrival at:punctual by:transport alone
leave | partire | | at:punctual by:transport alone
live | abitare | | state where at:living with
work | lavorare | | where at:working at:well with outing
study | studiare | | where at:study at:well with outing
sleep | dormire | | where at:sleeping at:well by:pet alone
run | correre | | where at:outdoors by:animal alone outing
walk | camminare | | where at:outdoors at:slow with outing
swim | nuotare | | where at:swimming at:well with alone outing
play | giocare | | where at:playing by:pet with outing
sing | cantare | | at:well at:kitchen
dance | ballare | | where at:party at:well with alone outing
travel | viaggiare | | at:transport with alone
stay | restare | | lasting where at:staying with
go out | uscire | | with alone outing
smile | sorridere | | alone
laugh | ridere | | with alone
cry | piangere | | alone
cook | cucinare | | at:well at:kitchen with
wake up | svegliarsi | | at:early by:pet alone
get up | alzarsi | | at:early alone
fall asleep | addormentarsi | | point at:asleep at:early by:pet alone
get dressed | vestirsi | | at:slow alone
have fun | divertirsi | | where at:party at:playing with alone outing
rest | riposarsi | | where at:staying by:pet alone
get angry | arrabbiarsi | | point with alone
have lunch | pranzare | | where at:meal with alone
have dinner | cenare | | where at:meal with alone
get bored | annoiarsi | | where at:working at:party alone
"""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb in both languages; the first word of each side is the one that is conjugated."""

    english: tuple[tuple[str, tuple[str, ...]], ...]
    italian: tuple[tuple[str, tuple[str, ...]], ...]
    preposition: tuple[str, tuple[str, ...]] | None
    """The Italian preposition before the object, with its marks."""
    reflexive: bool
    objects: frozenset[str]
    behaviour: tuple[str, ...]

    @property
    def name(self) -> str:
        """The English infinitive, which names the verb."""
        return " ".join(text for text, _ in self.english)

    def is_a(self, behaviour: str) -> bool:
        """Whether the verb has this behaviour."""
        return behaviour in self.behaviour

    def listed(self, prefix: str) -> tuple[str, ...]:
        """What follows `prefix` in the behaviour: `listed("at:")` of a verb with `at:meal` is `("meal",)`."""
        return tuple(word.removeprefix(prefix) for word in self.behaviour if word.startswith(prefix))


_PREPOSITIONS = frozenset(("a", "di", "da", "in", "su", "con", "per"))


def make_verb(english: str, italian: str, objects: str = "", behaviour: str = "") -> Verb:
    """A verb from the columns of its line."""
    words = list(parse_marked(italian))
    preposition = words.pop() if words[-1][0] in _PREPOSITIONS else None
    infinitive, marks = words[0]
    reflexive = infinitive.endswith("si")
    if reflexive:
        infinitive = infinitive.removesuffix("si") + "e"
    words[0] = (infinitive, marks)
    return Verb(
        parse_marked(english),
        tuple(words),
        preposition,
        reflexive,
        frozenset(objects.split()),
        tuple(behaviour.split()),
    )


def _parse(table: str) -> tuple[Verb, ...]:
    return tuple(make_verb(*line.split("|")) for line in table.splitlines() if line)


@functools.cache
def thing_verbs() -> tuple[Verb, ...]:
    """Verbs with a thing, an animal or a place as their object."""
    return _parse(_VERBS)


def thing_verb(name: str) -> Verb:
    """The verb with that English name."""
    return next(verb for verb in thing_verbs() if verb.name == name)


@functools.cache
def person_verbs() -> tuple[Verb, ...]:
    """Verbs with a person as their object."""
    return _parse(_PERSON_VERBS)


@functools.cache
def bare_verbs() -> tuple[Verb, ...]:
    """Verbs without an object."""
    return _parse(_BARE_VERBS)


BE = make_verb("be", "essere", "", "state")
BE_IN_A_STATE = make_verb("be", "avere", "", "state")
"""The verb of "to be hungry", "avere fame"."""
LIKE = make_verb("like", "piacere")
