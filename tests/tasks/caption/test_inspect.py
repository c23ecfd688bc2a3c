"""What people see of captions: inspection, report, API and the pointing game, on a small run of drawings."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regard.cli import demo, main
from regard.config import PictureSettings
from regard.data.drawings import read_drawings
from regard.data.pictures import read_picture, to_png
from regard.errors import SettingsError
from regard.run import Run
from regard.tasks.api import FieldError
from regard.tasks.caption import api
from regard.tasks.caption.captioner import CaptionAttention, Captioner, load
from regard.tasks.caption.inspect import look_at, measure, named_words, show_picture
from regard.tasks.caption.pointing import measure_pointing
from tests.small_pictures import SETTINGS

torch = pytest.importorskip("torch")
DRAWING = read_drawings("test")[0]
CONTENT = to_png(DRAWING.draw())
OWN = [
    "pictures.size=[48,48]", "pictures.patch_size=8", "tokenizer.kind=word", "tokenizer.vocab_size=60",
    "train.max_steps=6", 'caption.languages=["en"]', "caption.retrieval_pictures=5", "caption.batch_pictures=100",
    "search.max_length_extra=12", "data.valid_size=40", "data.test_size=40", "train.validation_sentences=5",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained for a moment, and a picture."""
    made = tmp_path_factory.mktemp("captions")
    (made / "star.png").write_bytes(CONTENT)
    arguments = ["train", "--task", "caption", "shapes:valid", "--images", "shapes", "--out", str(made / "run")]
    own = {setting.partition("=")[0]: setting for setting in (*SETTINGS, *OWN)}
    assert main(arguments + [word for setting in own.values() for word in ("--set", setting)]) == 0
    return made


@pytest.fixture(scope="module")
def captioner(folder: Path) -> Captioner:
    return load(folder / "run")


