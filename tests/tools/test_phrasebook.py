"""The built-in corpus: correct Italian and English, gold alignments, and three parts that share nothing."""

import hashlib
import itertools
import random
import subprocess
import sys

import pytest

from regard.data import builtin
from regard.data.builtin import PARTS
from regard.errors import SettingsError
from regard.registry import BUILTIN
from regard.text.words import words
from tools.packaged import FOLDER, pack
from tools.phrasebook import Roles, content_words, count_pairs, packaged_rows, phrasebook
from tools.phrasebook.adjectives import adjective, adjectives
from tools.phrasebook.combinations import is_held_out
from tools.phrasebook.corpus import make_phrase
from tools.phrasebook.doing import TO, WITH
from tools.phrasebook.english_words import indefinite as a_or_an
from tools.phrasebook.english_words import ing, past, plural, third_person
from tools.phrasebook.grammar import grammar
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
    indefinite,
    inflect,
    like_article,
    pluralise,
    possessive,
)
from tools.phrasebook.meaning import (
    GENERAL,
    HE,
    OWN,
    SHE,
    THEY,
    WE,
    YOU,
    Anaphor,
    Because,
    Clause,
    Couple,
    I,
    NounPhrase,
    Preposition,
    Prepositional,
    Quality,
    Shape,
    There,
    Trade,
    Who,
)
from tools.phrasebook.noun_choices import phrases
from tools.phrasebook.nouns import noun, nouns
from tools.phrasebook.phrases import circumstances, idiom, names, states, times
from tools.phrasebook.shapes import mood_shapes, shapes
from tools.phrasebook.subjects import kin, people
from tools.phrasebook.verbs import BE, BE_IN_A_STATE, LIKE, bare_verbs, person_verbs, thing_verbs

PAST, FUTURE_TENSE, GOING_ON = Shape("past"), Shape("future"), Shape("progressive")
CONSONANT, IMPURE, VOWEL = "libro", "specchio", "amico"


# How the tests say what they mean -----------------------------------------------------------------------------------


def the(name, *described, determiner="the", many=False):
    return NounPhrase(noun(name), determiner, many, tuple(adjective(word) for word in described))


def a(name, *described):
    return the(name, *described, determiner="a")


def named(text):
    return next(name for name in names() if name.text == text)


def do(name, behaviour=""):
    """The verb of that name; of two, the one that behaves so."""
    verbs = (*thing_verbs(), *person_verbs(), *bare_verbs())
    return next(verb for verb in verbs if verb.name == name and (not behaviour or verb.is_a(behaviour)))


def state(name):
    return next(state for state in states() if state.name == name)


def time(name):
    kinds = ("present", "progressive", "past", "future", "modal", "being")
    return next(time for kind in kinds for time in times(kind) if time.name == name)


def place(name):
    return next(fixed for each in circumstances() for fixed in (each.at, each.to) if fixed.name == name)


def is_(subject, word, shape=PAST, degree="", verb=BE):
    return Clause(subject, verb, details=(Quality(adjective(word), degree),), shape=shape)


MARIA, LUCA, ANNA = named("Maria"), named("Luca"), named("Anna")
NOW = Shape()
ANIMAL, STREET, CAR = the("animal"), the("street"), the("car")
NOT_CROSSED = Clause(ANIMAL, do("cross"), STREET, shape=Shape("past", negated=True))
NOT_BOUGHT = Clause(I, do("buy"), CAR, shape=Shape("past", negated=True))

