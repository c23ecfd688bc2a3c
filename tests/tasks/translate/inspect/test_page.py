"""The data of an inspection, for every kind of model, and the command that writes its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import config, models
from regard.cli import main
from regard.data.builtin import read_phrases
from regard.decoding.penalties import LengthPenalty
from regard.errors import SettingsError
from regard.run import Run
from regard.tasks.translate.inspect.page import _scoring, inspection
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import Tokenizer, train_tokenizer
from tests.toys import TOYS, VARIANTS, toy

TEXT, TARGET = "I take a shower.", "Faccio la doccia."
PHRASES = read_phrases()[:200]


@pytest.fixture(scope="module")
def tokens() -> Tokenizer:
    lines = [text for phrase in PHRASES for text in (phrase.source, phrase.target)]
    return train_tokenizer(lines, config.TokenizerSettings(vocab_size=300), seed=1)


def translator(tokens: Tokenizer, model: config.ModelSettings, **search: Any) -> Translator:
    """Untrained, but with real words."""
    torch.manual_seed(1)
    built = models.build(model, source_vocabulary=tokens.size, target_vocabulary=tokens.size).eval()
    return Translator(built, tokens, tokens, config.SearchSettings(**search))


@pytest.fixture(scope="module")
def whole(tokens: Tokenizer) -> dict[str, Any]:
    """Everything about a sentence that a Transformer translated by itself, as JSON."""
    search = {"beam_size": 3, "min_length": 4, "max_length_ratio": 1.0, "max_length_extra": 2}
    found = inspection(translator(tokens, toy("transformer-tiny"), **search), TEXT)
    return json.loads(json.dumps(found, allow_nan=False))


def shape(matrix: Any) -> tuple[int, ...]:
    return (len(matrix), *shape(matrix[0])) if isinstance(matrix, list) else ()


def test_attentions_are_named_and_have_the_sizes_of_the_sentences(whole: dict[str, Any]) -> None:
    sizes = {"source": len(whole["source"]["tokens"]), "target": len(whole["target"]["tokens"])}
    sizes["prefix"] = sizes["target"]
    facts = {part["name"]: (part["kind"], part["layer"], part["rows"], part["columns"]) for part in whole["attention"]}
    assert facts["encoder.2.self"] == ("encoder", 2, "source", "source")
    assert facts["decoder.1.self"] == ("decoder", 1, "target", "prefix")
    assert facts["decoder.0.cross"] == ("cross", 0, "target", "source")
    assert len(facts) == 3 + 2 * 2
    for part in whole["attention"]:
        heads = len(part["weights"])
        assert shape(part["weights"]) == (heads, sizes[part["rows"]], sizes[part["columns"]])
        assert all(sum(row) == pytest.approx(1.0, abs=0.01) for head in part["weights"] for row in head)
        assert len(part["entropy"]) == len(part["effective"]["dimension"]) == heads


def test_effective_weights_are_there_only_where_they_differ(whole: dict[str, Any]) -> None:
    """The toy's heads are 4 wide, and the sentence is longer: by Brunner et al. (2020) S - 4 dimensions are free."""
    [part] = [part for part in whole["attention"] if part["name"] == "encoder.0.self"]
    free = len(whole["source"]["tokens"]) - part["head_width"]
    assert part["head_width"] == 4
    assert free > 0
    assert set(part["effective"]["dimension"]) == {free}
    assert shape(part["effective"]["weights"]) == shape(part["weights"])
    assert "than dimensions of a head (4)" in part["effective"]["warning"]


def test_raw_weights_stand_for_effective_ones_in_a_short_sentence(tokens: Tokenizer) -> None:
    found = inspection(translator(tokens, toy("transformer-tiny", width=64, head_width=32)), TEXT, TARGET, quick=True)
    for part in found["attention"]:
        assert set(part["effective"]["dimension"]) == {0}
        assert part["effective"]["weights"] is None


def test_next_tokens_agree_with_what_was_written(whole: dict[str, Any]) -> None:
    table, written = whole["next"], whole["next"]["written"]
    assert len(written) == len(whole["target"]["tokens"])
    for row, (token, own) in enumerate(zip(whole["target"]["tokens"], written, strict=True)):
        if own["rank"] <= len(table["best"][row]):
            column = table["best"][row][own["rank"] - 1]
            assert table["tokens"][column] == token
            assert table["probability"][row][column] == pytest.approx(own["probability"], abs=1e-4)
    assert whole["translation"]["log_prob"] < 0


