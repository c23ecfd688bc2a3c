"""What can go where."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.config.recipe import make_recipe
from regard.errors import SettingsError
from regard.export import complete_options, exportable, folder_name, require_exportable
from regard.registry import EXPORTS, IMPORTS
from tests.export.runs import random_recipe, random_run

TRANSLATORS = [name for name in EXPORTS if name != "word2vec"]
EVERYWHERE = dict.fromkeys(TRANSLATORS, "") | {
    "pegasus": 'model.norm = "post"; Pegasus normalizes before each sub-layer'
}
"""Where a post-norm Transformer with sinusoids can go."""

REFUSED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "norm before": ({"model": {"norm": "pre"}}, {"marian"}),
    "rotary": ({"model": {"positional_encoding": "rotary"}}, {"marian"}),
    "learned": ({"model": {"positional_encoding": "learned"}}, {"marian"}),
    "concatenate": ({"model": {"position_mode": "concatenate"}}, {"marian"}),
    "swiglu": ({"model": {"activation": "swiglu"}}, {"marian"}),
    "wide heads": ({"model": {"head_width": 96}}, {"marian"}),
    "words": ({"tokenizer": {"kind": "word"}}, {"marian"}),
    "lowercase": ({"tokenizer": {"lowercase": True}}, {"marian"}),
    "window": ({"model": {"attention_window": 8}}, {"marian", "ctranslate2", "onnx"}),
    "experts": ({"model": {"arch": "transformer-moe"}}, {"marian", "ctranslate2", "onnx"}),
    "pictures": (
        {"data": {"task": "caption"}, "pictures": {"images": "some.zip"}, "model": {"arch": "transformer-small"}},
        {"marian", "ctranslate2", "onnx"},
    ),
    "recurrent": ({"model": {"arch": "bahdanau"}}, {"marian", "ctranslate2", "onnx"}),
    "ConvS2S": ({"model": {"arch": "convs2s"}}, {"marian", "ctranslate2", "onnx"}),
    "ByteNet": ({"model": {"arch": "bytenet"}}, {"marian", "ctranslate2", "onnx"}),
    "Deep-Att": ({"model": {"arch": "deep-att"}}, {"marian", "ctranslate2", "onnx"}),
}


@pytest.mark.parametrize("arch", ["transformer-small", "transformer-base", "transformer-big"])
def test_the_papers_transformer_goes_everywhere(arch: str) -> None:
    assert exportable(make_recipe({"model": {"arch": arch}})) == EVERYWHERE


@pytest.mark.parametrize("case", REFUSED)
def test_what_stands_in_the_way(case: str) -> None:
    table, formats = REFUSED[case]
    recipe = make_recipe(table)
    reasons = exportable(recipe)
    assert {name for name, reason in reasons.items() if reason} - {"pegasus"} == formats
    with pytest.raises(SettingsError, match="cannot be exported to marian: "):
        require_exportable(recipe, "marian")


def test_a_head_width_that_changes_nothing_is_no_obstacle() -> None:
    assert exportable(make_recipe({"model": {"width": 256, "heads": 4, "head_width": 64}})) == EVERYWHERE


@pytest.mark.parametrize("arch", ["bahdanau", "convs2s", "bytenet"])
def test_the_reason_names_the_architecture(arch: str) -> None:
    reasons = [reason for reason in exportable(make_recipe({"model": {"arch": arch}})).values() if reason]
    assert len(reasons) >= 4
    assert all(reason.endswith(f'model.arch is "{arch}"') for reason in reasons)


def test_options_are_checked_and_completed() -> None:
    assert complete_options("ctranslate2", {}) == {"quantization": "float32"}
    assert folder_name("ctranslate2", {"quantization": "int8"}) == "ctranslate2-int8"
    assert folder_name("onnx", complete_options("onnx", {})) == "onnx"
    with pytest.raises(SettingsError, match="quantization int4: choose from float32, int16, int8"):
        complete_options("ctranslate2", {"quantization": "int4"})
    with pytest.raises(SettingsError, match="onnx has no option speed; no format has such an option"):
        complete_options("onnx", {"speed": "high"})
    with pytest.raises(SettingsError, match=r'no export format marain; did you mean "marian"'):
        complete_options("marain", {})


@pytest.mark.parametrize("module", ["regard.export", *EXPORTS.values(), *IMPORTS.values()])
def test_asking_imports_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


NEW_FORMAT = """
from regard.export import Option, export_folder
from regard.registry import EXPORTS

EXPORTS["toy"] = __name__
NEEDS = ()
OPTIONS = {"ending": Option(("txt", "md"), "ending of the file")}

def obstacle(recipe):
    return "toys learn no words" if recipe.tokenizer.kind == "word" else ""

def write(run, folder, log, *, ending):
    with export_folder(run, folder, {"format": "toy"}) as draft:
        (draft / f"weights.{ending}").write_text(str(len(run.load_model().state_dict())))
    log("done")
"""


def test_a_format_is_one_file_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command offers it with its options, and recipes say whether they can be exported to it."""
    (tmp_path / "toy_export.py").write_text(NEW_FORMAT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(EXPORTS, "toy", "")  # removed again at the end
    import_module("toy_export")
    run = random_run(tmp_path / "run", random_recipe())
    assert main(["export", str(run.folder), "--to", "toy", "--ending", "md"]) == 0
    assert (run.folder / "toy-md" / "weights.md").is_file()
    assert capsys.readouterr().out.startswith("done\n")
    assert main(["export", str(run.folder), "--to", "onnx", "--ending", "md"]) == 2
    assert "onnx has no option ending; it is an option of toy" in capsys.readouterr().err
    assert exportable(make_recipe({"tokenizer": {"kind": "word"}}))["toy"] == "toys learn no words"