PAIRS = [
    # the pronoun: kept where essere says what somebody is, dropped elsewhere
    (is_(I, "trendy", NOW), "I am trendy.", "Io sono alla moda."),
    (is_(WE, "tired", NOW), "We are tired.", "Noi siamo stanchi."),
    (Clause(THEY, BE, details=(Trade(noun("student")),)), "They are students.", "Loro sono studenti."),
    (is_(YOU, "tired", Shape(question="yes/no")), "Are you tired?", "Sei stanco?"),
    (Clause(I, BE, details=(place("at home"),)), "I am at home.", "Sono a casa."),
    (Clause(SHE, do("read"), a("book"), shape=Shape(time=time("every day"))), "She reads a book every day.",
     "Legge un libro ogni giorno."),
    # renderings of several words
    (Clause(I, *idiom("take a shower")), "I take a shower.", "Faccio la doccia."),
    (Clause(WE, *idiom("have breakfast"), shape=PAST), "We had breakfast.", "Abbiamo fatto colazione."),
    (Clause(I, BE_IN_A_STATE, state("hungry")), "I am hungry.", "Ho fame."),
    (Clause(MARIA, BE_IN_A_STATE, state("thirsty"), shape=PAST), "Maria was thirsty.", "Maria aveva sete."),
    (Clause(HE, BE_IN_A_STATE, state("afraid"), shape=Shape(negated=True)), "He is not afraid.", "Non ha paura."),
    (Clause(SHE, do("be afraid of"), the("dog", determiner=GENERAL, many=True)), "She is afraid of dogs.",
     "Ha paura dei cani."),
    (Clause(I, do("need"), the("key")), "I need the key.", "Ho bisogno della chiave."),
    (Clause(LUCA, do("feed"), the("cat"), shape=PAST), "Luca fed the cat.", "Luca ha dato da mangiare al gatto."),
    # piacere: inversion, and agreement with what is liked
    (Clause(I, LIKE, the("house")), "I like the house.", "Mi piace la casa."),
    (Clause(I, LIKE, the("book", many=True)), "I like the books.", "Mi piacciono i libri."),
    (Clause(ANNA, LIKE, the("coffee", determiner=GENERAL)), "Anna likes coffee.", "Ad Anna piace il caffè."),
    (Clause(the("student"), LIKE, the("song", many=True), shape=PAST), "The student liked the songs.",
     "Allo studente sono piaciute le canzoni."),
    (Clause(THEY, LIKE, the("soup"), shape=Shape(negated=True)), "They do not like the soup.",
     "A loro non piace la zuppa."),
    (Clause(WE, LIKE, the("castle"), shape=PAST), "We liked the castle.", "Ci è piaciuto il castello."),
    # auxiliary and agreement of the participle
    (Clause(MARIA, do("go"), details=(place("to the cinema"),), shape=PAST), "Maria went to the cinema.",
     "Maria è andata al cinema."),
    (Clause(Couple(MARIA, ANNA), do("leave"), shape=PAST), "Maria and Anna left.", "Maria e Anna sono partite."),
    (Clause(Couple(LUCA, named("Elena")), do("leave"), shape=PAST), "Luca and Elena left.",
     "Luca ed Elena sono partiti."),
    (Clause(I, do("eat"), a("apple"), shape=PAST), "I ate an apple.", "Ho mangiato una mela."),
    (Clause(I, do("meet"), SHE, shape=PAST), "I met her.", "L'ho incontrata."),
    (Clause(MARIA, do("see", "where"), THEY, shape=PAST), "Maria saw them.", "Maria li ha visti."),
    (Clause(HE, do("wait for", "at:meeting"), HE, shape=GOING_ON), "He is waiting for him.",
     "Lo sta aspettando."),
    (Clause(WE, do("wake up"), details=(place("early"),), shape=PAST), "We woke up early.",
     "Ci siamo svegliati presto."),
    (Clause(the("girl"), do("break", "own"), the("leg", determiner=OWN), shape=PAST),
     "The girl broke her leg.", "La ragazza si è rotta la gamba."),
    (Clause(I, do("wash", "own"), the("hand", determiner=OWN, many=True)),
     "I wash my hands.", "Mi lavo le mani."),
    (Clause(THEY, do("put on"), the("coat", determiner=OWN), shape=Shape("past", time=time("yesterday"))),
     "They put on their coats yesterday.", "Si sono messi il cappotto ieri."),
    # tenses and modals
    (Clause(LUCA, do("drink"), the("wine", determiner="some"), shape=GOING_ON), "Luca is drinking some wine.",
     "Luca sta bevendo del vino."),
    (Clause(WE, do("pay"), the("bill"), shape=FUTURE_TENSE), "We will pay the bill.", "Pagheremo il conto."),
    (Clause(SHE, *idiom("play football"), shape=Shape("used to")), "She used to play football.",
     "Giocava a calcio."),
    (Clause(I, do("work"), details=(place("in Rome"),), shape=Shape("was doing")), "I was working in Rome.",
     "Stavo lavorando a Roma."),
    (Clause(LUCA, do("have"), a("car", "red"), shape=PAST), "Luca had a red car.", "Luca aveva una macchina rossa."),
    (Clause(YOU, do("look for"), the("key", many=True)), "You look for the keys.", "Cerchi le chiavi."),
    (Clause(HE, do("sleep"), shape=Shape(modal="want")), "He wants to sleep.", "Vuole dormire."),
    (Clause(I, do("swim"), shape=Shape(modal="can", negated=True)), "I cannot swim.", "Non posso nuotare."),
    (Clause(WE, do("dance"), shape=Shape(modal="would like")), "We would like to dance.", "Vorremmo ballare."),
    (Clause(THEY, do("go out"), shape=Shape(modal="must")), "They must go out.", "Devono uscire."),
    # negation
    (Clause(MARIA, do("buy", "at:shop"), the("bread", determiner="some"),
            shape=Shape("past", negated=True)), "Maria did not buy any bread.", "Maria non ha comprato pane."),
    (Clause(HE, *idiom("tell the truth"), shape=Shape(adverb="never")), "He never tells the truth.",
     "Non dice mai la verità."),
    (is_(SHE, "happy", Shape(adverb="always")), "She is always happy.", "Lei è sempre felice."),
    # questions
    (Clause(MARIA, do("open"), the("door"), shape=Shape("past", question="yes/no")), "Did Maria open the door?",
     "Maria ha aperto la porta?"),
    (Clause(MARIA, do("eat"), shape=Shape("progressive", question="what")), "What is Maria eating?",
     "Che cosa sta mangiando Maria?"),
    (Clause(LUCA, do("find"), the("wallet"), shape=Shape("past", question="where")), "Where did Luca find the wallet?",
     "Dove ha trovato il portafoglio Luca?"),
    (Clause(MARIA, BE, shape=Shape(question="where")), "Where is Maria?", "Dov'è Maria?"),
    (Clause(the("train"), do("leave"), shape=Shape(question="when")), "When does the train leave?",
     "Quando parte il treno?"),
    (Clause(the("child"), do("cry"), shape=Shape("progressive", question="why")), "Why is the child crying?",
     "Perché il bambino sta piangendo?"),
    (Clause(YOU, do("come"), shape=Shape(question="why", negated=True)), "Why don't you come?", "Perché non vieni?"),
    (Clause(Who(), do("eat"), the("egg", many=True), shape=Shape("past", question="who")), "Who ate the eggs?",
     "Chi ha mangiato le uova?"),
    # articles, elision, contraction, possessives, adjectives
    (Clause(There(a("friend")), BE, details=(Prepositional(Preposition("in", "in"), the("kitchen")),)),
     "There is a friend in the kitchen.", "C'è un amico nella cucina."),
    (Clause(There(the("water", determiner="some")), BE,
            details=(Prepositional(Preposition("on", "su"), the("table")),)),
     "There is some water on the table.", "C'è dell'acqua sul tavolo."),
    (Clause(There(the("cat", determiner="two", many=True)), BE,
            details=(Prepositional(Preposition("next to", "accanto a"), the("tree")),), shape=PAST),
     "There were two cats next to the tree.", "C'erano due gatti accanto all'albero."),
    (Clause(MARIA, BE, details=(Trade(noun("friend")),)), "Maria is a friend.", "Maria è un'amica."),
    (Clause(ANNA, BE, details=(Trade(noun("doctor")),)), "Anna is a doctor.", "Anna è una dottoressa."),
    (Clause(the("uncle", determiner="my"), do("love"), the("aunt", determiner="my")), "My uncle loves my aunt.",
     "Mio zio ama mia zia."),
    (Clause(the("uncle", determiner="their"), do("love"), the("aunt", "dear", determiner="my")),
     "Their uncle loves my dear aunt.", "Il loro zio ama la mia cara zia."),
    (Clause(the("brother", determiner="my", many=True), do("sell"), the("house", determiner="her"), shape=PAST),
     "My brothers sold her house.", "I miei fratelli hanno venduto la sua casa."),
    (Clause(the("student", determiner="that", many=True), do("speak"), the("English", determiner="")),
     "Those students speak English.", "Quegli studenti parlano inglese."),
    (Clause(SHE, do("have"), a("dress", "beautiful", "red")), "She has a beautiful red dress.",
     "Ha un bel vestito rosso."),
    (Clause(I, do("see"), the("tree", "beautiful", many=True)), "I see the beautiful trees.", "Vedo i begli alberi."),
    (Clause(the("man", "old", many=True), do("smile")), "The old men smile.", "I vecchi uomini sorridono."),
    (Clause(LUCA, do("give"), the("flower", "white", determiner="some", many=True),
            (Prepositional(TO, the("teacher")),), PAST),
     "Luca gave some white flowers to the teacher.", "Luca ha dato dei fiori bianchi all'insegnante."),
    (Clause(I, do("dance"), details=(Prepositional(WITH, the("friend", determiner="your", many=True)),)),
     "I dance with your friends.", "Ballo con i tuoi amici."),
    (Clause(YOU, do("get off"), the("bus"), shape=PAST), "You got off the bus.", "Sei sceso dall'autobus."),
    # times, and where they stand
    (Clause(MARIA, do("buy"), a("umbrella"), shape=Shape("past", time=time("last week"), time_first=True)),
     "Last week Maria bought an umbrella.", "La settimana scorsa Maria ha comprato un ombrello."),
    # reasons: the pronoun is dropped, the adjective tells what it stood for
    (Because(NOT_CROSSED, is_(Anaphor(ANIMAL), "tired", degree="too")),
     "The animal did not cross the street because it was too tired.",
     "L'animale non ha attraversato la strada perché era troppo stanco."),
    (Because(NOT_CROSSED, is_(Anaphor(STREET), "wide", degree="too")),
     "The animal did not cross the street because it was too wide.",
     "L'animale non ha attraversato la strada perché era troppo larga."),
    (Because(NOT_BOUGHT, is_(Anaphor(CAR), "expensive", degree="very")),
     "I did not buy the car because it was very expensive.",
     "Non ho comprato la macchina perché era molto costosa."),
]  # fmt: skip


