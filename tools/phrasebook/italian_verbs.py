"""Italian conjugation: the simple tenses, the participle and the gerund, regular by rule and irregular by table."""

from __future__ import annotations

import functools

PRESENT, IMPERFECT, FUTURE, CONDITIONAL = "present", "imperfect", "future", "conditional"

_PRESENT_ENDINGS = {
    "are": ("o", "i", "a", "iamo", "ate", "ano"),
    "ere": ("o", "i", "e", "iamo", "ete", "ono"),
    "ire": ("o", "i", "e", "iamo", "ite", "ono"),
}
_IMPERFECT_ENDINGS = ("vo", "vi", "va", "vamo", "vate", "vano")
_FUTURE_ENDINGS = ("ò", "ai", "à", "emo", "ete", "anno")
_CONDITIONAL_ENDINGS = ("ei", "esti", "ebbe", "emmo", "este", "ebbero")

_IRREGULAR_PRESENTS = {
    "essere": "sono sei è siamo siete sono",
    "avere": "ho hai ha abbiamo avete hanno",
    "andare": "vado vai va andiamo andate vanno",
    "fare": "faccio fai fa facciamo fate fanno",
    "dare": "do dai dà diamo date danno",
    "stare": "sto stai sta stiamo state stanno",
    "venire": "vengo vieni viene veniamo venite vengono",
    "uscire": "esco esci esce usciamo uscite escono",
    "bere": "bevo bevi beve beviamo bevete bevono",
    "dire": "dico dici dice diciamo dite dicono",
    "salire": "salgo sali sale saliamo salite salgono",
    "scegliere": "scelgo scegli sceglie scegliamo scegliete scelgono",
    "togliere": "tolgo togli toglie togliamo togliete tolgono",
    "spegnere": "spengo spegni spegne spegniamo spegnete spengono",
    "volere": "voglio vuoi vuole vogliamo volete vogliono",
    "potere": "posso puoi può possiamo potete possono",
    "dovere": "devo devi deve dobbiamo dovete devono",
    "piacere": "piaccio piaci piace piacciamo piacete piacciono",
}
# Third conjugation verbs that insert -isc- where the stress falls on the ending: capisco, but capiamo.
_WITH_ISC = frozenset(("capire", "finire", "pulire", "preferire", "costruire"))

# Their compound tenses take essere, and the participle agrees with the subject; so do all reflexive verbs.
_WITH_ESSERE = "andare arrivare entrare essere partire piacere restare salire scendere tornare uscire venire"

# What the imperfect and the gerund are built on, where the infinitive has lost a syllable.
_FULL_INFINITIVES = {"fare": "facere", "dire": "dicere", "bere": "bevere"}

_FUTURE_STEMS = {
    "essere": "sar",
    "avere": "avr",
    "andare": "andr",
    "fare": "far",
    "dare": "dar",
    "stare": "star",
    "venire": "verr",
    "bere": "berr",
    "vedere": "vedr",
    "volere": "vorr",
    "potere": "potr",
    "dovere": "dovr",
    "cadere": "cadr",
    "vivere": "vivr",
}
_PARTICIPLES = {
    "essere": "stato",
    "fare": "fatto",
    "dire": "detto",
    "bere": "bevuto",
    "venire": "venuto",
    "leggere": "letto",
    "scrivere": "scritto",
    "aprire": "aperto",
    "chiudere": "chiuso",
    "perdere": "perso",
    "prendere": "preso",
    "accendere": "acceso",
    "scendere": "sceso",
    "rompere": "rotto",
    "vedere": "visto",
    "mettere": "messo",
    "correre": "corso",
    "rispondere": "risposto",
    "piangere": "pianto",
    "ridere": "riso",
    "sorridere": "sorriso",
    "vincere": "vinto",
    "scegliere": "scelto",
    "togliere": "tolto",
    "spegnere": "spento",
    "conoscere": "conosciuto",
    "piacere": "piaciuto",
    "dipingere": "dipinto",
}


def _keep_sound(stem: str, ending: str) -> str:
    """Stem and ending of a verb in -are with the spelling that keeps the sound: cerchi, paghi, mangi, studi."""
    if ending[0] in "ei":
        if stem[-1] in "cg":
            return stem + "h" + ending
        if stem.endswith("i") and (ending[0] == "i" or stem.endswith(("ci", "gi"))):
            return stem[:-1] + ending
    return stem + ending


@functools.cache
def _presents(infinitive: str) -> tuple[str, ...]:
    if infinitive in _IRREGULAR_PRESENTS:
        return tuple(_IRREGULAR_PRESENTS[infinitive].split())
    stem, group = infinitive[:-3], infinitive[-3:]
    endings = _PRESENT_ENDINGS[group]
    if infinitive in _WITH_ISC:
        return tuple(stem + ("isc" if i in (0, 1, 2, 5) else "") + ending for i, ending in enumerate(endings))
    if group == "are":
        return tuple(_keep_sound(stem, ending) for ending in endings)
    return tuple(stem + ending for ending in endings)


@functools.cache
def _future_stem(infinitive: str) -> str:
    if infinitive in _FUTURE_STEMS:
        return _FUTURE_STEMS[infinitive]
    if infinitive.endswith("are"):
        return _keep_sound(infinitive[:-3], "er")
    return infinitive[:-1]


@functools.cache
def _imperfects(infinitive: str) -> tuple[str, ...]:
    if infinitive == "essere":
        return ("ero", "eri", "era", "eravamo", "eravate", "erano")
    stem = _FULL_INFINITIVES.get(infinitive, infinitive)[:-2]
    return tuple(stem + ending for ending in _IMPERFECT_ENDINGS)


@functools.cache
def conjugate(infinitive: str, tense: str, person: int, plural: bool) -> str:
    """The form of a simple tense for a person (1 to 3) and number."""
    index = person - 1 + 3 * plural
    if tense == PRESENT:
        return _presents(infinitive)[index]
    if tense == IMPERFECT:
        return _imperfects(infinitive)[index]
    endings = {FUTURE: _FUTURE_ENDINGS, CONDITIONAL: _CONDITIONAL_ENDINGS}[tense]
    return _future_stem(infinitive) + endings[index]


def takes_essere(infinitive: str) -> bool:
    """Whether the compound tenses take essere, not avere."""
    return infinitive in _WITH_ESSERE.split()


def participle(infinitive: str) -> str:
    """The past participle in the masculine singular."""
    regular = infinitive[:-3] + {"are": "ato", "ere": "uto", "ire": "ito"}[infinitive[-3:]]
    return _PARTICIPLES.get(infinitive, regular)


def gerund(infinitive: str) -> str:
    """The gerund: mangiando, leggendo, facendo."""
    full = _FULL_INFINITIVES.get(infinitive, infinitive)
    return full[:-3] + ("ando" if full.endswith("are") else "endo")
