"""The Italian side: a meaning as Italian words, with dropped pronouns, clitics, agreement and contractions."""

from __future__ import annotations

from tools.phrasebook.italian_verbs import (
    CONDITIONAL,
    FUTURE,
    IMPERFECT,
    PRESENT,
    conjugate,
    gerund,
    participle,
    takes_essere,
)
from tools.phrasebook.italian_words import (
    before_noun,
    contract,
    definite,
    euphonic,
    indefinite,
    inflect,
    like_article,
    pluralise,
    possessive,
)
from tools.phrasebook.meaning import (
    GENERAL,
    OWN,
    POSSESSIVES,
    Anaphor,
    Because,
    Clause,
    Couple,
    Detail,
    Features,
    NounPhrase,
    Object,
    Prepositional,
    Pronoun,
    Quality,
    Sentence,
    Subject,
    There,
    Trade,
    Who,
    features,
)
from tools.phrasebook.phrases import ADVERBS, Name
from tools.phrasebook.tokens import Fixed, Token, keyed, render
from tools.phrasebook.verbs import BE, LIKE, Verb

Marks = tuple[str, ...]

_MODALS = {"want": "volere", "can": "potere", "must": "dovere", "would like": "volere"}
_SIMPLE_TENSES = {"present": PRESENT, "used to": IMPERFECT, "future": FUTURE}
_QUESTION_WORDS = {"what": ("che", "cosa"), "where": ("dove",), "when": ("quando",), "why": ("perché",)}
_REFLEXIVES = ("mi", "ti", "si", "ci", "vi", "si")
_DEGREES = {"very": "molto", "too": "troppo"}
_NUMBERS = {"two": "due", "three": "tre", "four": "quattro"}


def italian(sentence: Sentence) -> list[Token]:
    """The words of a sentence without its final mark."""
    if isinstance(sentence, Because):
        reason = [token._replace(roles="") for token in _clause(sentence.reason, "2")]
        return [*_clause(sentence.main, ""), Token("perché", ("because",)), *reason]
    return _clause(sentence, "")


def _clause(clause: Clause, key: str) -> list[Token]:
    shape = clause.shape
    dropped = _drops_subject(clause)
    subject = [] if dropped else _subject(clause.subject, key + "s")
    # After where, when and what a named subject goes to the end: Dove ha comprato il pane Maria?
    inverted = shape.question in ("where", "when", "what")
    asking = _QUESTION_WORDS.get(shape.question, ())
    tokens = [Token(word, (key + "wh",), "o" if shape.question == "what" else "") for word in asking]
    if clause.verb is LIKE:
        tokens += _liking(clause, key)
    else:
        tokens += [] if inverted else subject
        tokens += _verb(clause, key, (key + "s",) if dropped else ())
        tokens += _complements(clause, key)
        tokens += subject if inverted else []
    if shape.question == "where" and clause.verb is BE and tokens[1].text[0] in "eè":
        tokens[0] = tokens[0]._replace(text="dov'")
    if shape.time:
        time = render(shape.time.italian, key + "t")
        tokens = [*time, *tokens] if shape.time_first else [*tokens, *time]
    return tokens


def _drops_subject(clause: Clause) -> bool:
    """A pronoun is dropped, except in statements with essere about what somebody is: "Io sono alla moda"."""
    if not isinstance(clause.subject, Pronoun):
        return isinstance(clause.subject, (Anaphor, There))
    says_what = clause.verb is BE and any(isinstance(detail, (Quality, Trade)) for detail in clause.details)
    return not (says_what and not clause.shape.question)


def _subject(subject: Subject, key: str) -> list[Token]:
    if isinstance(subject, Pronoun):
        return [Token(subject.italian, (key,), "s")]
    if isinstance(subject, Who):
        return [Token("chi", (key,), "s")]
    if isinstance(subject, Couple):
        second = subject.second.text
        first, last = Token(subject.first.text, (key + "1",), "s"), Token(second, (key + "2",), "s")
        return [first, Token(euphonic("e", second), (key + "and",), "s"), last]
    assert isinstance(subject, (Name, NounPhrase)), "the other subjects are dropped"
    return _nominal(subject, key, "s")


def _liking(clause: Clause, key: str) -> list[Token]:
    """With piacere, the liked thing is the subject, and the person who likes it is in the dative, before the verb."""
    who, liked = clause.subject, clause.object
    assert isinstance(liked, NounPhrase), "only things are liked"
    clitic: list[Token] = []
    experiencer: list[Token] = []
    if isinstance(who, Pronoun):
        dative = [Token(word, (key + "s",), "o") for word in who.dative.split()]
        clitic, experiencer = (dative, []) if len(dative) == 1 else ([], dative)
    elif isinstance(who, Couple):
        pair = [token._replace(roles="o") for token in _subject(who, key + "s")]
        experiencer = [Token(euphonic("a", pair[0].text), (key + "s1",), "o"), *pair]
    else:
        assert isinstance(who, (Name, NounPhrase)), "questions of who likes what are not asked"
        experiencer = _nominal(who, key + "s", "o", preposition=("a", ()))
    verb = _verb_words(clause, key, features(liked), (), clitic)
    return [*experiencer, *verb, *_noun_phrase(liked, key + "o", "s", clause.shape.negative)]