@pytest.mark.parametrize(("meaning", "source", "target"), PAIRS, ids=[source for _, source, _ in PAIRS])
def test_hand_checked_pairs(meaning, source, target):
    phrase = make_phrase(meaning, contracted=False)
    assert (phrase.source, phrase.target) == (source, target)


@pytest.mark.parametrize(
    ("meaning", "source"),
    [
        (NOT_CROSSED, "The animal didn't cross the street."),
        (is_(I, "tired", NOW), "I'm tired."),
        (is_(I, "tired", Shape(negated=True)), "I'm not tired."),
        (is_(SHE, "tired", Shape(negated=True)), "She isn't tired."),
        (Clause(THEY, do("leave"), shape=FUTURE_TENSE), "They'll leave."),
        (Clause(MARIA, do("leave"), shape=Shape("future", negated=True)), "Maria won't leave."),
        (Clause(I, do("swim"), shape=Shape(modal="can", negated=True)), "I can't swim."),
        (Clause(I, do("swim"), shape=Shape(modal="must", negated=True)), "I mustn't swim."),
    ],
)
def test_contractions_change_the_english_only(meaning, source):
    assert make_phrase(meaning).source == source
    assert make_phrase(meaning).target == make_phrase(meaning, contracted=False).target


# Morphology ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "feminine", "articles"),
    [
        ("libro", False, "il i un"),
        ("amico", False, "l' gli un"),
        ("zio", False, "lo gli uno"),
        ("specchio", False, "lo gli uno"),
        ("psicologo", False, "lo gli uno"),
        ("gnomo", False, "lo gli uno"),
        ("yogurt", False, "lo gli uno"),
        ("hotel", False, "l' gli un"),
        ("sole", False, "il i un"),
        ("casa", True, "la le una"),
        ("amica", True, "l' le un'"),
        ("zia", True, "la le una"),
        ("scarpa", True, "la le una"),
    ],
)
def test_articles(word, feminine, articles):
    found = (definite(word, feminine, False), definite(word, feminine, True), indefinite(word, feminine))
    assert " ".join(found) == articles


