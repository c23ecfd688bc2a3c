"""Merging tokens to words, on maps made by hand."""

import torch

from regard.analysis.trace import Side, Trace, make_side


def test_tokens_find_their_words_by_place():
    # "Faccio, eh" as "Fac" "cio" "," "eh" and the end
    side = make_side(
        ["Fac", "cio", ",", "eh", "</s>"],
        [(0, 3), (3, 6), (6, 7), (8, 10), (11, 11)],
        [("Faccio", 0, 6), (",", 6, 7), ("eh", 8, 10)],
    )
    assert side.words == ("Faccio", ",", "eh", "</s>")
    assert side.word_of == (0, 0, 1, 2, 3)


def test_equal_words_side_by_side_stay_two():
    side = make_side(["no", "no"], [(0, 2), (3, 5)], [("no", 0, 2), ("no", 3, 5)])
    assert side.words == ("no", "no")
    assert side.word_of == (0, 1)


def test_a_word_looks_as_its_tokens_do_and_gets_what_they_get():
    source = Side(("a", "b1", "b2"), ("a", "b"), (0, 1, 1))
    target = Side(("c1", "c2", "d"), ("c", "d"), (0, 0, 1))
    cross = torch.tensor([[[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.1, 0.0, 0.9]]])
    merged = Trace(source, target, {"decoder.0.cross": cross}).by_words()
    expected = torch.tensor([[[0.4, 0.6], [0.1, 0.9]]])  # rows averaged, columns summed
    torch.testing.assert_close(merged.attention("decoder.0.cross"), expected)


def test_the_decoder_reads_what_it_wrote_one_step_later():
    target = Side(("c1", "c2", "</s>"), ("c", "</s>"), (0, 0, 1))
    trace = Trace(target, target, {})
    rows, columns = trace.axes("decoder.0.self")
    assert rows is target
    assert columns == Side(("<s>", "c1", "c2"), ("<s>", "c"), (0, 1, 1))