def _verb(clause: Clause, key: str, dropped: Marks) -> list[Token]:
    """The verb with its clitics; it also has the marks of a dropped subject."""
    who = features(clause.subject)
    clitics: list[Token] = []
    if isinstance(clause.subject, There):
        clitics, dropped = [Token("ci", dropped, "v")], ()
    elif clause.verb.reflexive:
        marks = keyed(clause.verb.italian[0][1], key + "v")
        clitics = [Token(_REFLEXIVES[who.person - 1 + 3 * who.plural], marks, "v")]
    elif isinstance(clause.object, Pronoun):
        clitics = [Token(clause.object.clitic, (key + "o",), "o")]
    return _verb_words(clause, key, who, dropped, clitics)


def _verb_words(clause: Clause, key: str, who: Features, dropped: Marks, clitics: list[Token]) -> list[Token]:
    shape = clause.shape
    lexical = keyed(clause.verb.italian[0][1], key + "v")
    form, other = _forms(clause, who)
    finite = (key + "finite", *dropped) if other else (key + "finite", *lexical, *dropped)
    tokens: list[Token] = []
    if shape.negative:
        tokens.append(Token("non", (key + "not",) if shape.negated else (key + "adverb",)))
    tokens += [token._replace(text=_elide(token.text, form, clause.verb)) for token in clitics]
    tokens.append(Token(form, finite, "v"))
    if shape.adverb:
        tokens.append(Token(ADVERBS[shape.adverb], (key + "adverb",)))
    if other:
        tokens.append(Token(other, lexical, "v"))
    return tokens + render(clause.verb.italian[1:], key + "v", "v")


def _elide(clitic: str, following: str, verb: Verb) -> str:
    """C'è and l'ho: the ci of "there is" elides before e, lo and la before the forms of avere."""
    there_is = clitic == "ci" and verb is BE and following[0] in "eè"
    if there_is or (clitic in ("lo", "la") and following in _FORMS_OF_AVERE):
        return clitic[0] + "'"
    return clitic


_FORMS_OF_AVERE = frozenset(
    conjugate("avere", PRESENT, person, plural) for person in (1, 2, 3) for plural in (False, True)
)


def _forms(clause: Clause, who: Features) -> tuple[str, str]:
    """The finite form and, where there is one, the infinitive, gerund or participle that follows it."""
    shape, verb = clause.shape, clause.verb
    infinitive = verb.italian[0][0]
    person, plural, _ = who
    if shape.modal:
        tense = CONDITIONAL if shape.modal == "would like" else PRESENT
        return conjugate(_MODALS[shape.modal], tense, person, plural), infinitive
    if shape.tense in ("progressive", "was doing"):
        tense = IMPERFECT if shape.tense == "was doing" else PRESENT
        return conjugate("stare", tense, person, plural), gerund(infinitive)
    if shape.tense != "past":
        return conjugate(infinitive, _SIMPLE_TENSES[shape.tense], person, plural), ""
    if verb.is_a("state"):
        return conjugate(infinitive, IMPERFECT, person, plural), ""
    return _compound_past(clause, verb, infinitive, who)


def _compound_past(clause: Clause, verb: Verb, infinitive: str, who: Features) -> tuple[str, str]:
    """Passato prossimo: with essere the participle agrees with the subject, with avere with lo, la, li before it."""
    person, plural, feminine = who
    form = participle(infinitive)
    if verb.reflexive or takes_essere(infinitive):
        return conjugate("essere", PRESENT, person, plural), inflect(form, feminine, plural)
    if isinstance(clause.object, Pronoun) and clause.object.features.person == 3:
        _, plural_object, feminine_object = clause.object.features
        form = inflect(form, feminine_object, plural_object)
    return conjugate("avere", PRESENT, person, plural), form


def _complements(clause: Clause, key: str) -> list[Token]:
    negative = clause.shape.negative
    tokens: list[Token] = []
    if isinstance(clause.subject, There):
        tokens += _noun_phrase(clause.subject.phrase, key + "o", "s", negative)
    if clause.object and not isinstance(clause.object, Pronoun):
        tokens += _object(clause.object, clause.verb, key, negative)
    for i, detail in enumerate(clause.details):
        tokens += _detail(detail, f"{key}d{i}", clause)
    return tokens