@pytest.mark.parametrize(
    ("preposition", "contracted"),
    [
        ("di", "del dello dell' della dei degli delle"),
        ("a", "al allo all' alla ai agli alle"),
        ("da", "dal dallo dall' dalla dai dagli dalle"),
        ("in", "nel nello nell' nella nei negli nelle"),
        ("su", "sul sullo sull' sulla sui sugli sulle"),
    ],
)
def test_contracted_prepositions(preposition, contracted):
    articles = ("il", "lo", "l'", "la", "i", "gli", "le")
    assert [contract(preposition, article) for article in articles] == [[word] for word in contracted.split()]
    assert contract("con", "il") == ["con", "il"]


def test_words_that_end_as_the_article_does():
    masculine = [(CONSONANT, False), (IMPURE, False), (VOWEL, False), (CONSONANT, True), (IMPURE, True), (VOWEL, True)]
    that = [like_article("que", word, False, many) for word, many in masculine]
    assert that == ["quel", "quello", "quell'", "quei", "quegli", "quegli"]
    assert [before_noun("bello", word, False, many) for word, many in masculine] == [
        "bel",
        "bello",
        "bell'",
        "bei",
        "begli",
        "begli",
    ]
    assert like_article("que", "amica", True, False) == "quell'"
    assert before_noun("bello", "amica", True, False) == "bella"
    assert [before_noun("buono", word, False, False) for word in ("vino", "spettacolo", "amico")] == [
        "buon",
        "buono",
        "buon",
    ]


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("my", "mio mia miei mie"),
        ("his", "suo sua suoi sue"),
        ("our", "nostro nostra nostri nostre"),
        ("their", "loro " * 4),
    ],
)
def test_possessives(english, forms):
    found = [possessive(english, feminine, many) for many in (False, True) for feminine in (False, True)]
    assert found == forms.split()


