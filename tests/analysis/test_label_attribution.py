"""Attribution of labels: the axioms that the methods keep, on every classifier."""

import pytest
import torch

from regard.analysis.label_attribution import METHODS, attribute_label
from regard.errors import ModelError
from tests.reviews import CASES, build, documents
from tests.toys import close

every_classifier = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())


@pytest.mark.parametrize("case", [name for name in CASES if name != "encoder, no positions"])
def test_integrated_gradients_sum_to_what_the_words_did(case, monkeypatch):
    """A layer norm on nothing but the embedding sees no way from zeros to it: that case is left out."""
    settings = CASES[case]
    monkeypatch.setattr("regard.analysis.label_attribution.STEPS", 200)
    model, document = build(settings), documents([[4, 3, 5]])
    embedding = next(part for part in model.modules() if isinstance(part, torch.nn.Embedding))
    shares = attribute_label(model, document, 1, "integrated")
    with torch.no_grad():
        whole = model(document)[0].log_softmax(-1)[1]
        embedding.weight.zero_()
        nothing = model(document)[0].log_softmax(-1)[1]
    assert shares.shape == (12,)
    assert float(shares.sum()) == pytest.approx(float(whole - nothing), abs=0.02)


@every_classifier
def test_occlusion_is_what_is_lost_without_a_word(settings):
    """Also checks that shares stand in the order of the text: the word at that place is taken away by hand."""
    model, document = build(settings), documents([[2, 4, 1]])
    with torch.no_grad():
        shares = attribute_label(model, document, 0, "occlusion")
        embedding = next(part for part in model.modules() if isinstance(part, torch.nn.Embedding))
        alone = document.ids_BUS.clone()
        place = 3  # the second word of the second sentence
        alone[0, 1, 1] = embedding.num_embeddings - 1
        if (document.ids_BUS[document.mask_BUS] == alone[0, 1, 1]).any():
            document.ids_BUS[document.ids_BUS == alone[0, 1, 1]] = 0
            shares = attribute_label(model, document, 0, "occlusion")
        before = model(document)[0].log_softmax(-1)[0]
        embedding.weight[alone[0, 1, 1]] = 0.0
        after = model(document._replace(ids_BUS=alone))[0].log_softmax(-1)[0]
    close(shares[place], before - after, 1e-4)


@every_classifier
def test_gradient_is_the_slope_of_a_words_length(settings):
    model, document = build(settings), documents([[3, 2]])
    shares = attribute_label(model, document, 2, "gradient", several=True)
    assert shares.shape == (5,)
    assert shares.isfinite().all()
    assert all(weight.grad is None for weight in model.parameters())


def test_what_is_asked_wrongly_is_told():
    model = build(CASES["han"])
    with pytest.raises(ModelError, match='did you mean "gradient"'):
        attribute_label(model, documents([[2]]), 0, "gradeint")
    with pytest.raises(ModelError, match="one document at a time"):
        attribute_label(model, documents([[2], [3]]), 0)
    assert set(METHODS) == {"gradient", "integrated", "occlusion"}
