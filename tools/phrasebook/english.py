"""The English side: a meaning as English words, with do-support, inversion and contractions."""

from __future__ import annotations

from dataclasses import replace

from tools.phrasebook.english_words import indefinite, ing, past, third_person
from tools.phrasebook.meaning import (
    GENERAL,
    OWN,
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
from tools.phrasebook.phrases import Name
from tools.phrasebook.tokens import Fixed, Token, keyed, render

_NEGATED = {"will": "won't", "can": "can't"}
_PRONOUN_CLITICS = {"am": "'m", "is": "'s", "are": "'re", "will": "'ll"}
_PLURAL_DEMONSTRATIVES = {"this": "these", "that": "those"}


def english(sentence: Sentence, contracted: bool) -> list[Token]:
    """The words of a sentence without its final mark; `contracted` prefers "didn't" and "I'm"."""
    if isinstance(sentence, Because):
        reason = [token._replace(roles="") for token in _clause(sentence.reason, "2", contracted)]
        return [*_clause(sentence.main, "", contracted), Token("because", ("because",)), *reason]
    return _clause(sentence, "", contracted)


def _clause(clause: Clause, key: str, contracted: bool) -> list[Token]:
    shape = clause.shape
    auxiliary, rest = _verb(clause, key)
    subject = _subject(clause.subject, key + "s")
    negation: list[Token] = []
    if shape.question in ("", "who"):
        if shape.negated and auxiliary:
            auxiliary, negation = _negate(auxiliary, key, contracted)
        if contracted and auxiliary and isinstance(clause.subject, (Pronoun, Anaphor)):
            subject, auxiliary = _lean(subject, auxiliary)
        tokens = [*subject, *([auxiliary] if auxiliary else [])]
    else:
        assert auxiliary is not None, "a question that does not ask for its subject has an auxiliary"
        if shape.negated:
            auxiliary, negation = _negate(auxiliary, key, contracted=True)
        tokens = [*_question_word(clause, key), auxiliary, *subject]
    tokens += negation
    if shape.adverb:
        tokens.append(Token(shape.adverb, (key + "adverb",)))
    tokens += rest
    tokens += _complements(clause, key)
    if shape.time:
        time = render(shape.time.english, key + "t")
        tokens = [*time, *tokens] if shape.time_first else [*tokens, *time]
    return tokens


def _question_word(clause: Clause, key: str) -> list[Token]:
    question = clause.shape.question
    if question == "yes/no":
        return []
    return [Token(question, (key + "wh",), "o" if question == "what" else "")]


def _negate(auxiliary: Token, key: str, contracted: bool) -> tuple[Token, list[Token]]:
    """The auxiliary with n't, or followed by "not"."""
    text, marks, roles = auxiliary
    negated = (*marks, key + "not")
    if contracted and text != "am":
        return Token(_NEGATED.get(text, text + "n't"), negated, roles), []
    if text == "can":
        return Token("cannot", negated, roles), []
    return auxiliary, [Token("not", (key + "not",))]


def _lean(subject: list[Token], auxiliary: Token) -> tuple[list[Token], Token | None]:
    """A pronoun contracted with its auxiliary, if English has such a form: "I'm", "they'll"."""
    clitic = _PRONOUN_CLITICS.get(auxiliary.text)
    if clitic is None:
        return subject, auxiliary
    (pronoun,) = subject
    return [Token(pronoun.text + clitic, pronoun.marks + auxiliary.marks, "sv")], None


def _verb(clause: Clause, key: str) -> tuple[Token | None, list[Token]]:
    """The auxiliary, if there is one, and the rest of the verb. The finite part carries the mark "finite"."""
    shape, who = clause.shape, features(clause.subject)
    (head, marks), *particles = clause.verb.english
    finite, lexical = (key + "finite",), keyed(marks, key + "v")
    tail = render(particles, key + "v", "v")

    def rest(*words: str) -> list[Token]:
        return [Token(word, lexical, "v") for word in words] + tail

    if shape.modal in ("can", "must"):
        return Token(shape.modal, finite, "v"), rest(head)
    if shape.modal == "would like":
        return Token("would", finite, "v"), [Token("like", finite, "v"), *rest("to", head)]
    if shape.modal == "want":
        auxiliary, wanting = _simple("want", clause, who, finite, finite)
        return auxiliary, [*wanting, *rest("to", head)]
    if shape.tense in ("progressive", "was doing"):
        return Token(_be(who, shape.tense == "was doing"), finite, "v"), rest(ing(head))
    if shape.tense == "future":
        return Token("will", finite, "v"), rest(head)
    if shape.tense == "used to":
        return None, [Token("used", finite, "v"), Token("to", finite, "v"), *rest(head)]
    if head == "be":
        return Token(_be(who, shape.tense == "past"), finite + lexical, "v"), tail
    auxiliary, verb = _simple(head, clause, who, finite, lexical)
    return auxiliary, verb + tail


def _simple(
    verb: str, clause: Clause, who: Features, finite: tuple[str, ...], lexical: tuple[str, ...]
) -> tuple[Token | None, list[Token]]:
    """The simple present or past, with do in negations and questions."""
    shape = clause.shape
    in_past, third = shape.tense == "past", who.person == 3 and not who.plural
    if shape.negated or shape.question not in ("", "who"):
        do = "did" if in_past else "does" if third else "do"
        return Token(do, finite, "v"), [Token(verb, lexical, "v")]
    form = past(verb) if in_past else third_person(verb) if third else verb
    marks = finite if finite == lexical else finite + lexical
    return None, [Token(form, marks, "v")]


def _be(who: Features, in_past: bool) -> str:
    if who.plural or who.person == 2:
        return "were" if in_past else "are"
    if in_past:
        return "was"
    return "am" if who.person == 1 else "is"


def _subject(subject: Subject, key: str) -> list[Token]:
    if isinstance(subject, Pronoun):
        return [Token(subject.english, (key,), "s")]
    if isinstance(subject, Who):
        return [Token("who", (key,), "s")]
    if isinstance(subject, There):
        return [Token("there", (key,))]
    if isinstance(subject, Anaphor):
        return [Token(_take_up(subject), (key,), "s")]
    if isinstance(subject, Couple):
        first, second = Token(subject.first.text, (key + "1",), "s"), Token(subject.second.text, (key + "2",), "s")
        return [first, Token("and", (key + "and",), "s"), second]
    return _nominal(subject, key, "s", negative=False)


def _take_up(anaphor: Anaphor) -> str:
    antecedent = anaphor.antecedent
    if isinstance(antecedent, Pronoun):
        return antecedent.english
    _, plural, feminine = features(antecedent)
    if plural:
        return "they"
    if isinstance(antecedent, NounPhrase) and not antecedent.noun.human:
        return "it"
    return "she" if feminine else "he"


def _complements(clause: Clause, key: str) -> list[Token]:
    negative = clause.shape.negative
    tokens: list[Token] = []
    if isinstance(clause.subject, There):
        tokens += _noun_phrase(clause.subject.phrase, key + "o", "s", negative)
    if isinstance(clause.object, NounPhrase) and clause.object.determiner == OWN:
        tokens += _noun_phrase(_owned(clause.object, features(clause.subject)), key + "o", "o", negative)
    elif clause.object:
        tokens += _object(clause.object, key + "o", "" if clause.verb.name == "be" else "o", negative)
    for i, detail in enumerate(clause.details):
        tokens += _detail(detail, f"{key}d{i}", clause)
    return tokens


def _owned(phrase: NounPhrase, owner: Features) -> NounPhrase:
    """The object of a reflexive verb with a possessive, in the plural for several people ("they wash their hands")."""
    if owner.person == 3:
        whose = "their" if owner.plural else "her" if owner.feminine else "his"
    elif owner.person == 2:
        whose = "your"
    else:
        whose = "our" if owner.plural else "my"
    return replace(phrase, determiner=whose, plural=phrase.plural or owner.plural)


def _object(thing: Object, key: str, roles: str, negative: bool) -> list[Token]:
    if isinstance(thing, Fixed):
        return render(thing.english, key, roles)
    if isinstance(thing, Pronoun):
        return [Token(thing.english_object, (key,), roles)]
    return _nominal(thing, key, roles, negative)


def _detail(detail: Detail, key: str, clause: Clause) -> list[Token]:
    if isinstance(detail, Fixed):
        return render(detail.english, key)
    if isinstance(detail, Prepositional):
        preposition = [Token(word, (key + "p",)) for word in detail.preposition.english.split()]
        return preposition + _nominal(detail.phrase, key, "", clause.shape.negative)
    if isinstance(detail, Trade):
        if features(clause.subject).plural:
            return [Token(detail.noun.english_plural, (key + "n",))]
        return [Token(indefinite(detail.noun.english), (key + "d",)), Token(detail.noun.english, (key + "n",))]
    return _quality(detail, key)


def _quality(quality: Quality, key: str) -> list[Token]:
    degree = [Token(quality.degree, (key + "degree",))] if quality.degree else []
    return [*degree, Token(quality.adjective.english, (key + "a",))]


def _nominal(phrase: NounPhrase | Name, key: str, roles: str, negative: bool) -> list[Token]:
    if isinstance(phrase, Name):
        return [Token(phrase.text, (key,), roles)]
    return _noun_phrase(phrase, key, roles, negative)


def _noun_phrase(phrase: NounPhrase, key: str, roles: str, negative: bool) -> list[Token]:
    noun = phrase.noun
    words = (noun.english_plural if phrase.plural else noun.english).split()
    tokens = [Token(adjective.english, (f"{key}a{i}",), roles) for i, adjective in enumerate(phrase.adjectives)]
    tokens += [Token(word, (key + "n",), roles) for word in words]
    determiner = phrase.determiner
    if determiner in ("", GENERAL):
        return tokens
    if determiner == "a":
        determiner = indefinite(tokens[0].text)
    elif determiner == "some" and negative:
        determiner = "any"
    elif phrase.plural:
        determiner = _PLURAL_DEMONSTRATIVES.get(determiner, determiner)
    return [Token(determiner, (key + "d",), roles), *tokens]