@pytest.mark.parametrize(
    ("english", "italian"),
    [
        ("friend", "amici"), ("man", "uomini"), ("hand", "mani"), ("egg", "uova"), ("city", "città"), ("uncle", "zii"),
        ("orange", "arance"), ("shirt", "camicie"), ("suitcase", "valigie"), ("mushroom", "funghi"), ("lake", "laghi"),
        ("psychologist", "psicologi"), ("doctor", "medici"), ("cook", "cuochi"), ("colleague", "colleghi"),
        ("boat", "barche"), ("journalist", "giornalisti"), ("problem", "problemi"), ("photo", "foto"),
        ("bus", "autobus"),
        ("watch", "orologi"), ("mirror", "specchi"), ("key", "chiavi"), ("wife", "mogli"), ("aunt", "zie"),
        ("museum", "musei"), ("poem", "poesie"), ("goose", "oche"), ("exercise", "esercizi"), ("hotel", None),
    ],
)  # fmt: skip
def test_plural_nouns(english, italian):
    if italian is None:
        assert pluralise("hotel") == "hotel"
    else:
        assert noun(english).italian_plural == italian


@pytest.mark.parametrize(
    ("adjective", "forms"),
    [
        ("rosso", "rosso rossa rossi rosse"),
        ("verde", "verde verde verdi verdi"),
        ("bianco", "bianco bianca bianchi bianche"),
        ("simpatico", "simpatico simpatica simpatici simpatiche"),
        ("antico", "antico antica antichi antiche"),
        ("lungo", "lungo lunga lunghi lunghe"),
        ("vecchio", "vecchio vecchia vecchi vecchie"),
        ("grigio", "grigio grigia grigi grigie"),
        ("blu", "blu blu blu blu"),
        ("rosa", "rosa rosa rosa rosa"),
    ],
)
def test_adjectives_agree(adjective, forms):
    assert [inflect(adjective, feminine, many) for many in (False, True) for feminine in (False, True)] == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "tense", "forms"),
    [
        ("parlare", PRESENT, "parlo parli parla parliamo parlate parlano"),
        ("cercare", PRESENT, "cerco cerchi cerca cerchiamo cercate cercano"),
        ("pagare", PRESENT, "pago paghi paga paghiamo pagate pagano"),
        ("mangiare", PRESENT, "mangio mangi mangia mangiamo mangiate mangiano"),
        ("studiare", PRESENT, "studio studi studia studiamo studiate studiano"),
        ("leggere", PRESENT, "leggo leggi legge leggiamo leggete leggono"),
        ("dormire", PRESENT, "dormo dormi dorme dormiamo dormite dormono"),
        ("capire", PRESENT, "capisco capisci capisce capiamo capite capiscono"),
        ("essere", PRESENT, "sono sei è siamo siete sono"),
        ("avere", PRESENT, "ho hai ha abbiamo avete hanno"),
        ("fare", PRESENT, "faccio fai fa facciamo fate fanno"),
        ("andare", PRESENT, "vado vai va andiamo andate vanno"),
        ("venire", PRESENT, "vengo vieni viene veniamo venite vengono"),
        ("bere", PRESENT, "bevo bevi beve beviamo bevete bevono"),
        ("dire", PRESENT, "dico dici dice diciamo dite dicono"),
        ("uscire", PRESENT, "esco esci esce usciamo uscite escono"),
        ("scegliere", PRESENT, "scelgo scegli sceglie scegliamo scegliete scelgono"),
        ("spegnere", PRESENT, "spengo spegni spegne spegniamo spegnete spengono"),
        ("potere", PRESENT, "posso puoi può possiamo potete possono"),
        ("parlare", IMPERFECT, "parlavo parlavi parlava parlavamo parlavate parlavano"),
        ("capire", IMPERFECT, "capivo capivi capiva capivamo capivate capivano"),
        ("essere", IMPERFECT, "ero eri era eravamo eravate erano"),
        ("fare", IMPERFECT, "facevo facevi faceva facevamo facevate facevano"),
        ("bere", IMPERFECT, "bevevo bevevi beveva bevevamo bevevate bevevano"),
        ("parlare", FUTURE, "parlerò parlerai parlerà parleremo parlerete parleranno"),
        ("cercare", FUTURE, "cercherò cercherai cercherà cercheremo cercherete cercheranno"),
        ("mangiare", FUTURE, "mangerò mangerai mangerà mangeremo mangerete mangeranno"),
        ("studiare", FUTURE, "studierò studierai studierà studieremo studierete studieranno"),
        ("finire", FUTURE, "finirò finirai finirà finiremo finirete finiranno"),
        ("essere", FUTURE, "sarò sarai sarà saremo sarete saranno"),
        ("venire", FUTURE, "verrò verrai verrà verremo verrete verranno"),
        ("volere", CONDITIONAL, "vorrei vorresti vorrebbe vorremmo vorreste vorrebbero"),
    ],
)
def test_conjugation(infinitive, tense, forms):
    found = [conjugate(infinitive, tense, person, many) for many in (False, True) for person in (1, 2, 3)]
    assert found == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("mangiare", "mangiato mangiando avere"), ("ricevere", "ricevuto ricevendo avere"),
        ("partire", "partito partendo essere"), ("fare", "fatto facendo avere"), ("bere", "bevuto bevendo avere"),
        ("dire", "detto dicendo avere"), ("venire", "venuto venendo essere"), ("leggere", "letto leggendo avere"),
        ("scendere", "sceso scendendo essere"), ("conoscere", "conosciuto conoscendo avere"),
        ("uscire", "uscito uscendo essere"), ("correre", "corso correndo avere"),
    ],
)  # fmt: skip
def test_participle_gerund_auxiliary(infinitive, forms):
    auxiliary = "essere" if takes_essere(infinitive) else "avere"
    assert f"{participle(infinitive)} {gerund(infinitive)} {auxiliary}" == forms


