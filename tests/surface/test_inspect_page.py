"""The inspection page in a browser: it draws, it asks for nothing, and every control does what it says."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest

from regard.pages import render_page
from tests.surface.conftest import DESKTOP, PHONE, Show

HOSTILE = "</script><script>window.broken=true</script><img/src=x/onerror='window.broken=true'>"
Json = dict[str, Any]


def side(*words: str | tuple[str, ...]) -> Json:
    """A sentence of words, or of words in several tokens; the end comes last."""
    parts = [(word,) if isinstance(word, str) else word for word in words]
    tokens, word_of, spans, text = [], [], [], ""
    for place, part in enumerate(parts):
        text += " " if place and part != (".",) else ""
        for number, piece in enumerate(part):
            tokens.append(f"▁{piece}" if number == 0 and piece != "." else piece)
            spans.append([len(text), len(text) + len(piece)])
            word_of.append(place)
            text += piece
    return {
        "text": text,
        "tokens": [*tokens, "</s>"],
        "words": ["".join(part) for part in parts] + ["</s>"],
        "word_of": [*word_of, len(parts)],
        "spans": [*spans, [len(text), len(text)]],
    }


SOURCE = side("I", "take", "a", ("show", "er"), ".")
TARGET = side(("Fac", "cio"), "la", "doccia", ".")


def peaked(rows: int, columns: int, peak: float, shift: int = 0) -> list[list[float]]:
    """Each row gives the weight `peak` to the column of its own number, or `shift` further, and shares out the rest."""
    rest = (1 - peak) / (columns - 1)
    return [[peak if column == (row + shift) % columns else rest for column in range(columns)] for row in range(rows)]


def attention(name: str, source: Json, target: Json, heads: int = 2) -> Json:
    """Head h of layer l gives 0.5 + l/10 + h/100 to the diagonal; the last cross attention is not identifiable."""
    kind = "encoder" if name.startswith("encoder") else "decoder" if name.endswith("self") else "cross"
    layer = int(name.split(".")[1]) if name.count(".") == 2 else None
    rows = source if kind == "encoder" else target
    columns = target if kind == "decoder" else source
    sizes = len(rows["tokens"]), len(columns["tokens"])
    weights = [peaked(*sizes, 0.5 + (layer or 0) / 10 + head / 100) for head in range(heads)]
    blurred = name == "decoder.1.cross"
    return {
        "name": name,
        "kind": kind,
        "layer": layer,
        "rows": "source" if kind == "encoder" else "target",
        "columns": {"encoder": "source", "decoder": "prefix", "cross": "source"}[kind],
        "head_width": 4,
        "weights": weights,
        "entropy": [1.0 + head for head in range(heads)],
        "effective": {
            "keys": sizes[1],
            "weights": [peaked(*sizes, 0.3) for _ in range(heads)] if blurred else None,
            "dimension": [3 if blurred else 0] * heads,
            "freedom": [2 if blurred else 0] * heads,
            "correlation": [0.75] * heads,
            "warning": "7 tokens are longer than the heads are wide (4): look at the effective ones"
            if blurred
            else None,
        },
    }


def following(target: Json, likely: float = 0.9) -> Json:
    """Next tokens: each written token has the probability `likely`, and another one 0.05; the third was second best."""
    tokens = [*dict.fromkeys(target["tokens"]), "▁or"]
    rows, best, written = [], [], []
    for place, token in enumerate(target["tokens"]):
        own, other = (0.4, 0.5) if place == 2 else (likely, 0.05)
        row = [0.0] * len(tokens)
        row[tokens.index(token)], row[-1] = own, other
        order = [tokens.index(token), len(tokens) - 1]
        best.append(order[::-1] if place == 2 else order)
        written.append({"probability": own, "rank": 2 if place == 2 else 1})
        rows.append(row)
    return {"tokens": tokens, "probability": rows, "best": best, "written": written}


def node(id: int, parent: int, step: int, token: str, total: float, fate: str, score: float | None = None) -> Json:
    return {
        "id": id, "parent": parent, "step": step, "token": token, "log_prob": total / (step + 1), "total": total,
        "fate": fate, "score": score,
    }  # fmt: skip


TREE = [
    node(0, -1, 0, "▁Fac", -0.1, "kept"),
    node(1, -1, 0, "▁La", -2.0, "kept"),
    node(2, -1, 0, "▁Il", -4.0, "dropped"),
    node(3, 0, 1, "cio", -0.2, "kept"),
    node(4, 1, 1, "</s>", -2.5, "finished", -1.25),
    node(5, 3, 2, "</s>", -0.3, "finished", -0.1),
    node(6, 3, 2, "▁la", -5.0, "dropped"),
]


def plane(count: int) -> Json:
    return {"points": [[place % 3, place / 2] for place in range(count)], "explained": [0.5, 0.25]}


def inspected(**changes: Any) -> Json:
    """Every part of an inspection, small."""
    source, target = len(SOURCE["tokens"]), len(TARGET["tokens"])
    names = ["encoder.0.self", "encoder.1.self"]
    names += [f"decoder.{layer}.{kind}" for layer in range(2) for kind in ("self", "cross")]
    figure = {"mean": 0.5, "low": 0.4, "high": 0.6}
    data: Json = {
        "title": "I take a shower.",
        "run": "test",
        "version": "0.1.0",
        "languages": {"source": "en", "target": "it"},
        "model": {"arch": "toy", "parameters": 1234567},
        "translation": {"text": TARGET["text"], "log_prob": -1.5, "score": -0.25, "flags": ["copies"], "given": False},
        "source": SOURCE,
        "target": TARGET,
        "attention": [attention(name, SOURCE, TARGET) for name in names],
        "start": None,
        "next": following(TARGET),
        "tree": {"nodes": TREE},
        "attribution": {
            "methods": [
                {
                    "name": name, "title": name, "about": f"what {name} says", "signed": sign < 0,
                    "source": peaked(target, source, 0.6, shift), "target": [[sign * 0.1] * target] * target,
                }
                for name, sign, shift in (("attention", 1, 0), ("occlusion", -1, 1))
            ],
            "faithfulness": {
                "rows": [
                    {"name": "random", "deletion": figure, "sufficiency": figure, "precision": None},
                    {"name": "occlusion", "deletion": figure, "sufficiency": figure, "precision": figure},
                ],
                "sentences": 50,
                "verdict": "occlusion above attention.",
            },
        },
        "roles": [
            {
                "name": "encoder.1.self", "head": 1, "confidence": 0.9, "ablation": 0.12, "role": "positional",
                "of": "-1", "share": 0.95, "baseline": 0.3,
            },
            {"name": "encoder.0.self", "head": 0, "confidence": 0.4, "ablation": 0.0, "role": None},
        ],
        "planes": [
            {"name": name, "reads": name == "with position", "source": plane(source), "target": plane(target)}
            for name in ("vocabulary", "with position", "layer 0")
        ],
        "mixing": {
            "passes": 10,
            "layers": [
                {
                    "name": name, "share": peaked(source, source, own), "own_mean": own,
                    "by_distance": [own, *[(1 - own) / (source - 1)] * (source - 1)],
                }
                for name, own in (("encoder.embed", 1.0), ("encoder.0", 0.6), ("encoder.top", 0.6))
            ],
        },
        "positions": {
            "kind": "sinusoidal", "rotates": True, "every": 1,
            "rows": [[0.1 * place, 0.2] * 4 for place in range(30)], "dots": peaked(30, 30, 0.5),
        },
    }  # fmt: skip
    return data | changes


@pytest.fixture
def show(show_page: Show) -> Show:
    """Opens the inspection of some data."""
    return functools.partial(show_page, "inspect")


def radio(page: Any, group: str, name: str) -> Any:
    return page.get_by_role("group", name=group, exact=True).get_by_role("radio", name=name, exact=True)


def shades(page: Any, place: str) -> list[float]:
    """How dark the words of a running text are."""
    return page.locator(f"{place} .bit").evaluate_all(
        "nodes => nodes.map((node) => Number(node.style.getPropertyValue('--share')))"
    )


ALL = [
    "Every head", "Decoding step by step", "Probabilities of the next token", "Beam search",
    "Attribution", "Head roles", "Entropy of the heads", "Mixing of tokens", "Token vectors in two dimensions",
    "Positional encoding",
]  # fmt: skip


def test_whole_page(show: Show) -> None:
    page = show(inspected())
    assert page.locator("h2").all_inner_texts() == ALL
    assert page.locator("h1").inner_text() == "I take a shower."
    assert page.locator(".facts").inner_text() == (
        "English to Italian · toy, 1.2 million parameters · log-probability −1.50 · score −0.250 · flag: copies"
    )
    assert page.locator(".sentences .source .running").inner_text().split() == ["I", "take", "a", "shower.", "END"]
    assert all(figure.get_attribute("aria-label") for figure in page.locator("svg[role=img]").all())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_words_stay_text(show: Show) -> None:
    bad = side(HOSTILE, HOSTILE)
    data = inspected(source=bad, target=bad, title=HOSTILE, tree={"nodes": [node(0, -1, 0, HOSTILE, -1.0, "kept")]})
    data |= {"attention": [attention("decoder.0.cross", bad, bad)], "next": following(bad), "attribution": None}
    page = show(data | {"planes": [], "mixing": None, "roles": []})
    assert page.evaluate("window.broken") is None
    assert page.locator(".sentences .bit").first.inner_text() == HOSTILE


def test_places_count_characters_beyond_the_basic_plane_once(show: Show) -> None:
    """As Python does, where the browser counts two."""
    alone = {"attention": [], "attribution": None, "planes": [], "mixing": None, "roles": []}
    page = show(inspected(source=side("Hi", "🦊🦊", "you", "."), **alone))
    assert page.locator(".sentences .source .bit").all_inner_texts() == ["Hi", "🦊🦊", "you", ".", "END"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"attention": [attention("decoder.cross", SOURCE, TARGET, heads=1)], "positions": None, "mixing": None},
            ["Decoding step by step", "Probabilities of the next token", "Beam search", "Attribution",
             "Token vectors in two dimensions"],
        ),
        ({"attention": [], "tree": None, "positions": None, "mixing": None, "attribution": {"methods": []}},
         ["Decoding step by step", "Probabilities of the next token", "Token vectors in two dimensions"]),
        ({"attention": [], "tree": None, "positions": None, "mixing": None, "planes": [], "next": None,
          "attribution": None}, []),
    ],
    ids=["one head", "no attention", "nothing"],
)  # fmt: skip
def test_what_a_model_lacks_is_left_out(show: Show, data: Json, expected: list[str]) -> None:
    page = show(inspected(roles=[], **data))
    assert page.locator("h2").all_inner_texts() == expected
    assert page.locator(".map").count() == (len(data["attention"]) + ("Attribution" in expected)
                                            + ("Probabilities of the next token" in expected))  # fmt: skip
    assert page.get_by_text("This model has no attention").count() == (not data["attention"])
    assert page.locator(".look .layers input").count() == 0


def test_pointing_at_a_word_shows_where_it_looks(show: Show) -> None:
    page = show(inspected())
    says = page.locator(".look .says")
    # Layer 1, the average of 0.6 and 0.61. "Faccio" has two tokens, which look at "I" and "take"; the mean of
    # 0.605 and 0.395 / 6.
    page.locator(".sentences .target .bit").first.hover()
    assert says.inner_text() == "“Faccio” attends most to “I”, with weight 0.335."
    assert shades(page, ".sentences .source")[0] == pytest.approx(0.335 / 0.671, abs=0.01)
    assert shades(page, ".sentences .target") == [0.0] * 5
    assert page.locator(".look .facing .link:not(.dim)").count() >= 2
    page.locator(".sentences .source .bit").nth(3).hover()  # "shower", of two tokens: the sum of 0.605 and 0.395 / 6
    assert says.inner_text() == "“shower” receives its largest weight from “doccia”: 0.671."
    assert shades(page, ".sentences .target")[2] == 1.0
    page.locator(".facts").hover()
    assert says.inner_text().startswith("Point at a word")
    assert set(shades(page, ".sentences")) == {0.0}


def test_words_can_be_reached_by_keyboard(show: Show) -> None:
    page = show(inspected())
    says = page.locator(".look .says")
    page.locator(".sentences .target .bit").first.focus()
    page.keyboard.press("ArrowRight")
    assert says.inner_text().startswith("“la” attends most to “a”")
    page.keyboard.press("End")
    assert says.inner_text().startswith("“end” attends most to “.”")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert radio(page, "Kind of attention", "encoder self").is_checked()
    page.get_by_role("group", name="Attention weights").focus()
    page.keyboard.press("ArrowDown")
    assert says.inner_text() == "“I” attends to “I” with weight 0.605."


def test_kind_layer_head_and_unit(show: Show) -> None:
    page = show(inspected())
    figure = page.locator(".look .map")

    def label() -> str:
        return figure.get_attribute("aria-label")

    assert "decoder.1.cross, average of all heads, raw weights" in label()
    radio(page, "Kind of attention", "decoder self").check()
    assert "decoder.1.self, average of all heads" in label()
    assert figure.locator(".word").all_text_contents() == [
        "Faccio", "la", "doccia", ".", "end", "start", "Faccio", "la", "doccia", "."
    ]  # fmt: skip
    radio(page, "Layer", "layer 0").check()
    radio(page, "Head", "head 1").check()
    assert "decoder.0.self, head 1" in label()
    page.locator(".sentences .target .bit").nth(2).hover()
    assert max(shades(page, ".sentences .target")) > 0
    radio(page, "Layer", "all").check()
    assert "all layers of decoder self-attention, average of all heads" in label()
    assert page.get_by_role("group", name="Head", exact=True).count() == 0
    radio(page, "Unit", "tokens").check()
    assert figure.locator(".word").all_text_contents()[:3] == ["Fac", "-cio", "la"]
    assert page.locator(".sentences .target .bit").count() == len(TARGET["tokens"])


def test_raw_and_effective_weights_are_compared(show: Show) -> None:
    page = show(inspected())
    warning = page.locator(".warning")
    assert warning.inner_text() == (
        "These weights are not identifiable. 7 tokens are longer than the heads are wide (4): look at the effective "
        "ones. The correlation of raw and effective weights is 0.750."
    )
    radio(page, "Weights", "effective").check()
    assert "effective weights" in page.locator(".look .map").get_attribute("aria-label")
    radio(page, "Weights", "difference").check()
    assert page.locator(".look .cells .less").count() > 0  # the diagonal has lost, so others have won
    radio(page, "Weights", "both").check()
    names = page.locator(".look .panel-name")
    assert names.all_inner_texts() == ["Raw weights", "Effective weights"]
    page.get_by_role("group", name="Raw weights").focus()
    page.keyboard.press("ArrowRight")
    # Raw 0.335 as above; effective the mean of 0.3 and 0.7 / 6.
    assert (
        page.locator(".look .says").inner_text() == "“Faccio” attends to “I” with weight 0.335; effective weight 0.208."
    )
    radio(page, "Layer", "layer 0").check()
    assert warning.count() == 0
    assert page.get_by_text("7 tokens, head width 4: the weights are identifiable").count() == 1


def test_small_multiples_choose_a_head(show: Show) -> None:
    page = show(inspected())
    heads = page.locator(".head")
    assert heads.count() == 6 * 2
    assert page.locator(".head[aria-pressed=true]").count() == 2  # the average of both heads
    page.get_by_role("button", name="encoder.1.self, head 1; positional; entropy 2 bits").click()
    assert "encoder.1.self, head 1" in page.locator(".look .map").get_attribute("aria-label")
    assert radio(page, "Kind of attention", "encoder self").is_checked()
    assert radio(page, "Head", "head 1").is_checked()
    assert page.locator(".head[aria-pressed=true]").count() == 1
    assert page.locator(".role").all_inner_texts() == ["positional"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert "encoder.0.self, head 1" in page.locator(".look .map").get_attribute("aria-label")


def test_layers_may_have_different_numbers_of_heads(show: Show) -> None:
    """As in a pruned model."""
    maps = [attention("encoder.0.self", SOURCE, TARGET, heads=3), attention("encoder.1.self", SOURCE, TARGET, heads=1)]
    page = show(inspected(attention=[*maps, attention("decoder.1.cross", SOURCE, TARGET)]))
    assert page.locator(".head").count() == 6
    page.get_by_role("button", name="encoder.0.self, head 2").click()
    radio(page, "Layer", "layer 1").check()
    assert "encoder.1.self, average of all heads" in page.locator(".look .map").get_attribute("aria-label")


def test_the_page_starts_at_the_head_that_aligns(show: Show) -> None:
    page = show(inspected(start={"kind": "cross", "layer": 0, "head": 1}))
    assert "decoder.0.cross, head 1" in page.locator(".look .map").get_attribute("aria-label")


def test_writing_step_by_step(show: Show) -> None:
    page = show(inspected())
    says, place = page.locator(".writing .says"), page.locator(".writing .place")
    assert says.inner_text() == "Step 1: “Fac” is the most probable token, with 90 %."
    assert page.locator(".writing .unwritten").count() == 5
    assert page.locator(".guess.taken .guess-token").inner_text() == "Fac"
    # All heads together give 0.555 to the diagonal, and "shower", with two tokens, gets 0.445 / 6 more.
    assert shades(page, ".writing .source")[0] == pytest.approx(0.555 / (0.555 + 0.445 / 6), abs=0.001)
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("button", name="Next step").click()
    assert says.inner_text() == (
        "Step 3: “la” is the token of rank 2, with 40 %; it was chosen for the score of the whole translation."
    )
    assert page.locator(".guess-token").all_inner_texts() == ["or", "la"]
    page.get_by_role("button", name="Previous step").click()
    assert place.inner_text() == "2 of 6"
    page.get_by_role("button", name="Last step").click()
    assert page.locator(".writing .unwritten").count() == 0
    assert page.get_by_role("button", name="Next step").is_disabled()
    page.get_by_role("button", name="First step").click()
    assert place.inner_text() == "1 of 6"
    page.get_by_role("slider", name="Step").fill("4")
    assert place.inner_text() == "4 of 6"
    page.get_by_role("button", name="Play").click()
    page.get_by_text("5 of 6").wait_for()
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("button", name="Play").count() == 1


def test_next_tokens_as_a_table(show: Show) -> None:
    page = show(inspected())
    table = page.locator(".guess-table")
    assert table.locator(".word.plain").all_text_contents() == ["Fac", "-cio", "or", "la", "doccia", ".", "end"]
    assert "90" in table.locator(".cell-figure").all_text_contents()
    page.get_by_role("group", name="Probabilities").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert table.locator(".says").inner_text() == "At position 3, “la” has a probability of 40 %."


def test_beam_tree(show: Show) -> None:
    page = show(inspected())
    nodes, says = page.locator(".tree .node"), page.locator(".beam .says")
    assert nodes.count() == 5
    assert page.locator(".tree .node.best").count() == 3
    assert says.inner_text().startswith("7 continuations tried in 3 steps.")
    assert page.locator(".ends li").all_inner_texts() == ["Faccio score −0.100", "La score −1.25"]
    radio(page, "Continuations", "all").check()
    assert nodes.count() == 7
    assert page.locator(".tree .node.dropped").count() == 2
    nodes.first.focus()
    page.keyboard.press("ArrowRight")
    assert says.inner_text() == "“Faccio”: kept; log-probability −0.200, −0.100 for “-cio” alone."
    page.keyboard.press("ArrowRight")
    assert says.inner_text().startswith("“Faccio”: finished, score −0.100; log-probability −0.300")
    page.keyboard.press("ArrowDown")
    assert says.inner_text().startswith("“Faccio la”: dropped")
    assert page.locator(".tree .node.on").count() == 3
    page.keyboard.press("ArrowLeft")
    assert says.inner_text().startswith("“Faccio”: kept")
    page.get_by_role("button", name="step 1, La, kept").hover()
    assert says.inner_text().startswith("“La”: kept")


def test_attribution_method_and_word(show: Show) -> None:
    page = show(inspected())
    credit = page.locator(".credit")
    says = credit.locator(".says").first
    # What was measured to be the most faithful is shown first; its peaks stand one to the right of the diagonal.
    assert radio(page, "Method", "occlusion").is_checked()
    assert says.inner_text().startswith("“doccia” depends most on “shower”")
    assert "Most faithful: occlusion. Over 50 sentences" in credit.locator(".trust").inner_text()
    assert credit.locator(".bit.target.less").count() == 2  # what came before speaks against it
    radio(page, "Method", "attention").check()
    assert credit.get_by_text("What attention says.").count() == 1
    assert credit.locator(".bit.target.less").count() == 0
    credit.locator(".bit.target").first.click()
    assert says.inner_text().startswith("“Faccio” depends most on “I”")
    assert credit.locator(".bit.unwritten").count() == 4
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert says.inner_text().startswith("“la” depends most on “a”")
    assert credit.locator(".map .word").all_text_contents()[:2] == ["attention", "occlusion"]
    credit.get_by_text("Faithfulness of all methods").click()
    assert credit.locator("table tbody tr").count() == 2


def test_roles_lead_to_their_head(show: Show) -> None:
    page = show(inspected())
    row = page.locator(".roles table").last.locator("tbody tr")
    assert row.count() == 1
    assert row.inner_text().split("\t")[1:] == ["positional -1", "95 %", "30 %", "90 %", "0.120"]
    page.get_by_role("button", name="encoder.1.self, head 1", exact=True).click()
    assert "encoder.1.self, head 1" in page.locator(".look .map").get_attribute("aria-label")


def test_layers_planes_and_places(show: Show) -> None:
    page = show(inspected())
    entropy = page.locator("section[aria-labelledby=entropy]")
    assert entropy.locator(".each").count() == 12
    assert entropy.locator("svg").get_attribute("aria-label").startswith("Entropy by layer. cross 1.50, 1.50; encoder")
    mixing = page.locator(".mixing")
    assert "at encoder.top" in mixing.locator(".map").get_attribute("aria-label")
    mixing.get_by_role("radio", name="embed").check()
    assert "at encoder.embed" in mixing.locator(".map").get_attribute("aria-label")
    page.get_by_role("group", name="Shares of tokens in states").focus()
    page.keyboard.press("ArrowDown")
    assert mixing.locator(".says").inner_text() == "The state of “I” has 100.0 % of “I”."
    planes = page.locator(".scatter")
    assert planes.locator(".point.target").count() == len(TARGET["tokens"])
    planes.get_by_role("radio", name="with position").check()
    assert "start" in planes.locator("svg").last.get_attribute("aria-label")  # what the decoder reads
    dials = page.locator(".dial")
    first = dials.first.inner_html()
    page.get_by_role("slider", name="distance k").fill("5")
    assert dials.first.inner_html() != first
    turned = dials.first.inner_html()
    page.get_by_role("slider", name="position p").fill("3")
    assert dials.first.inner_html() != turned


def test_theme_button_turns_the_page(show: Show) -> None:
    page = show(inspected(), scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate(paper) != dark


def test_print_keeps_the_figures_and_drops_the_controls(show: Show) -> None:
    page = show(inspected(), media="print")
    assert page.locator(".head").first.is_visible()
    assert page.locator(".credit .says.finding").is_visible()
    assert page.locator(".player").is_hidden()
    assert page.get_by_role("button", name="Dark colours").count() == 0
    assert page.locator(".look .choice label:visible").all_inner_texts()[:2] == ["cross", "layer 1"]
    assert page.locator(".tree").is_hidden()  # too wide for paper
    assert page.locator(".ends").is_visible()


def long_inspection() -> Json:
    """40 words of 60 tokens on both sides, 3 + 3 layers of 4 heads, none of whose weights are identifiable."""
    draw = random.Random(1)
    one = side(*[(f"wort{place}", "en") if place % 2 else f"wort{place}" for place in range(40)])
    count = len(one["tokens"])

    def matrix() -> list[list[float]]:
        return [[round(draw.random() / 30, 3) for _ in range(count)] for _ in range(count)]

    maps = []
    for name in ("encoder.{}.self", "decoder.{}.self", "decoder.{}.cross"):
        for layer in range(3):
            part = attention(name.format(layer), one, one, heads=4)
            part["weights"] = [matrix() for _ in range(4)]
            part["effective"] |= {"weights": [matrix() for _ in range(4)], "dimension": [9] * 4, "warning": "so"}
            maps.append(part)
    methods = [
        {"name": name, "title": name, "about": name, "signed": False, "source": matrix(), "target": matrix()}
        for name in ("attention", "rollout", "gradient", "integrated", "occlusion", "alti")
    ]
    tree = [
        node(10 * step + rank, 10 * (step - 1) + rank % 5 if step else -1, step, f"▁wort{rank}", -step - rank,
             "kept" if rank < 5 else "dropped")
        for step in range(count) for rank in range(10)
    ]  # fmt: skip
    shares = [{"name": f"encoder.{place}", "share": matrix(), "own_mean": 0.5, "by_distance": [0.1] * count}
              for place in ("embed", "0", "1", "2", "top")]  # fmt: skip
    return inspected(
        source=one, target=one, attention=maps, next=following(one), tree={"nodes": tree},
        attribution={"methods": methods, "faithfulness": None}, mixing={"passes": 1, "layers": shares},
        planes=[{"name": "top", "reads": False, "source": plane(count), "target": plane(count)}],
    )  # fmt: skip


def test_a_long_sentence_stays_under_five_megabytes() -> None:
    data = long_inspection()
    assert len(data["source"]["tokens"]) == 61
    assert len(json.dumps(data)) > 1_000_000
    assert len(render_page("inspect", data).encode()) < 5_000_000


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_long_sentence_never_scrolls_the_page_sideways(show: Show, viewport: dict[str, int]) -> None:
    page = show(long_inspection(), viewport=viewport)
    page.wait_for_selector(".tree")
    for unit in ("tokens", "words"):
        radio(page, "Unit", unit).check()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator(".beam .scroll-box")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")  # the tree scrolls in its own box
