"""CIDEr-D against numbers computed by hand from the formula of Vedantam et al. 2015; retrieval.

On 228 captions of emoji, with one or two references, pycocoevalcap 1.2 (the authors' program in Python 3) gives the
same score of each caption to 2e-15; this was checked once, with words in lower case and without punctuation.
"""

from __future__ import annotations

import math

import pytest
import torch

from regard.tasks.caption.scores import cider, cider_scores, recall, score_captions


def test_cider_of_one_word_each_by_hand() -> None:
    """Three pictures; "cat" is in one reference: idf = ln 3. Equal captions: the cosine of unigrams is 1, others 0."""
    references = [["cat"], ["dog"], ["bird"]]
    assert cider_scores(["cat", "bird", ""], references) == pytest.approx([10 / 4, 0.0, 0.0])
    assert cider(["cat", "bird", ""], references) == pytest.approx(2.5 / 3)


def test_cider_by_hand() -> None:
    """Caption "a red cat", reference "a black cat"; "a" is in both references, so its weight is ln(2/2) = 0.

    Unigrams: "red" is in no reference, which counts as one: ln 2. The vectors are ln 2 for red and cat, and ln 2 for
    black and cat: cosine 1/2. No bigram and no trigram agrees. So 10 * (1/2) / 4.
    """
    assert cider_scores(["a red cat", "a dog"], [["a black cat"], ["a dog"]])[0] == pytest.approx(1.25)


def test_repeated_words_and_a_longer_caption_cost() -> None:
    """Caption "cat cat cat", reference "cat": the clipped product is ln 3 * ln 3, the norms 3 ln 3 and ln 3: 1/3.

    The lengths differ by 2 words: the factor exp(-4 / 72). The bigrams and trigrams of the caption have no partner.
    """
    found = cider_scores(["cat cat cat", "x", "y"], [["cat"], ["dog"], ["bird"]])[0]
    assert found == pytest.approx(10 * math.exp(-4 / 72) / 3 / 4)


def test_several_references_are_averaged() -> None:
    one = cider_scores(["red cat", "dog"], [["red cat"], ["dog"]])[0]
    two = cider_scores(["red cat", "dog"], [["red cat", "blue bird"], ["dog"]])[0]
    assert one == pytest.approx(5.0)  # unigrams and bigrams agree
    assert two == pytest.approx(2.5)


def test_scores_have_signatures_and_take_the_best_reference() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    texts, references = ["the black cat sits", "a dog"], [["a cat sits", "the black cat sat"], ["a dog", "the dog"]]
    found = score_captions(texts, references)
    columns = [list(column) for column in zip(*references, strict=True)]
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, columns).score)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(texts, columns).score)
    assert "nrefs:2" in found["signatures"]["chrf"]
    uneven = score_captions(texts, [references[0], ["a dog"]])
    assert uneven["chrf"] == pytest.approx(found["chrf"])


def test_recall_counts_the_rank_of_the_right_picture() -> None:
    scores_NM = torch.tensor([[3.0, 1.0, 0.0], [2.0, 2.0, 0.0], [1.0, 3.0, 0.0]])
    found = recall(scores_NM, [0, 1, 2])  # ranks 1, 2, and 3 of equal scores
    assert found == {"recall_1": pytest.approx(1 / 3), "recall_5": 1.0, "recall_10": 1.0}