def test_the_search_leads_to_the_translation(whole: dict[str, Any]) -> None:
    nodes = {node["id"]: node for node in whole["tree"]["nodes"]}
    best = max((node for node in nodes.values() if node["fate"] == "finished"), key=lambda node: node["score"])
    assert whole["translation"]["score"] == pytest.approx(best["score"], abs=1e-3)
    path = []
    while best:
        path.append(best["token"])
        best = nodes.get(best["parent"])
    assert [token for token in path[::-1] if token != "</s>"] == whole["target"]["tokens"][:-1]


def test_attribution_planes_mixing_and_positions(whole: dict[str, Any]) -> None:
    source, target = (len(whole[side]["tokens"]) for side in ("source", "target"))
    names = [method["name"] for method in whole["attribution"]["methods"]]
    assert names == ["attention", "rollout", "gradient", "integrated", "occlusion", "alti"]
    for method in whole["attribution"]["methods"]:
        assert shape(method["source"]) == (target, source)
        assert shape(method["target"]) == (target, target)
    assert [plane["name"] for plane in whole["planes"]] == [
        "vocabulary", "with position", "layer 0", "layer 1", "layer 2", "top",
    ]  # fmt: skip
    assert shape(whole["planes"][0]["target"]["points"]) == (target, 2)
    layers = whole["mixing"]["layers"]
    assert [layer["name"] for layer in layers][::4] == ["encoder.embed", "encoder.top"]
    assert layers[0]["own_mean"] == 1.0  # the input itself: the identity
    assert layers[-1]["own_mean"] < 1.0
    assert whole["positions"]["kind"] == "sinusoidal"
    assert whole["positions"]["rows"][1][:2] == [0.841, 0.54]  # the lectures: sin 1, cos 1


@pytest.mark.parametrize("arch", ["seq2seq-lstm", "bahdanau", "luong-dot"])
def test_recurrent_models_show_what_they_have(tokens: Tokenizer, arch: str) -> None:
    found = inspection(translator(tokens, TOYS[arch]), TEXT, TARGET)
    assert [part["name"] for part in found["attention"]] == ([] if arch.startswith("seq2seq") else ["decoder.cross"])
    assert [part["layer"] for part in found["attention"]] in ([], [None])
    assert found["positions"] is None
    assert found["tree"] is None
    assert found["translation"]["given"]
    assert {"gradient", "occlusion"} <= {method["name"] for method in found["attribution"]["methods"]}
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_of_position_is_drawn_or_left_out(tokens: Tokenizer, name: str) -> None:
    found = inspection(translator(tokens, VARIANTS[name]), TEXT, TARGET, quick=True)
    kind = found["positions"] and found["positions"]["kind"]
    expected = {"learned positions": "learned", "rotary positions": "rotary", "no positions": None}
    assert kind == expected.get(name, "sinusoidal")
    assert "attribution" not in found