def data_of(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    return found


def test_the_page_has_maps_of_all_words_layers_and_heads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = folder / "page.html"
    assert main(["inspect", str(folder / "run"), str(folder / "star.png"), "--out", str(page)]) == 0
    data = data_of(page)
    assert capsys.readouterr().out.startswith(data["title"])
    assert len(data["looks"]) == 2  # search.beam_size
    best, other = data["looks"]
    assert best["text"] == data["title"] == " ".join(word["text"] for word in best["words"])
    assert best["score"] >= other["score"]
    assert "layers" not in other
    maps, heads = np.array(best["maps"]), [np.array(layer["heads"]) for layer in best["layers"]]
    assert maps.shape == (len(best["words"]), 6, 6)
    assert [layer["name"] for layer in best["layers"]] == ["decoder.0.cross"]
    assert heads[0].shape == (2, *maps.shape)
    assert np.allclose(maps, heads[0].mean(0), atol=2e-4)
    assert np.allclose(maps.sum((1, 2)), 1, atol=5e-3)
    shown = base64.b64decode(data["picture"].partition(",")[2])
    assert (read_picture(shown, "", PictureSettings(size=(48, 48))) == DRAWING.draw()).all()


def test_a_given_caption_is_explained(folder: Path, captioner: Captioner, capsys: pytest.CaptureFixture[str]) -> None:
    text = "a red star"
    assert main(["inspect", str(folder / "run"), str(folder / "star.png"), "--target", text, "--json"]) == 0
    [look] = json.loads(capsys.readouterr().out)["looks"]
    assert [word["text"] for word in look["words"]] == text.split()
    [score] = captioner.score(CONTENT, [text])
    assert look["score"] == pytest.approx(score, abs=1e-4)
    seen = captioner.look(CONTENT, text)
    assert np.mean(seen.log_probs) == pytest.approx(score, abs=1e-4)
    assert [word["probability"] for word in look["words"]] == pytest.approx(np.exp(seen.log_probs[:3]), abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["{run}"], "there is no picture to inspect; give one, or --measure"),
        (["{run}", "gone.png"], "gone.png: no such file; give the name of a picture"),
        (["{run}", "{run}/recipe.toml"], "not a picture in a known format"),
        (["{run}", "{star}", "--language", "fr"], 'the run does not know the language "fr"'),
        (["{run}", "{star}", "--context", "Hello"], "--context is for conversations"),
        (["{run}", "--measure", "--pairs", "x.tsv"], "only known for the built-in drawings"),
    ],
)
def test_bad_input(
    folder: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    given = [one.format(run=folder / "run", star=folder / "star.png") for one in arguments]
    assert main(["inspect", *given, "--out", str(page)]) == 2
    assert problem in capsys.readouterr().err
    assert not page.exists()


def test_words_of_several_tokens() -> None:
    """The word "stars" has two tokens, and the space before it belongs to the first one."""
    spans, maps = ((0, 3), (3, 8), (8, 9), (9, 9)), torch.eye(4).view(4, 2, 2)
    seen = CaptionAttention("two stars", "", ("▁two", "▁star", "s", "</s>"), spans, (-1.0,) * 4, maps, {})
    assert [seen.tokens_in(*span) for span in ((0, 3), (4, 9), (4, 8))] == [[0], [1, 2], [1]]
    assert [(word.text, word.start) for word in named_words("a red-blue star (big)")] == [
        ("a", 0), ("red", 2), ("blue", 6), ("star", 11), ("big", 17),
    ]  # fmt: skip


def test_a_large_picture_is_shown_with_more_pixels_than_the_model_reads() -> None:
    settings = PictureSettings(size=(48, 48))
    for size, shown in ((30, 48), (100, 144), (2000, 384)):
        url = show_picture(to_png(DRAWING.draw(size)), settings)
        content = base64.b64decode(url.partition(",")[2])
        assert read_picture(content, "", PictureSettings(size=(shown, shown))).shape == (3, shown, shown)
        assert int.from_bytes(content[16:20], "big") == shown  # the width in the header of a PNG file


class Looker:
    """Has the largest weight of each word where `place` says: [rows, columns] of one drawing after the other."""

    def __init__(self, place: Any):
        self.place, self.seen = place, -1

    def language(self, wanted: str) -> str:
        return wanted

    def look(self, pixels: Any, text: str, language: str) -> CaptionAttention:
        self.seen += 1
        drawing = read_drawings("test")[self.seen]
        assert (pixels.transpose(2, 0, 1) == drawing.draw()).all()
        words = text.split()
        ends = np.cumsum([len(word) + 1 for word in words])
        spans = tuple((int(end) - 1 - len(word), int(end) - 1) for word, end in zip(words, ends, strict=True))
        groups = drawing.captions["en"][0].groups
        maps = torch.stack([torch.from_numpy(self.place(drawing, group)).double() for group in groups])
        return CaptionAttention(text, language, tuple(words), spans, (0.0,) * len(words), maps, {"one": maps[None]})


def gold(drawing: Any, group: int | None) -> Any:
    return drawing.place(group or 0, 48).reshape(6, 8, 6, 8).mean((1, 3))


def wrong(drawing: Any, group: int | None) -> Any:
    return gold(drawing, 1 - (group or 0)) if drawing.place(1).any() else 1.0 - gold(drawing, group).astype(bool)


def test_the_pointing_game() -> None:
    best = measure_pointing(Looker(gold), 40)  # type: ignore[arg-type]
    assert (best.drawings, best.hits, best.right, best.by_layer) == (40, 1.0, 1.0, {"one": 1.0})
    assert 0.02 < best.chance < 0.5
    assert best.words == sum(
        group is not None for one in read_drawings("test")[:40] for group in one.captions["en"][0].groups
    )
    worst = measure_pointing(Looker(wrong), 40)  # type: ignore[arg-type]
    assert (worst.hits, worst.right) == (0.0, 0.0)


def test_pointing_is_measured_by_a_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder / "run"), "--measure", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drawings"] == 30
    assert 0 <= found["hits"] <= 1