def test_english_forms():
    assert [third_person(verb) for verb in ("eat", "watch", "study", "play", "go", "have")] == (
        ["eats", "watches", "studies", "plays", "goes", "has"]
    )
    assert [past(verb) for verb in ("eat", "study", "play", "prefer", "hug", "arrive", "visit")] == (
        ["ate", "studied", "played", "preferred", "hugged", "arrived", "visited"]
    )
    assert [ing(verb) for verb in ("write", "run", "see", "open", "forget", "travel", "play")] == (
        ["writing", "running", "seeing", "opening", "forgetting", "travelling", "playing"]
    )
    assert [plural(word) for word in ("box", "story", "key", "tomato", "church")] == [
        "boxes",
        "stories",
        "keys",
        "tomatoes",
        "churches",
    ]
    assert [a_or_an(word) for word in ("old", "Italian", "red")] == ["an", "an", "a"]


# Alignment and roles --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "links"),
    [
        ("I am trendy.", "I-Io am-sono trendy-alla trendy-moda .-."),
        ("I take a shower.", "I-Faccio take-Faccio a-la shower-doccia .-."),
        ("I like the books.", "I-Mi like-piacciono the-i books-libri .-."),
        ("The student liked the songs.",
         "The-Allo student-studente liked-sono liked-piaciute the-le songs-canzoni .-."),
        ("I need the key.", "I-Ho need-Ho need-bisogno need-della the-della key-chiave .-."),
        ("Did Maria open the door?", "Did-ha Maria-Maria open-aperto the-la door-porta ?-?"),
        ("Why don't you come?", "Why-Perché don't-non don't-vieni you-vieni come-vieni ?-?"),
        ("What is Maria eating?", "What-Che What-cosa is-sta Maria-Maria eating-mangiando ?-?"),
        ("I met her.", "I-ho met-ho met-incontrata her-L' .-."),
        ("I wash my hands.", "I-lavo wash-Mi wash-lavo my-le hands-mani .-."),
        ("He never tells the truth.",
         "He-dice never-Non never-mai tells-dice the-la truth-verità .-."),
        ("She has a beautiful red dress.",
         "She-Ha has-Ha a-un beautiful-bel red-rosso dress-vestito .-."),
        ("Their uncle loves my dear aunt.",
         "Their-Il Their-loro uncle-zio loves-ama my-la my-mia dear-cara aunt-zia .-."),
        ("There is some water on the table.",
         "There-C' is-è some-dell' water-acqua on-sul the-sul table-tavolo .-."),
        ("Maria did not buy any bread.",
         "Maria-Maria did-ha not-non buy-comprato any-pane bread-pane .-."),
        ("Last week Maria bought an umbrella.",
         "Last-scorsa week-La week-settimana Maria-Maria bought-ha bought-comprato an-un umbrella-ombrello .-."),
    ],
)  # fmt: skip
def test_alignments_checked_by_hand(source, links):
    meaning = next(meaning for meaning, english, _ in PAIRS if english == source)
    phrase = make_phrase(meaning, contracted=False)
    left, right = words(phrase.source), words(phrase.target)
    assert {f"{left[i].text}-{right[j].text}" for i, j in phrase.alignment} == set(links.split())