def test_roles_and_faithfulness_are_taken_over(tokens: Tokenizer) -> None:
    evidence = {"share": 0.98765, "baseline": 0.2, "low": 0.9, "high": 1.0, "count": 50}
    role = {"kind": "positional", "name": "-1", "evidence": evidence}
    head = {"attention": "encoder.0.self", "head": 1, "roles": [role], "confidence": 0.91234, "ablation": 0.1}
    found = inspection(
        translator(tokens, toy("transformer-tiny")),
        TEXT,
        TARGET,
        heads=[head, head | {"head": 2, "roles": []}],
        faithfulness={"rows": [], "sentences": 9, "verdict": "so"},
    )
    assert found["roles"][0] == {
        "name": "encoder.0.self", "head": 1, "confidence": 0.912, "ablation": 0.1, "role": "positional", "of": "-1",
        "share": 0.988, "baseline": 0.2,
    }  # fmt: skip
    assert found["roles"][1]["role"] is None
    assert found["start"] is None  # no head was found to align words
    assert found["attribution"]["faithfulness"]["sentences"] == 9


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (" ", None, "the sentence is empty"),
        (TEXT, "  ", "the target is empty"),
        ("a shower " * 200, None, r"the sentence has [0-9,]+ tokens, more than search.max_source_tokens = 250"),
        (TEXT, "la doccia " * 200, r"the target has [0-9,]+ tokens"),
    ],
)
def test_what_cannot_be_shown_is_refused(tokens: Tokenizer, text: str, target: str | None, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        inspection(translator(tokens, toy("transformer-tiny")), text, target)


# ---------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture(scope="module")
def folder(tokens: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained run."""
    recipe = config.Recipe(
        data=config.DataSettings(source_language="en", target_language="it"),
        tokenizer=config.TokenizerSettings(vocab_size=300, joint=True),
        model=toy("transformer-tiny"),
        search=config.SearchSettings(beam_size=2, min_length=2, max_length_ratio=1.0, max_length_extra=1),
    )
    run = Run.create(tmp_path_factory.mktemp("runs") / "small")
    run.write_recipe(recipe)
    run.write_tokenizers(tokens, tokens)
    run.write_sizes(source_vocabulary=tokens.size, target_vocabulary=tokens.size)
    torch.manual_seed(1)
    run.write_weights(dict(run.build_network().named_parameters()))
    return run.folder


def test_the_page_is_written_and_an_earlier_one_replaced(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("Faccio la doccia.", "La doccia."):
        assert main(["inspect", str(folder), TEXT, "--target", target, "--quick"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"{target}\n")
        assert "inspect.html" in said
        page = Path("inspect.html").read_text(encoding="utf-8")
        assert f'"text":"{target}"' in page
        assert "<title>I take a shower. · Regard</title>" in page
    assert '"run":"small"' in page
    assert '"languages":{"source":"en","target":"it"}' in page


def test_another_file_is_replaced_only_by_force(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "thesis.html"
    file.write_text("<p>years of work</p>", encoding="utf-8")
    arguments = ["inspect", str(folder), TEXT, "--target", TARGET, "--quick", "--out", str(file)]
    assert main(arguments) == 2
    assert "exists and was not made by regard inspect; choose another --out, or add --force" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "<p>years of work</p>"
    assert main([*arguments, "--force"]) == 0
    assert "regard inspect" in file.read_text(encoding="utf-8")


def test_json_is_printed_and_nothing_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.it").write_text("Faccio\nla doccia.\n", encoding="utf-8")
    assert main(["inspect", str(folder), TEXT, "--target", "given.it", "--quick", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["target"]["text"] == "Faccio la doccia."
    assert data["model"]["arch"] == "transformer-tiny"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.it"]


def test_roles_kept_in_the_run_are_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = folder / "heads.json"
    head = {"attention": "encoder.0.self", "head": 0, "roles": [], "confidence": 0.5, "ablation": 0.0}
    command = ["inspect", str(folder), TEXT, "--target", TARGET, "--quick", "--json"]
    try:
        kept.write_text(json.dumps({"heads": [head]}), encoding="utf-8")
        assert main(command) == 0
        assert len(json.loads(capsys.readouterr().out)["roles"]) == 1
        for broken in ("{", "[]", '{"run": 1}'):
            kept.write_text(broken, encoding="utf-8")
            assert main(command) == 2
            assert "heads.json: " in capsys.readouterr().err
    finally:
        kept.unlink()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}", "  "], "there is no text to inspect"),
        (["{run}x", TEXT], "there is no such run folder"),
        (["{run}", TEXT, "--out", "nowhere/page.html"], "there is no folder nowhere"),
        (["{run}", TEXT, "--out", "{run}"], "a folder; give the name of a file"),
        (["{run}", "a shower " * 200], "inspect one sentence at a time"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", *(word.format(run=folder) for word in arguments)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ({}, "its log-probability divided by length, with the end token counted."),
        ({"length_penalty": 1.4}, "its log-probability divided by length^1.4, with the end token counted."),
        ({"length_penalty": 0.0}, "its log-probability."),
        (
            {"length_penalty": 0.6, "length_penalty_form": "gnmt", "coverage_penalty": 0.2},
            "divided by ((5 + length) / 6)^0.6, with the end token counted, plus 0.2 times the coverage penalty.",
        ),
    ],
)
def test_the_caption_of_the_search_says_what_the_search_does(search: dict[str, Any], expected: str) -> None:
    settings = config.SearchSettings(**search)
    assert _scoring(settings).endswith(expected)
    if not settings.coverage_penalty:  # the formula, computed by hand, is the divisor that the search uses
        base = {"plain": 7.0, "gnmt": 2.0}[settings.length_penalty_form]
        divisor = LengthPenalty(settings.length_penalty, settings.length_penalty_form).divisor(7)
        assert divisor.item() == pytest.approx(base**settings.length_penalty)
