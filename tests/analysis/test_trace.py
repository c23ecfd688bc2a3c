"""Traces: tokens and words, what is recorded of every architecture, and the file."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.analysis.trace import Trace, TraceSide, make_side, place_in_text, record_trace
from regard.errors import RegardError
from regard.text.tokenizer import normalize
from tests.toys import TOYS, VARIANTS, build, close, sentences, tokens


def test_tokens_find_their_words_by_place():
    # "Faccio, eh" as "Fac" "cio" "," "eh" and the end
    side = make_side(
        ["Fac", "cio", ",", "eh", "</s>"],
        [(0, 3), (3, 6), (6, 7), (8, 10), (11, 11)],
        [("Faccio", 0, 6), (",", 6, 7), ("eh", 8, 10)],
    )
    assert side.words == ("Faccio", ",", "eh", "</s>")
    assert side.word_of == (0, 0, 1, 2, 3)
    assert side.word_spans == ((0, 6), (6, 7), (8, 10), (11, 11))


def test_equal_words_side_by_side_stay_two():
    side = make_side(["no", "no"], [(0, 2), (3, 5)], [("no", 0, 2), ("no", 3, 5)])
    assert side.words == ("no", "no")
    assert side.word_of == (0, 1)


def test_words_that_share_a_token_are_one():
    side = make_side(["l'amico", "!"], [(0, 7), (7, 8)], [("l'", 0, 2), ("amico", 2, 7), ("!", 7, 8)])
    assert side.words == ("l'amico", "!")
    overlapping = make_side(["l'am", "ico"], [(0, 4), (4, 7)], [("l'", 0, 2), ("amico", 2, 7)])
    assert overlapping.words == ("l'", "amico")


def test_a_word_looks_as_its_tokens_do_and_gets_what_they_get():
    source = TraceSide(("a", "b1", "b2"), ("a", "b"), (0, 1, 1))
    target = TraceSide(("c1", "c2", "d"), ("c", "d"), (0, 0, 1))
    cross = torch.tensor([[[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.1, 0.0, 0.9]]])
    states = {
        "encoder.0": torch.tensor([[1.0], [2.0], [4.0]]),
        "decoder.embed": torch.tensor([[1.0], [2.0], [4.0]]),  # of <s>, c1, c2
        "decoder.top": torch.tensor([[1.0], [2.0], [4.0]]),  # before c1, c2, d
    }
    values = {"decoder.0.cross": torch.tensor([[[1.0], [2.0], [6.0]]])}
    merged = Trace(source, target, {"decoder.0.cross": cross}, values, states, torch.eye(3)).by_words()
    expected = torch.tensor([[[0.4, 0.6], [0.1, 0.9]]])  # rows averaged, columns summed
    close(merged.attention("decoder.0.cross"), expected)
    close(merged.values["decoder.0.cross"], torch.tensor([[[1.0], [4.0]]]))
    close(merged.states["encoder.0"], torch.tensor([[1.0], [3.0]]))
    close(merged.states["decoder.embed"], torch.tensor([[1.0], [3.0]]))
    close(merged.states["decoder.top"], torch.tensor([[1.5], [4.0]]))
    close(merged.next, torch.eye(3)[[0, 2]])  # where the words begin
    assert merged.by_words().weights["decoder.0.cross"].equal(merged.weights["decoder.0.cross"])


def test_the_decoder_reads_what_it_wrote_one_step_later():
    target = TraceSide(("c1", "c2", "</s>"), ("c", "</s>"), (0, 0, 1))
    trace = Trace(target, target, {})
    rows, columns = trace.axes("decoder.0.self")
    assert rows is target
    assert columns == TraceSide(("<s>", "c1", "c2"), ("<s>", "c"), (0, 1, 1))


# ---------------------------------------------------------------------------------------------------------------------
# Places in the text as it was typed


def typed(text, spelled, *spans):
    side = TraceSide(("t",) * len(spans), ("t",) * len(spans), tuple(range(len(spans))), spans)
    placed = place_in_text(side, spelled, text)
    assert placed.text == text
    return [text[start:end] for start, end in placed.spans]


def test_white_space_that_was_normalised_is_skipped():
    assert typed("  I \t am\n", "I am", (0, 1), (2, 4), (5, 5)) == ["I", "am", ""]


def test_composed_characters_have_all_their_parts():
    assert typed("cafe\u0301 noir", "café noir", (0, 4), (5, 9)) == ["cafe\u0301", "noir"]
    assert typed("\u1100\u1161 b", "\uac00 b", (0, 1), (2, 3)) == ["\u1100\u1161", "b"]  # Korean letters, one syllable


def test_lower_case_and_ligatures_come_from_what_was_typed():
    assert typed("ROMA Sì", "roma sì", (0, 4), (5, 7)) == ["ROMA", "Sì"]
    assert typed("ﬁne", "fine", (0, 2), (2, 4)) == ["ﬁ", "ne"]
    assert typed("a▁b", "a_b", (1, 2)) == ["▁"]


def test_what_the_tokens_say_otherwise_comes_from_the_stretch_that_it_replaced():
    assert typed("see 漢字 now", "see ⁇ now", (4, 5), (6, 9)) == ["漢字", "now"]


@given(st.text(alphabet="aE é\u0301\u0308ßǅİ \t\u00a0\x01ﬁ漢가▁.", max_size=12), st.booleans())
def test_places_lie_in_the_text_in_order(text, lowercase):
    spelled = normalize(text, lowercase)
    spans = tuple((k, k + 1) for k in range(len(spelled)))
    names = ("t",) * len(spans)
    placed = place_in_text(TraceSide(names, names, tuple(range(len(spans))), spans), spelled, text)
    assert all(0 <= start <= end <= len(text) for start, end in placed.spans)
    assert list(placed.spans) == sorted(placed.spans)


# ---------------------------------------------------------------------------------------------------------------------
# Every architecture


def side_of(size):
    return TraceSide(
        *[tuple(f"t{k}" for k in range(size))] * 2, tuple(range(size)), tuple((k, k) for k in range(size)), "t"
    )


def trace_of(settings, source_size=5, target_size=4):
    model, target = build(settings), tokens(1, target_size)
    source = sentences([source_size])
    return model, source, target, record_trace(model, source, target, side_of(source_size), side_of(target_size), None)


@pytest.mark.parametrize("settings", [*TOYS.values(), *VARIANTS.values()], ids=[*TOYS, *VARIANTS])
def test_a_trace_holds_what_passed(settings):
    model, source, target, trace = trace_of(settings)
    for name, weights in trace.weights.items():
        rows, columns = trace.axes(name)
        assert weights.shape[1:] == (len(rows.tokens), len(columns.tokens))
        assert trace.values[name].shape[:2] == (weights.shape[0], len(columns.tokens))
    with torch.no_grad():
        close(trace.next, model(source, target)[0].log_softmax(-1))
        close(model.output(trace.states["decoder.top"]).log_softmax(-1), trace.next)
    assert {"encoder.embed", "encoder.0", "encoder.top", "decoder.embed"} <= set(trace.states)
    assert [len(state) for name, state in trace.states.items() if name.startswith("encoder")].count(5) >= 3


def test_heads_and_their_projections_make_what_the_layer_says():
    model, source, target, trace = trace_of(TOYS["transformer-tiny"])
    seen = {}
    hook = model.decoder[1].cross_attention.register_forward_hook(
        lambda module, inputs, output: seen.update(out=output[0])
    )
    with torch.no_grad():
        model(source, target)
    hook.remove()
    name = "decoder.1.cross"
    made = torch.einsum("hts,hsk,hkd->td", trace.weights[name], trace.values[name], trace.outward[name])
    close(made + model.decoder[1].cross_attention.out.bias, seen["out"])


def test_without_attention_there_are_no_weights():
    _, _, _, trace = trace_of(TOYS["seq2seq-lstm"])
    assert trace.weights == trace.values == trace.outward == {}
    assert trace.states
    with pytest.raises(RegardError, match="there are none"):
        trace.attention("decoder.cross")
