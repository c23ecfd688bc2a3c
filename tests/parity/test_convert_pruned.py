"""Exports of pruned runs, with heads missing here and there and all of them in some attentions: what we write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard import models
from regard.data.batches import make_sources
from regard.export import export_run
from regard.export.ctranslate2 import build_spec
from regard.export.weights import fill_heads
from regard.run import Run
from regard.tasks.translate.engine import Engine, open_engine
from regard.tasks.translate.translator import load
from regard.text.tokenizer import EOS, SOS
from tests.export.runs import random_recipe, random_run, sentences
from tests.toys import close

KEPT = [
    ["encoder.0.self", 2],
    ["encoder.1.self", 0],
    ["decoder.0.self", 0],
    ["decoder.0.cross", 1],
    ["decoder.1.self", 1],
    ["decoder.1.cross", 3],
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two layers on each side, once with four heads each."""
    return random_run(tmp_path_factory.mktemp("pruned") / "run", random_recipe({"remaining_heads": KEPT}))


def test_the_recipe_of_a_pruned_run_is_read_back(run: Run) -> None:
    opened = Run.open(run.folder)
    assert opened.recipe == run.recipe
    assert [opened.recipe.model.heads_in(name) for name, _ in KEPT] == [count for _, count in KEPT]  # type: ignore[union-attr]


def test_heads_of_zeros_add_nothing(run: Run) -> None:
    settings = run.recipe.model
    full = random_recipe({"remaining_heads": []}).model
    weights = dict(run.load_model().named_parameters())
    filled = fill_heads(settings, weights, dict.fromkeys(settings.attentions, settings.heads))  # type: ignore[union-attr, arg-type]
    from regard.run import restore

    source, target = run.tokenizers
    whole = models.build(full, source_vocabulary=source.size, target_vocabulary=target.size).eval()
    restore(whole, filled, where="test")
    given, target_BT = make_sources(source.encode_many(sentences(4)), source.pad), torch.randint(3, 400, (4, 6))
    with torch.no_grad():
        close(whole(given, target_BT), run.load_model()(given, target_BT))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_ctranslate2_scores_and_writes_the_same(norm: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    run = random_run(tmp_path / "run", random_recipe({"remaining_heads": KEPT, "norm": norm}))
    engine, model = open_engine(run, "float32", workers=1), run.load_model()
    source, target = run.tokenizers
    ids, given = source.encode_many(sentences(6)), target.encode_many([text[::-1] for text in sentences(6)])
    for one, other, log_probs in zip(ids, given, engine.score(ids, given), strict=True):
        with torch.inference_mode():
            logits_TV = model(make_sources([one], source.pad), torch.tensor([[SOS, *other]]))[0, :, :-1]
        expected = logits_TV.log_softmax(-1).gather(1, torch.tensor([*other, EOS])[:, None])[:, 0]
        close(torch.tensor(log_probs), expected, 1e-4)
    answers = load(run.folder).translate(sentences(6), retry_failures=False)
    found = engine.translate(ids, [2 * len(row) + 10 for row in ids])
    assert [best.tokens for [best] in found] == [tuple(map(target.tokens.index, answer.tokens)) for answer in answers]


def test_ctranslate2_has_no_more_heads_than_a_side_needs(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    spec = build_spec(run.recipe.model, dict(run.load_model().state_dict()), *run.tokenizers)  # type: ignore[arg-type]
    assert (int(spec.encoder.num_heads), int(spec.decoder.num_heads)) == (2, 3)
    assert spec.encoder.layer[0].self_attention.linear[0].weight.shape == (3 * 2 * 8, 32)
    export_run(run, "ctranslate2", tmp_path / "small", quantization="int8")
    quantized = Engine(tmp_path / "small", *run.tokenizers, workers=1)
    assert len(quantized.translate(run.tokenizers[0].encode_many(sentences(3)), [20] * 3)) == 3


def test_marian_writes_the_same(run: Run, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.MarianMTModel.from_pretrained(export_run(run, "marian", tmp_path / "marian"))
    ours = load(run.folder)
    for text, answer in zip(texts := sentences(3), ours.translate(texts, retry_failures=False), strict=True):
        ids = [*ours.source.encode(text), EOS]
        model.generation_config.max_length = 2 * (len(ids) - 1) + 11  # our limit, and the start token
        [written] = model.generate(input_ids=torch.tensor([ids])).tolist()
        assert [ours.target.token(id) for id in written if id not in (EOS, SOS)] == list(answer.tokens)


@pytest.mark.slow
def test_onnx_scores_the_same_with_as_many_heads_as_are_left(run: Run, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = export_run(run, "onnx", tmp_path / "onnx")
    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    shapes = {given.name: given.shape[1] for given in decoder.get_inputs() if given.name.endswith("key")}
    assert shapes == {"memory.0.key": 1, "memory.1.key": 3, "past.0.key": 1, "past.1.key": 1}
    source = make_sources(run.tokenizers[0].encode_many(sentences(3)), run.tokenizers[0].pad)
    target_BT = torch.randint(3, 400, (3, 5))
    with torch.inference_mode():
        expected_BTV = run.load_model()(source, target_BT).numpy()
    given = {"ids": source.ids_BS.numpy(), "mask": source.mask_BS.numpy()}
    memory = dict(zip((out.name for out in encoder.get_outputs()), encoder.run(None, given), strict=True))
    past = {
        name.replace("memory", "past"): np.zeros((3, shapes[f"past.{name[7]}.key"], 0, 8), np.float32)
        for name in memory
    }
    for place in range(target_BT.shape[1]):
        step = {"token": target_BT[:, place].numpy(), "mask": given["mask"], **memory, **past}
        logits_BV, *present = decoder.run(None, step)
        assert np.abs(logits_BV - expected_BTV[:, place]).max() < 1e-4
        past = dict(zip(past, present, strict=True))