def test_a_contracted_verb_is_aligned_with_all_that_renders_it():
    phrase = make_phrase(NOT_CROSSED)
    assert phrase.source == "The animal didn't cross the street."
    assert phrase.target == "L'animale non ha attraversato la strada."
    assert phrase.alignment == ((0, 0), (1, 1), (2, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7))


@pytest.mark.parametrize(
    ("source", "source_roles", "target_roles"),
    [
        ("I take a shower.", Roles((0,), (1,), (2, 3)), Roles((), (0,), (1, 2))),
        ("I like the house.", Roles((0,), (1,), (2, 3)), Roles((2, 3), (1,), (0,))),
        ("Did Maria open the door?", Roles((1,), (0, 2), (3, 4)), Roles((0,), (1, 2), (3, 4))),
        ("What is Maria eating?", Roles((2,), (1, 3), (0,)), Roles((4,), (2, 3), (0, 1))),
        ("I met her.", Roles((0,), (1,), (2,)), Roles((), (1, 2), (0,))),
        ("I am trendy.", Roles((0,), (1,), ()), Roles((0,), (1,), ())),
    ],
)
def test_roles_checked_by_hand(source, source_roles, target_roles):
    phrase = make_phrase(next(meaning for meaning, english, _ in PAIRS if english == source), contracted=False)
    assert (phrase.source_roles, phrase.target_roles) == (source_roles, target_roles)


# The grammar ----------------------------------------------------------------------------------------------------------


def test_the_vocabulary_is_large_enough():
    assert len(content_words()) >= 300
    assert list(content_words()) == sorted(set(content_words()))


def test_the_grammar_counts_more_than_a_million_pairs():
    assert count_pairs() >= 1_000_000


@pytest.mark.parametrize(
    "choices",
    [kin(), phrases(noun("car"), "any"), phrases(noun("water"), "any"), phrases(noun("shoe"), "known")]
    + [shapes(kind).told for kind in ("event", "state", "event in one form", "long")]
    + [mood_shapes().asked, people().asked],
)
def test_counting_agrees_with_listing(choices):
    assert choices.size == len(list(choices)) == len(set(choices))


def test_english_alone_decides():
    """One source has one meaning, hence one target; so the count of meanings is the count of pairs."""
    rng, sentences = random.Random(7), grammar()
    meanings, targets = {}, {}
    for _ in range(12_000):
        meaning = sentences.draw(rng)
        phrase = make_phrase(meaning, contracted=rng.random() < 0.5)
        assert meanings.setdefault(phrase.source, meaning) == meaning
        assert targets.setdefault(phrase.source, phrase.target) == phrase.target
    assert len(meanings) > 11_000


def test_no_two_nouns_look_alike_in_english():
    """A noun whose plural is its singular would hide its number, and with it the Italian."""
    forms = []
    for each in nouns():
        if "pair" not in each.tags:
            forms.append(each.english)
        if each.tags.isdisjoint(("mass", "proper")):
            forms.append(each.english_plural)
    assert len(forms) == len(set(forms))


# The corpus -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def book():
    return phrasebook()


def every_phrase(book):
    return book.train + book.valid + book.test


def test_sizes(book):
    assert (len(book.train), len(book.valid), len(book.test)) == (24_000, 500, 1_000)
    mean = sum(len(words(phrase.source)) for phrase in book.train) / len(book.train)
    assert 6 <= mean <= 9


def test_the_same_corpus_on_every_machine(book):
    """The figure is our own: a change of it is a change of the corpus, and belongs in the changelog."""
    text = "\n".join(f"{phrase.source}\t{phrase.target}\t{phrase.alignment}" for phrase in every_phrase(book))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "968e3a680341bcd2"


