"""Spans in labels, and the scores that count them, against seqeval."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.tasks.tag.scores import score_tags
from regard.tasks.tag.spans import Span, all_labels, find_scheme, find_spans, mark, merge, rewrite, write_spans

LABELS = ["O", "B-NP", "I-NP", "E-NP", "S-NP", "B-VP", "I-VP", "E-VP", "S-VP", "B", "I"]
sequence = st.lists(st.sampled_from(LABELS), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def seqeval():
    return pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")


@st.composite
def sound(draw) -> tuple[list[Span], int]:
    """Spans that do not overlap."""
    spans, place = [], 0
    for kind in draw(st.lists(st.sampled_from(["NP", "VP"]), max_size=5)):
        start = place + draw(st.integers(0, 2))
        place = start + draw(st.integers(1, 3))
        spans.append(Span(kind, start, place))
    return spans, max(place + draw(st.integers(0, 2)), 1)


def test_what_the_schemes_mean() -> None:
    """The examples of Ramshaw and Marcus 1995 and of the CoNLL-2000 task: two noun phrases side by side."""
    wanted = [Span("NP", 0, 2), Span("NP", 2, 3), Span("VP", 4, 5)]
    assert find_spans(["I-NP", "I-NP", "B-NP", "O", "I-VP"]) == wanted
    assert find_spans(["B-NP", "I-NP", "B-NP", "O", "B-VP"]) == wanted
    assert find_spans(["B-NP", "E-NP", "S-NP", "O", "S-VP"]) == wanted


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ([["I-NP", "I-NP", "B-NP", "O"]], "IOB1"),
        ([["I-NP", "O"], ["O", "I-VP"]], "IOB1"),
        ([["B-NP", "I-NP", "O"]], "BIO"),
        ([["B-NP", "O"], ["I-NP", "O"]], "BIO"),  # with a mistake
        ([["B-NP", "E-NP", "S-VP"]], "BIOES"),
        ([["NOUN", "VERB"]], "plain"),
        ([["B-NP", "X"]], "plain"),
        ([["O", "O"]], "plain"),
        ([["B", "I", "O"]], "BIO"),
        ([], "plain"),
    ],
)
def test_schemes_are_recognised(labels: list[list[str]], scheme: str) -> None:
    assert find_scheme(labels) == scheme


@settings(deadline=None)
@given(sound(), st.sampled_from(["BIO", "BIOES"]))
def test_spans_are_read_as_they_were_written(made: tuple[list[Span], int], scheme: str) -> None:
    spans, length = made
    labels = write_spans(spans, length, scheme)
    assert len(labels) == length
    assert find_spans(labels) == spans
    assert list(rewrite(labels, scheme)) == labels
    assert find_scheme([labels]) in (scheme, "plain", "BIO")


@settings(deadline=None)
@given(sequence)
def test_mending_keeps_the_spans(labels: list[str]) -> None:
    assert find_spans(rewrite(labels, "BIO")) == find_spans(labels)
    assert rewrite(labels, "plain") == tuple(labels)


def test_a_stray_beginning_is_mended() -> None:
    assert rewrite(["O", "I-NP", "I-NP", "I-VP"], "BIO") == ("O", "B-NP", "I-NP", "B-VP")


@settings(deadline=None, max_examples=300)
@given(sequence)
def test_malformed_labels_are_read_as_seqeval_reads_them(seqeval, labels: list[str]) -> None:
    get_entities = seqeval.sequence_labeling.get_entities
    theirs = [Span("" if kind == "_" else kind, start, end + 1) for kind, start, end in get_entities(labels)]
    assert find_spans(labels) == theirs


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(sequence, st.integers(0, 1000)), min_size=1, max_size=5))
def test_scores_are_those_of_seqeval(seqeval, pairs: list[tuple[list[str], int]]) -> None:
    """F1, precision and recall in its default mode, which is conlleval's; each type too."""
    right = [labels for labels, _ in pairs]
    given = [labels[seed % len(labels) :] + labels[: seed % len(labels)] for labels, seed in pairs]
    ours = score_tags(right, given, "BIO")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ours.span_f1 == pytest.approx(seqeval.f1_score(right, given, zero_division=0))
        assert ours.precision == pytest.approx(seqeval.precision_score(right, given, zero_division=0))
        assert ours.recall == pytest.approx(seqeval.recall_score(right, given, zero_division=0))
        assert ours.accuracy == pytest.approx(seqeval.accuracy_score(right, given))
        report = seqeval.classification_report(right, given, output_dict=True, zero_division=0)
    for kind, figures in ours.by_label.items():
        theirs = report[kind or "_"]
        assert figures["f1"] == pytest.approx(theirs["f1-score"])
        assert figures["count"] == theirs["support"]


def test_scores_of_plain_labels() -> None:
    """By hand: three of four right; DET once found of twice, NOUN twice given and once right."""
    found = score_tags(
        [["DET", "NOUN", "DET"], ["VERB"]], [["DET", "NOUN", "NOUN"], ["VERB"]], "plain", [[0.9, 0.8, 0.6], [1.0]]
    )
    assert found.accuracy == 0.75
    assert found.span_f1 is None
    assert "span_f1" not in found.as_dict()
    assert found.by_label["DET"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "count": 2}
    assert found.by_label["NOUN"]["precision"] == 0.5
    assert found.f1 == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert found.names == ("DET", "NOUN", "VERB")
    assert found.confusion == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert sum(one["answers"] for one in found.reliability) == 4
    assert found.calibration_error == pytest.approx((0.1 + 0.2 + 0.6 + 0.0) / 4)


def test_scores_of_nothing() -> None:
    found = score_tags([], [], "plain")
    assert (found.accuracy, found.words, found.by_label) == (0.0, 0, {})


def test_confusion_of_spans_is_by_type() -> None:
    found = score_tags([["B-NP", "I-NP", "O"]], [["B-NP", "B-VP", "O"]], "BIO")
    assert found.names == ("NP", "O", "VP")
    assert found.confusion == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]


def test_sentences_are_marked() -> None:
    assert mark(["He", "took", "it"], ["B-NP", "O", "B-NP"], "BIO") == "[NP He ] took [NP it ]"
    assert mark(["a", "b"], ["O", "O"], "BIO") == "a b"
    assert mark(["He", "took"], ["PRON", "VERB"], "plain") == "He/PRON took/VERB"
    assert mark([], [], "BIO") == ""


@settings(deadline=None)
@given(sound())
def test_labels_of_one_scheme_are_merged_into_those_of_another(made: tuple[list[Span], int]) -> None:
    """What BIOES calls S and E, BIO calls B and I."""
    spans, length = made
    labels = write_spans(spans, length, "BIOES")
    assert [merge(label, "BIO") for label in labels] == write_spans(spans, length, "BIO")
    assert [merge(label, "BIOES") for label in labels] == labels


def test_all_labels_that_spans_may_have() -> None:
    assert all_labels(["S-NP", "O"], "BIOES") == ("B-NP", "E-NP", "I-NP", "O", "S-NP")
    assert all_labels(["B-NP", "O"], "BIO") == ("B-NP", "I-NP", "O")
    assert all_labels(["NOUN", "ADJ"], "plain") == ("ADJ", "NOUN")


def test_a_part_without_a_span_is_still_scored_by_spans() -> None:
    """The scheme is the run's: otherwise model selection would compare span F1 with macro F1."""
    found = score_tags([["O", "O"]], [["O", "B-NP"]], "BIO")
    assert (found.span_f1, found.precision, found.recall) == (0.0, 0.0, 0.0)
    assert found.by_label["NP"]["count"] == 0
