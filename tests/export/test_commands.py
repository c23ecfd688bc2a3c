"""`regard export` and `regard import` as a user meets them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.cli import main
from regard.run import Run
from tests.export.runs import random_recipe, random_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return random_run(tmp_path_factory.mktemp("commands") / "run", random_recipe())


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_there_and_back(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "export", str(run.folder), "--to", "marian", "--out", str(tmp_path / "m"))
    assert code == 0
    assert out.startswith(f"{tmp_path / 'm'}: marian, ")
    assert {path.name for path in (tmp_path / "m").iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "source.spm", "target.spm", "vocab.json",
        "tokenizer_config.json", "export.json",
    }  # fmt: skip
    code, out, _ = said(capsys, "import", "marian", str(tmp_path / "m"), "--out", str(tmp_path / "back"))
    assert code == 0
    assert f"regard translate {tmp_path / 'back'}" in out
    assert said(capsys, "info", str(tmp_path / "back"))[0] == 0
    (tmp_path / "in.en").write_text("I am trendy\n")
    translations = [
        said(capsys, "translate", str(folder), str(tmp_path / "in.en"))[:2]
        for folder in (run.folder, tmp_path / "back")
    ]
    assert translations[0] == translations[1]


def test_import_suggests_the_command_of_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = random_run(tmp_path / "made", random_recipe(data={"task": "chat"}))
    monkeypatch.setattr("regard.cli.export.import_model", lambda *_: made)
    code, out, _ = said(capsys, "import", "marian", str(tmp_path), "--out", str(tmp_path / "out"))
    assert code == 0
    assert out == f'the run is in {made.folder}; try "regard chat {made.folder}"\n'


def test_what_the_other_cannot_say_of_a_search_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = {"length_penalty_form": "gnmt", "coverage_penalty": 0.2, "stop": "exact", "no_repeat_ngram_size": 3}
    run = random_run(tmp_path / "run", random_recipe(search=search))
    code, out, _ = said(capsys, "export", str(run.folder), "--to", "marian", "--out", str(tmp_path / "m"))
    assert code == 0
    assert out.splitlines()[0] == (
        "not exported, because `generate` of transformers has no such setting: "
        'search.length_penalty_form = "gnmt", search.coverage_penalty = 0.2'
    )
    change("generation_config.json", early_stopping=False, do_sample=True)(tmp_path / "m")
    code, out, _ = said(capsys, "import", "marian", str(tmp_path / "m"), "--out", str(tmp_path / "back"))
    assert code == 0
    assert out.splitlines()[0] == (
        "not imported, because Regard has no such setting: do_sample = true, early_stopping = false"
    )
    assert Run.open(tmp_path / "back").recipe.search.no_repeat_ngram_size == 3


def test_a_converted_model_lies_in_the_run(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2")
    arguments = ("export", str(run.folder), "--to", "ctranslate2", "--quantization", "int8")
    code, out, _ = said(capsys, *arguments)
    assert code == 0
    assert out.startswith(f"{run.folder / 'ctranslate2-int8'}: ctranslate2, ")
    assert "give --source and --target to measure the effect of quantization" in out
    for side in ("source", "target"):
        (tmp_path / side).write_text("I am trendy\nHe reads a book\n")
    code, out, _ = said(capsys, *arguments, "--source", str(tmp_path / "source"), "--target", str(tmp_path / "target"))
    assert code == 0
    assert re.search(r"BLEU on 2 sentences: float32 \d+\.\d\d, int8 \d+\.\d\d \([+-]\d+\.\d\d\)", out)
    assert (run.folder / "ctranslate2-int8" / "model.bin").is_file()
    assert (run.folder / "ctranslate2-int8" / "source.model").is_file()  # whoever takes the folder away can use it
    (tmp_path / "target").write_text("one line\n")
    elsewhere = ("--out", str(tmp_path / "elsewhere"))
    code, out, err = said(
        capsys, *arguments, *elsewhere, "--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")
    )
    assert (code, out) == (2, "")
    assert "ends here" in err
    assert not (tmp_path / "elsewhere").exists()


BAD_EXPORTS = {
    "no run": (["{d}/none", "--to", "onnx"], "there is no such run folder"),
    "no format": (["{run}"], "--to"),
    "unknown format": (["{run}", "--to", "onx"], "invalid choice: 'onx'"),
    "quantized marian": (
        ["{run}", "--to", "marian", "--quantization", "int8"],
        "marian has no option quantization; it is an option of ctranslate2",
    ),
    "nothing to measure": (
        ["{run}", "--to", "onnx", "--source", "{d}/a"],
        "--source measures the effect of",
    ),
    "taken": (["{run}", "--to", "marian", "--out", "{d}/taken"], "choose another folder with --out"),
    "impossible": (
        ["{window}", "--to", "ctranslate2"],
        "cannot be exported to ctranslate2: model.attention_window = 4",
    ),
}


@pytest.mark.parametrize("case", BAD_EXPORTS)
def test_bad_exports(case: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    window = random_run(tmp_path / "window", random_recipe({"attention_window": 4}))
    before = sorted(tmp_path.rglob("*"))
    arguments, message = BAD_EXPORTS[case]
    filled = [word.format(d=tmp_path, run=run.folder, window=window.folder) for word in arguments]
    code, _, err = said(capsys, "export", *filled)
    assert code == 2
    assert message in err.strip().splitlines()[-1]
    assert sorted(tmp_path.rglob("*")) == before


def change(name: str, **values: object) -> Callable[[Path], None]:
    """Change a JSON file of the folder."""

    def apply(folder: Path) -> None:
        table = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**table, **values}))

    return apply


def drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def damage(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(b"nonsense") and None


BAD_IMPORTS = {
    "no configuration": (drop("config.json"), "has no config.json"),
    "no vocabulary": (drop("vocab.json"), "vocab.json: cannot be read"),
    "no weights": (drop("model.safetensors"), "neither model.safetensors nor pytorch_model.bin"),
    "no subwords": (drop("source.spm"), "source.spm"),
    "damaged weights": (damage("model.safetensors"), "damaged"),
    "damaged subwords": (damage("target.spm"), "not a SentencePiece model"),
    "damaged vocabulary": (damage("vocab.json"), "vocab.json: not JSON"),
    "another model": (change("config.json", model_type="bart"), 'model_type = "bart"'),
    "unscaled": (change("config.json", scale_embedding=False), "scale_embedding = false"),
    "norm before": (change("config.json", normalize_before=True), "normalize_before = true"),
    "uneven heads": (change("config.json", decoder_attention_heads=2), "decoder_attention_heads in config.json differ"),
    "unknown activation": (change("config.json", activation_function="mish"), 'model.activation cannot be "mish"'),
    "fewer layers": (change("config.json", encoder_layers=1), "no model with these settings has the weights"),
    "more layers": (change("config.json", decoder_layers=3), 'the weights "model.decoder.layers.2.'),
    "a gap in the ids": (change("vocab.json", new=9999), "do not run from 0"),
    "too many tokens": (change("vocab.json", new=420), "421 tokens but 420 embedding rows"),
    "no such start": (change("config.json", decoder_start_token_id=420), "decoder_start_token_id = 420"),
    "a width of words": (change("generation_config.json", num_beams="4"), 'num_beams = "4" must be a number'),
    "missing setting": (lambda folder: (folder / "config.json").write_text("{}") and None, 'config.json has no "'),
}


@pytest.mark.parametrize("case", BAD_IMPORTS)
def test_bad_imports(case: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, message = BAD_IMPORTS[case]
    assert said(capsys, "export", str(run.folder), "--to", "marian", "--out", str(tmp_path / "m"))[0] == 0
    spoil(tmp_path / "m")
    code, _, err = said(capsys, "import", "marian", str(tmp_path / "m"), "--out", str(tmp_path / "run"))
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "import", "marian", str(tmp_path / "none"))
    assert code == 2
    assert "there is no such folder" in err