def _object(thing: Object, verb: Verb, key: str, negative: bool) -> list[Token]:
    roles = "" if verb.name == "be" else "o"
    if isinstance(thing, Fixed):
        return render(thing.italian, key + "o", roles)
    assert not isinstance(thing, Pronoun), "an object pronoun stands before the verb"
    preposition = None
    if verb.preposition:
        word, marks = verb.preposition
        preposition = (word, keyed(marks, key + "v"))
    return _nominal(thing, key + "o", roles, negative, preposition)


def _detail(detail: Detail, key: str, clause: Clause) -> list[Token]:
    who = features(clause.subject)
    if isinstance(detail, Fixed):
        return render(detail.italian, key)
    if isinstance(detail, Prepositional):
        *words, last = detail.preposition.italian.split()
        tokens = [Token(word, (key + "p",)) for word in words]
        return tokens + _nominal(detail.phrase, key, "", clause.shape.negative, (last, (key + "p",)))
    if isinstance(detail, Trade):
        noun = detail.noun
        form = noun.her_trade if who.feminine else noun.italian
        if who.plural:
            return [Token(pluralise(form, who.feminine), (key + "n",))]
        return [Token(indefinite(form, who.feminine), (key + "d",)), Token(form, (key + "n",))]
    degree = [Token(_DEGREES[detail.degree], (key + "degree",))] if detail.degree else []
    form = inflect(detail.adjective.italian, who.feminine, who.plural)
    return degree + [Token(word, (key + "a",)) for word in form.split()]


def _nominal(
    phrase: NounPhrase | Name,
    key: str,
    roles: str,
    negative: bool = False,
    preposition: tuple[str, Marks] | None = None,
) -> list[Token]:
    """A name or a noun phrase after its preposition, if any; without its own marks it takes those of the noun."""
    if isinstance(phrase, NounPhrase):
        return _noun_phrase(phrase, key, roles, negative, preposition)
    name = Token(phrase.text, (key,), roles)
    if preposition is None:
        return [name]
    word, marks = preposition
    return [Token(euphonic(word, name.text), marks or (key,), roles), name]


def _noun_phrase(
    phrase: NounPhrase, key: str, roles: str, negative: bool, preposition: tuple[str, Marks] | None = None
) -> list[Token]:
    noun, plural, feminine = phrase.noun, phrase.plural, phrase.feminine
    tokens = [Token(noun.italian_plural if plural else noun.italian, (key + "n",), roles)]
    for i, adjective in reversed(list(enumerate(phrase.adjectives))):
        if adjective.before:
            form = before_noun(adjective.italian, tokens[0].text, feminine, plural)
            tokens.insert(0, Token(form, (f"{key}a{i}",), roles))
        else:
            tokens.append(Token(inflect(adjective.italian, feminine, plural), (f"{key}a{i}",), roles))
    if negative and phrase.determiner == "some":  # "any bread" is "pane"
        tokens[0] = tokens[0]._replace(marks=(*tokens[0].marks, key + "d"))
    article, determiner = _determiner(phrase, tokens[0].text, negative)
    tokens = [Token(word, (key + "d",), roles) for word in determiner] + tokens
    return _lead(article, preposition, (key + ("n" if phrase.determiner == GENERAL else "d"),), key, roles) + tokens


def _lead(
    article: str, preposition: tuple[str, Marks] | None, article_marks: Marks, key: str, roles: str
) -> list[Token]:
    """Preposition and definite article, contracted if Italian does so; either may be missing."""
    if preposition is None:
        return [Token(article, article_marks, roles)] if article else []
    word, marks = preposition
    if not article:
        return [Token(word, marks or (key + "n",), roles)]
    first, *second = contract(word, article)
    if second:
        return [Token(first, marks or article_marks, roles), Token(second[0], article_marks, roles)]
    return [Token(first, (*marks, *article_marks), roles)]


def _determiner(phrase: NounPhrase, following: str, negative: bool) -> tuple[str, list[str]]:
    """The definite article, if any, and the other words before the noun: ("la", ["mia"]) for "my house"."""
    determiner, plural, feminine = phrase.determiner, phrase.plural, phrase.feminine
    if determiner in ("the", GENERAL, OWN):
        return definite(following, feminine, plural), []
    if determiner == "a":
        return "", [indefinite(following, feminine)]
    if determiner in POSSESSIVES:
        owner = possessive(determiner, feminine, plural)
        close = "kin" in phrase.noun.tags and not plural and not phrase.adjectives and determiner != "their"
        return "" if close else definite(owner, feminine, plural), [owner]
    if determiner == "this":
        return "", [inflect("questo", feminine, plural)]
    if determiner == "that":
        return "", [like_article("que", following, feminine, plural)]
    if determiner == "some" and not negative:
        return "", contract("di", definite(following, feminine, plural))
    return "", [_NUMBERS[determiner]] if determiner in _NUMBERS else []
