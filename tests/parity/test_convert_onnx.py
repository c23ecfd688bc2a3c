"""onnxruntime on exported random runs: our logits, token by token, for any batch and any length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.data.batches import make_sources
from regard.export import export_run
from regard.text.tokenizer import SOS, load_tokenizer
from tests.export.runs import random_recipe, random_run, sentences

VARIANTS: dict[str, dict[str, Any]] = {
    "norm after": {"encoder_layers": 1, "decoder_layers": 1},
    "swiglu, norm before, rotary": {"activation": "swiglu", "norm": "pre", "positional_encoding": "rotary"},
    "learned positions, heads of 6, untied": {
        "positional_encoding": "learned", "max_positions": 64, "head_width": 6, "tie_embeddings": "none",
        "encoder_layers": 1,
    },
}  # fmt: skip
TOLERANCE = 1e-4
SLOW = pytest.mark.slow  # the exporter takes seconds a graph


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=SLOW if place else ()) for place, name in enumerate(VARIANTS)]
)
def test_logits(variant: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run = random_run(tmp_path / "run", random_recipe(VARIANTS[variant]))
    folder = export_run(run, "onnx", tmp_path / "onnx")
    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    model, tokenizer = run.load_model(), load_tokenizer(folder, "source")
    assert tokenizer.hash() == run.tokenizers[0].hash()
    for texts in (sentences(1), sentences(4)):
        source = make_sources(tokenizer.encode_many(texts), tokenizer.pad)
        target_BT = torch.randint(3, 400, (len(texts), 7))
        target_BT[:, 0] = SOS
        with torch.inference_mode():
            expected_BTV = model(source, target_BT).numpy()
        given = {"ids": source.ids_BS.numpy(), "mask": source.mask_BS.numpy()}
        memory = dict(zip(names(encoder.get_outputs()), encoder.run(None, given), strict=True))
        shape = next(iter(memory.values())).shape
        past = {name.replace("memory", "past"): np.zeros((*shape[:2], 0, shape[3]), np.float32) for name in memory}
        for place in range(target_BT.shape[1]):
            step = {"token": target_BT[:, place].numpy(), "mask": given["mask"], **memory, **past}
            logits_BV, *present = decoder.run(None, step)
            assert np.abs(logits_BV - expected_BTV[:, place]).max() < TOLERANCE
            past = dict(zip(past, present, strict=True))
    facts = json.loads((folder / "regard.json").read_text())
    assert facts["ids"]["start"] == SOS
    assert facts["longest"] == VARIANTS[variant].get("max_positions", 1024)


def names(values: list[Any]) -> list[str]:
    return [value.name for value in values]
