"""CTranslate2 on converted random runs: our log-probabilities, our hypotheses, our scores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.data.batches import make_sources
from regard.decoding.beam import beam_search
from regard.decoding.greedy import extend_paths
from regard.decoding.hypothesis import Tokens
from regard.decoding.penalties import LengthPenalty
from regard.errors import ModelError
from regard.export import export_run, read_mark
from regard.run import Run
from regard.tasks.translate.engine import Engine, engine_folder, open_engine
from regard.text.tokenizer import EOS, SOS, UNK
from tests.export.runs import random_recipe, random_run, sentences

pytest.importorskip("ctranslate2")

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "norm after": {"model": {}},
    "norm before": {"model": {"norm": "pre"}},
    "gelu": {"model": {"activation": "gelu"}},
    "swiglu": {"model": {"activation": "swiglu", "norm": "pre"}},
    "rotary, heads of 6": {"model": {"positional_encoding": "rotary", "head_width": 6}},
    "learned positions": {"model": {"positional_encoding": "learned", "max_positions": 120}},
    "no positions": {"model": {"positional_encoding": "none"}},
    "concatenated": {"model": {"position_mode": "concatenate"}},
    "concatenated, learned, untied": {
        "model": {"position_mode": "concatenate", "positional_encoding": "learned", "tie_embeddings": "none"}
    },
    "separate vocabularies": {"model": {"tie_embeddings": "target"}, "tokenizer": {"joint": False}},
    "swish, output bias": {"model": {"activation": "swish", "output_bias": True}},
    "words": {"model": {}, "tokenizer": {"kind": "word"}},
}


@pytest.fixture(scope="module", params=list(VARIANTS))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of each variant."""
    return random_run(tmp_path_factory.mktemp("variant") / "run", random_recipe(**VARIANTS[request.param]))


def converted(run: Run) -> Engine:
    return open_engine(run, "float32", workers=1)


def encoded(run: Run) -> list[list[int]]:
    return run.tokenizers[0].encode_many(sentences(9))


def test_log_probabilities(run: Run) -> None:
    sources, targets = encoded(run), run.tokenizers[1].encode_many([text[::-1] for text in sentences(9)])
    model, padding = run.load_model(), run.tokenizers[0].pad
    found = converted(run).score(sources, targets)
    for source, target, log_probs in zip(sources, targets, found, strict=True):
        with torch.inference_mode():
            logits_TV = model(make_sources([source], padding), torch.tensor([[SOS, *target]]))[0, :, :-1]
        expected = logits_TV.log_softmax(-1).gather(1, torch.tensor([*target, EOS])[:, None])[:, 0]
        assert (torch.tensor(log_probs) - expected).abs().max() < 1e-4


@pytest.mark.parametrize(("beam", "penalty", "stop"), [(1, 1.0, "exact"), (5, 1.0, "beam-full"), (3, 0.6, "exact")])
def test_hypotheses(run: Run, beam: int, penalty: float, stop: Any) -> None:
    sources = encoded(run)
    longest = [2 * len(ids) + 10 for ids in sources]
    found = converted(run).translate(sources, longest, beam_size=beam, penalty=penalty, stop=stop)
    expected = [hypothesis[0] for hypothesis in search(run, sources, longest, beam, penalty, stop)]
    assert [best.tokens for [best] in found] == [best.tokens for best in expected]
    assert [best.ended for [best] in found] == [best.ended for best in expected]
    assert [best.score for [best] in found] == pytest.approx([best.score for best in expected], abs=1e-4)


def search(run: Run, sources: list[list[int]], longest: list[int], beam: int, penalty: float, stop: Any) -> Any:
    source, target = run.tokenizers
    model, tokens = run.load_model(), Tokens(SOS, EOS, (SOS, UNK, target.pad))
    with torch.inference_mode():
        memory = model.encode(make_sources(sources, source.pad))
        given = (model.step, model.start(memory), memory, torch.tensor(longest), tokens)
        if beam == 1:
            return extend_paths(*given, penalty=LengthPenalty(penalty))
        return beam_search(*given, width=beam, penalty=LengthPenalty(penalty), stop=stop)


def test_a_sentence_is_cut_at_its_own_limit(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe())
    engine, sources = converted(run), encoded(run)
    together = engine.translate(sources, [4 + place for place in range(9)], stop="beam-full", hypotheses=3)
    alone = [
        engine.translate([ids], [4 + place], stop="beam-full", hypotheses=3)[0] for place, ids in enumerate(sources)
    ]
    assert [[one.tokens for one in row] for row in together] == [[one.tokens for one in row] for row in alone]
    assert all(len(one.tokens) + one.ended <= 4 + place for place, row in enumerate(together) for one in row)


@pytest.mark.parametrize(("quantization", "gap"), [("int8", 0.5), ("int16", 0.05)])
def test_quantized_weights_are_smaller_and_nearly_as_good(
    quantization: Any, gap: float, tmp_path: Path, capfd: Any
) -> None:
    run = random_run(tmp_path / "run", random_recipe({"width": 64}))
    plain, small = converted(run), open_engine(run, quantization, workers=1)
    sizes = [(engine_folder(run, kind) / "model.bin").stat().st_size for kind in ("float32", quantization)]
    assert sizes[1] < 0.8 * sizes[0]  # the table of positions stays as it is
    sources = encoded(run)
    gaps = torch.cat([torch.tensor(one) for one in plain.score(sources, sources)]) - torch.cat(
        [torch.tensor(one) for one in small.score(sources, sources)]
    )
    assert 0 < gaps.abs().mean() < gap  # of log-probabilities around -8; noise is harder on int8 than what is learnt
    assert not capfd.readouterr().err


def test_conversion_happens_once_and_again_when_the_weights_change(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe())
    folder = engine_folder(run, "float32")
    converted(run)
    first = (folder / "model.bin").stat()
    converted(run)
    assert (folder / "model.bin").stat().st_mtime_ns == first.st_mtime_ns
    before = read_mark(folder)["fingerprint"]
    run.write_weights({name: weight + 1 for name, weight in run.load_model().named_parameters()})
    converted(run)
    assert read_mark(folder)["fingerprint"] != before
    assert not [path for path in run.folder.iterdir() if path.name.startswith(".ctranslate2")]


def test_what_the_positions_do_not_reach_is_refused(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe({"positional_encoding": "learned", "max_positions": 20}))
    engine = converted(run)
    with pytest.raises(ModelError, match="a sentence has 31 tokens, more than the 20 positions"):
        engine.translate([[5] * 30], [70])
    [[best]] = engine.translate([[5] * 19], [70], beam_size=2)
    assert len(best.tokens) <= 20


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="export the run again"):
        Engine(tmp_path / "empty", *run.tokenizers)


def test_a_converted_run_translates_without_torch(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe())
    export_run(run, "ctranslate2", engine_folder(run, "int8"), quantization="int8")
    code = (
        "import sys; from regard.tasks.translate.engine import open_engine; from regard.run import Run\n"
        f"run = Run.open({str(run.folder)!r}); engine = open_engine(run, 'int8')\n"
        "[[best]] = engine.translate([run.tokenizers[0].encode('I am trendy')], [20])\n"
        "run.tokenizers[1].decode(best.tokens); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
