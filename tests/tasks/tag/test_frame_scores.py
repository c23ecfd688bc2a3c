"""Scores of segments, against the definitions in the papers and small examples computed by hand."""

import pytest

from regard.tasks.tag.frames.scores import edit_score, matches, score_frames
from regard.tasks.timelines import label_runs


def runs(text):
    return list(label_runs(list(text)))


def test_runs_of_equal_labels():
    assert [tuple(one) for one in runs("aabba")] == [("a", 0, 2), ("b", 2, 4), ("a", 4, 5)]
    assert runs("") == []


@pytest.mark.parametrize(
    ("right", "given", "overlap", "expected"),
    [
        ("aaaabbbb", "aaaabbbb", 0.5, 2),
        ("aaaabbbb", "aaabbbbb", 0.5, 2),  # 3/4 and 4/5
        ("aaaabbbb", "aaabbbbb", 0.79, 1),
        ("aaaabbbb", "aaaaaaab", 0.5, 1),  # 4/7 and 1/4
        ("aaaabbbb", "aaaaaaab", 0.25, 2),
        ("aaaaaaaa", "aaabaaaa", 0.3, 1),  # 3/8 and 4/8: the correct segment counts once
        ("aaaabbbb", "bbbbaaaa", 0.1, 0),
        ("aabbaabb", "aaaaaaaa", 0.25, 1),  # the first of the two that overlap by 2/8
    ],
)
def test_segments_match_by_overlap(right, given, overlap, expected):
    assert matches(runs(right), runs(given), overlap) == expected


@pytest.mark.parametrize(
    ("right", "given", "expected"),
    [("aabb", "abbb", 1.0), ("aabb", "aaaa", 0.5), ("abab", "ab", 0.5), ("a", "abcd", 0.25), ("ab", "ba", 0.0)],
)
def test_edit_score_ignores_times(right, given, expected):
    assert edit_score(runs(right), runs(given)) == expected


def test_a_flickering_prediction_has_a_high_accuracy_and_low_segment_scores():
    right, given = ["aaaaaaaaaabbbbbbbbbb"], ["aaaabaaaaabbbbbabbbb"]
    found = score_frames([list(one) for one in right], [list(one) for one in given], [[0.5] * 20])
    assert found.accuracy == 0.9
    assert (found.segments, found.predicted_segments) == (2, 6)
    assert found.segment_f1 == pytest.approx(2 * 2 / 8)  # aaaaa (5/10) and bbbbb (5/10)
    assert found.segment_f1_10 == pytest.approx(2 * 2 / 8)
    assert found.edit == pytest.approx(2 / 6)
    assert found.confusion == [[9, 1], [1, 9]]
    assert found.calibration_error == pytest.approx(0.4)
