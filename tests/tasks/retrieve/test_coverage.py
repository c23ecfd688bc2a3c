"""Coverage: what a small knowledge base is judged by, in any language."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.tasks.retrieve.bm25 import QueryCoverage
from regard.tasks.retrieve.data import KnowledgeEntry, texts_of
from regard.tasks.retrieve.index import KnowledgeIndex
from regard.tasks.retrieve.retriever import Retriever
from regard.tasks.retrieve.settings import RetrieveSettings
from tests.small_faq import CAFE, PARAPHRASES, STRANGERS, cafe

RETRIEVER = Retriever(KnowledgeIndex(cafe(), RetrieveSettings(method="bm25")))


def coverage(entries):
    return QueryCoverage([entry.questions for entry in entries], [texts_of(entry, answers=True) for entry in entries])


def test_strangers_are_refused_and_paraphrases_are_not():
    refused = [question for question in STRANGERS if not RETRIEVER.reply(question).answered]
    assert len(refused) >= 12
    assert {"What is your name?", "I love you"} <= set(refused)
    found = [question for question, known in PARAPHRASES.items() if RETRIEVER.reply(question).text == CAFE[known]]
    assert len(found) >= 0.85 * len(PARAPHRASES)


def test_what_is_known_is_covered_and_what_is_strange_is_not():
    known = coverage(cafe())
    assert known.share("oat milk", 13) == pytest.approx(1)
    assert known.share("what is your", 0) < known.share("opening hours", 0)
    assert known.share("zebra", 0) == 0
    assert known.share("", 0) == known.share("?!", 0) == 0


@given(st.text(max_size=40), st.integers(0, len(CAFE) - 1))
@settings(deadline=None)
def test_it_is_a_share(question, number):
    assert 0 <= coverage(cafe()).share(question, number) <= 1 + 1e-9


def test_names_in_capitals_are_no_small_words():
    known = coverage([*cafe(), KnowledgeEntry(("Is there a TV in the room?",), "A small one.")])
    assert known.share("a TV?", 17) > 0.9
    assert known.share("TV or zebras", 17) > known.share("tv or zebras", 17)


@pytest.mark.parametrize(
    "entry", [KnowledgeEntry(("Is it?",), "It is."), KnowledgeEntry((), ""), KnowledgeEntry(("?",), "!")]
)
def test_hardly_any_knowledge(entry):
    assert 0 <= coverage([entry]).share("Is it open?", 0) <= 1


GERMAN = {
    "Wann habt ihr geöffnet?": "Von acht bis achtzehn Uhr, außer am Montag.",
    "Wo seid ihr?": "In der Hafenstraße 12.",
    "Kann ich mit Karte bezahlen?": "Ja, ab fünf Euro.",
    "Habt ihr Hafermilch?": "Ja, ohne Aufpreis.",
    "Darf ich meinen Hund mitbringen?": "Hunde sind willkommen.",
    "Kann man einen Tisch reservieren?": "Ruft uns an.",
}
KOREAN = {
    "영업 시간은 언제인가요?": "아침 여덟 시부터입니다.",
    "카드로 결제할 수 있나요?": "네, 가능합니다.",
    "주차장이 있나요?": "교회 뒤에 있습니다.",
}
JAPANESE = {
    "営業時間は何時ですか": "朝八時からです。",
    "カードで払えますか": "はい。",
    "駐車場はありますか": "教会の裏です。",
}


@pytest.mark.parametrize(
    ("faq", "question", "expected"),
    [
        (GERMAN, "Bis wann ist geöffnet?", 0),
        (GERMAN, "Nehmt ihr auch Karten?", None),
        (GERMAN, "Kann man mit der Karte zahlen?", 2),
        (GERMAN, "gibt es Hafermilch", 3),
        (GERMAN, "Ist mein Hund willkommen?", 4),
        (GERMAN, "Wie heißt ihr?", None),
        (GERMAN, "Wer ist der Präsident?", None),
        (KOREAN, "카드 결제", 1),
        (KOREAN, "주차장", 2),
        (JAPANESE, "営業時間を教えて", 0),
        (JAPANESE, "駐車場", 2),
    ],
)
def test_other_languages(faq, question, expected):
    entries = [KnowledgeEntry((known,), answer) for known, answer in faq.items()]
    reply = Retriever(KnowledgeIndex(entries, RetrieveSettings(method="bm25"))).reply(question)
    assert (reply.text if reply.answered else None) == (None if expected is None else entries[expected].answer)