def test_lecture_sentences_are_in_train_word_for_word(book):
    pairs = {(phrase.source, phrase.target) for phrase in book.train}
    assert ("I am trendy", "Io sono alla moda") in pairs
    assert ("I take a shower", "Faccio la doccia") in pairs
    tired = "The animal didn't cross the street because it was too tired."
    assert (tired, "L'animale non ha attraversato la strada perché era troppo stanco.") in pairs


def test_parts_share_no_sentence_on_either_side(book):
    sources = [phrase.source.rstrip(".") for phrase in every_phrase(book)]
    targets = [phrase.target.rstrip(".") for phrase in every_phrase(book)]
    assert len(set(sources)) == len(sources)
    assert len(set(targets)) == len(targets)


def test_only_the_test_part_holds_the_held_out_combinations(book):
    assert all(any(map(is_held_out, phrase.combinations)) for phrase in book.test)
    assert not any(map(is_held_out, (pair for phrase in book.train + book.valid for pair in phrase.combinations)))


def test_held_out_adjectives_never_stand_beside_their_noun_in_train(book):
    """The same as above, but read off the sentences themselves."""
    english = {each.english for each in adjectives()}
    seen = {
        pair for phrase in book.train + book.valid for pair in itertools.pairwise(phrase.source.rstrip(".?").split())
    }
    pairs = {pair for phrase in book.test for pair in phrase.combinations if is_held_out(pair)}
    described = sorted(pair for pair in pairs if pair.split("+")[1] in english)
    assert len(described) > 20
    for thing, quality in (pair.split("+") for pair in described):
        assert (quality, thing) not in seen
        assert (quality, plural(thing)) not in seen


def test_every_word_of_test_is_in_train(book):
    for side in ("source", "target"):
        known = {word.text for phrase in book.train for word in words(getattr(phrase, side))}
        assert all(word.text in known for phrase in book.test for word in words(getattr(phrase, side)))


def test_alignments_and_roles_cover_the_words(book):
    for phrase in every_phrase(book):
        left, right = len(words(phrase.source)), len(words(phrase.target))
        assert {i for i, _ in phrase.alignment} == set(range(left))
        assert {j for _, j in phrase.alignment} == set(range(right))
        assert phrase.source_roles.verb
        assert phrase.target_roles.verb
        for roles, length in ((phrase.source_roles, left), (phrase.target_roles, right)):
            assert set(roles.subject + roles.verb + roles.object) <= set(range(length))


def test_final_marks_correspond(book):
    bare = [phrase for phrase in book.train if phrase.source[-1] not in ".?"]
    assert 0.02 < len(bare) / len(book.train) < 0.2
    for phrase in every_phrase(book):
        if phrase.source[-1] in ".?":
            assert phrase.target[-1] == phrase.source[-1]
            assert phrase.alignment[-1] == (len(words(phrase.source)) - 1, len(words(phrase.target)) - 1)
        else:
            assert phrase.target[-1] not in ".?"


def test_seeds_and_sizes():
    small = phrasebook(seed=3, train=40, valid=5, test=5)
    assert phrasebook(seed=3, train=40, valid=5, test=5) == small
    assert phrasebook(seed=4, train=40, valid=5, test=5) != small
    assert (len(small.train), len(small.valid), len(small.test)) == (40, 5, 5)
    empty = phrasebook(train=0, valid=0, test=0)
    assert (empty.train, empty.valid, empty.test) == ((), (), ())
    one = phrasebook(train=1, valid=2, test=0)
    assert (len(one.train), len(one.valid)) == (1, 2)


def test_a_negative_size_is_refused():
    with pytest.raises(SettingsError, match="valid must not be negative, but is -1"):
        phrasebook(valid=-1)


def test_the_packaged_file_is_what_the_grammar_writes(book, monkeypatch):
    monkeypatch.setattr("tools.phrasebook.phrasebook", lambda: book)  # as it would write it again
    rows = list(packaged_rows())
    assert (FOLDER / BUILTIN["phrasebook"]).read_bytes() == pack(rows)
    for part in PARTS:
        written = [
            builtin.Phrase(one.source, one.target, one.alignment, one.source_roles, one.target_roles)
            for one in getattr(book, part)
        ]
        assert list(builtin.read_phrases(part)) == written


def test_importing_builds_nothing():
    code = "import sys, tools.phrasebook; print([m for m in sys.modules if m.endswith(('grammar', 'torch'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
