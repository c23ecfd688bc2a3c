"""The plan of caption models: words or subwords, languages, sizes of the network, and settings that are given."""

from __future__ import annotations

from typing import Any

import pytest

from regard.config import PictureSettings
from regard.config.recipe import make_recipe
from regard.tasks.caption.data import Captioned
from regard.tasks.caption.plan import MOST_WORDS, make_plan
from regard.tasks.dataset import Parts
from regard.tasks.pictures import PictureExamples, PictureFacts
from regard.training.device import Machine
from regard.training.plan import merge

MACHINE = Machine(cores=2, memory=8e9, device="cpu", peak=5e10, bfloat16_speedup=1.0)
FEW = PictureFacts(pictures=3000, height=72, width=72, mean=0.5, deviation=0.6, is_gray=False)


def plan(texts: list[tuple[str, str]], facts: PictureFacts = FEW, **given: dict[str, Any]) -> dict[str, Any]:
    captions = [Captioned(f"{place}.png", text, language) for place, (language, text) in enumerate(texts)]
    examples = PictureExamples(Parts("captions", [(captions, 1.0)]), PictureSettings())
    examples.__dict__["facts"] = facts
    chosen = make_plan(examples, MACHINE, given)
    table: dict[str, Any] = {"data": {"task": "caption"}, "pictures": {"images": "x"}}
    for section, values in given.items():
        table[section] = table.get(section, {}) | values
    assert make_recipe(merge(chosen, table))
    return {choice.name: choice.value for choice in chosen}


WORDS = [("en", f"a red car, number {number}") for number in range(900)]


def test_few_different_words_are_the_vocabulary() -> None:
    found = plan(WORDS)
    assert found["tokenizer.kind"] == "word"
    assert found["tokenizer.vocab_size"] == 1000  # 905 words and a comma
    assert found["caption.languages"] == ("en",)
    assert (found["model.arch"], found["model.width"]) == ("show-attend-tell", 128)
    assert found["pictures.size"] == (72, 72)
    assert found["train.optimizer"] == "muon"


@pytest.mark.parametrize(
    ("texts", "given"),
    [
        ([("zh", "一辆红色的汽车停在房子前面的街道上" + str(number)) for number in range(900)], {}),
        ([("en", f"word{number}") for number in range(MOST_WORDS + 1)], {}),
        (WORDS, {"tokenizer": {"kind": "bpe"}}),
    ],
)
def test_other_captions_are_subwords(texts: list[tuple[str, str]], given: dict[str, Any]) -> None:
    found = plan(texts, **given)
    assert "tokenizer.kind" not in found
    assert found["tokenizer.vocab_size"] in (2000, 4000)


def test_more_pictures_get_a_larger_network_and_other_settings_stay() -> None:
    found = plan(WORDS, FEW._replace(pictures=30_000), train={"max_minutes": 5.0}, pictures={"patch_size": 12})
    assert (found["model.arch"], found["model.width"]) == ("transformer-mini", 256)
    assert "train.max_steps" not in found
    assert found["pictures.convolutions"] == 0  # 12 is no power of two
    assert "pictures.patch_size" not in found
    assert "model.arch" not in plan(WORDS, model={"arch": "bahdanau"})
    own = plan(WORDS, model={"encoder_layers": 1})  # settings of a Transformer
    assert (own["model.arch"], own["model.decoder_layers"]) == ("transformer-mini", 2)
    assert "model.encoder_layers" not in own


def test_captions_of_two_languages() -> None:
    found = plan([("de", "ein Auto"), ("en", "a car")] * 20)
    assert found["caption.languages"] == ("de", "en")