def test_runs_of_other_pictures_are_not_measured() -> None:
    other = SimpleNamespace(folder="runs/emoji", recipe=SimpleNamespace(pictures=PictureSettings(images="emoji.zip")))
    with pytest.raises(SettingsError, match="runs/emoji: --measure is for runs that were trained on the built-in"):
        measure(other, "", 30, print)  # type: ignore[arg-type]


def test_the_report_shows_held_out_pictures(folder: Path) -> None:
    data = data_of(folder / "run" / "report.html")
    scores = Run.open(folder / "run").card["scores"]["test"]
    assert data["summary"][0]["value"] == f"{scores['bleu']:.1f}"
    assert 20 <= len(data["captioned"]) <= 24
    for shown in data["captioned"]:
        assert shown["picture"].startswith("data:image/png;base64,")
        assert len(shown["look"]["maps"]) == len(shown["look"]["words"])
        assert shown["references"]


def request(**fields: Any) -> api.Request:
    return api.Request(**({"pictures": base64.b64encode(CONTENT).decode()} | fields))


def test_the_api_answers_like_the_captioner(captioner: Captioner) -> None:
    first, second = api.answer(captioner, [request(nbest=2), request(nbest=2, look=True)])
    [expected] = captioner.caption([CONTENT], nbest=2)
    assert first == expected.as_dict()
    assert len(second["alternatives"]) == 1
    look = look_at(captioner, CONTENT, expected.text, "en")
    assert (second["words"], second["maps"]) == (look["words"], look["maps"])
    assert second["picture"].startswith("data:image/png;base64,")
    assert api.batch_key(request()) == api.batch_key(request(look=True)) != api.batch_key(request(nbest=2))
    sampled = request(search={"beam_size": 1})
    assert api.batch_key(sampled) != api.batch_key(request())


def test_the_api_refuses_what_it_cannot_answer(captioner: Captioner) -> None:
    text = base64.b64encode(b"no picture").decode()
    with pytest.raises(FieldError, match=r"^pictures: not a picture in a known format"):
        api.answer(captioner, [request(pictures=text)])
    torn = base64.b64encode(CONTENT[:-40]).decode()
    first, second = request(pictures=[request().pictures, torn]).split()
    with pytest.raises(FieldError, match=r"^pictures\.1: a damaged picture"):
        api.answer(captioner, [first, second])
    with pytest.raises(FieldError, match=r'^language: the model does not write "fr"; it knows en'):
        api.answer(captioner, [request(language="fr")])


def test_facts(folder: Path) -> None:
    assert api.facts(Run.open(folder / "run")) == {"languages": ["en"], "nbest": 2}


def test_the_demo_prints_captions_and_writes_their_pictures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "TESTED", 12)
    score, counted, pointing = demo.show_captions(Run.open(folder / "run"))
    assert score.startswith("[bold]0[/] of 12 captions are right")  # it was trained for a moment
    assert (counted, pointing[:14]) == ("pictures with combinations of shapes and colors", "In 50 drawings")
    assert (folder / "run-pictures" / "1.png").read_bytes() == CONTENT
    assert len(list((folder / "run-pictures").iterdir())) == 12
    assert f"reference: {DRAWING.captions['en'][0].text}" in capsys.readouterr().out


def test_demos_have_recipes_and_folders() -> None:
    assert [demo.default_folder(name) for name in demo.DEMOS][:2] == ["runs/demo", "runs/demo-chat"]
    for name, one in demo.DEMOS.items():
        recipe = files("regard") / "recipes" / f"demo-{name}.toml"
        assert f'task = "{one.task}"' in recipe.read_text(encoding="utf-8") or one.task == "translate"


def test_marked_rows() -> None:
    rows = demo.mark_rows(["a", "b"], ["x", "y"], [["x", "z"], ["w", "v"]])
    assert [[str(cell) for cell in row] for row in rows] == [
        ["=", "a", "x"],
        ["~", "b", "y"],
        ["", "", "reference: w"],
    ]
