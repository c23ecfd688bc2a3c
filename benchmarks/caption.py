"""Captions of emoji: what a model writes for a picture, compared with the caption of the nearest training picture.

The nearest picture is found by pixels (whole pictures, and 12 x 12 means), by histograms of colors, and by the mean of
the states of the model's own encoder; the best of these is the number to beat. All sides are scored by chrF, BLEU and
CIDEr-D on the same part, in the same run. With --all, also one model of five languages and five models of one.

The pictures (Twemoji) with their names (Unicode CLDR): train.tsv, val.tsv, test.tsv and pictures.zip in one folder.

    make bench-caption      (python benchmarks/caption.py [--minutes 20] [--part val] [--all] [--set A.B=C])

Runs that are finished are not trained again; remove benchmarks/out/caption to train all. Settings are tuned on val.tsv
only. Figures: benchmarks/out/caption.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from multi30k import HERE, OUT
from regard.config import Corpus
from regard.data.pictures import PictureSource, PictureStore
from regard.files import chunks
from regard.run import Run
from regard.tasks import load
from regard.tasks.caption.captioner import Captioner
from regard.tasks.caption.data import Described, group_captions, read_captions
from regard.tasks.caption.evaluate import evaluate
from regard.tasks.caption.scores import score_captions
from regard.tasks.pictures import Gallery
from regard.tasks.train import resolve, start

LANGUAGES = ("en", "de", "fr", "it", "es")
WANTED = 1.3
"""The model is to reach this many times the chrF and BLEU of the nearest picture."""
SHOWN = ("chrf", "bleu", "cider", "recall_1", "recall_5", "recall_10")
Json = dict[str, Any]


def main() -> None:
    """Train what is missing, measure all sides, print the tables, write benchmarks/out/caption.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE.parent.parent / "shared" / "data" / "emoji"
    parser.add_argument("--data", type=Path, default=default, metavar="DIR", help="the folder of the emoji")
    parser.add_argument("--minutes", type=float, default=18.0, metavar="N", help="minutes of training per run")
    parser.add_argument("--part", choices=("test", "val"), default="test", help="the part to score (default test)")
    parser.add_argument("--arch", default="", metavar="NAME", help="another architecture than that of the plan")
    parser.add_argument("--all", action="store_true", help="also five languages: one model against five")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of Regard")
    options = parser.parse_args()
    if not (options.data / "train.tsv").is_file():
        raise SystemExit(f"{options.data}: no train.tsv; pictures: github.com/jdecked/twemoji, names: emojibase")
    begun = time.monotonic()
    run = train(("en",), options)
    captioner, spent = load(run), time.monotonic() - begun
    found = compare(captioner, options)
    found |= {"minutes": run.card["training"]["seconds"] / 60, "wall minutes": spent / 60, "part": options.part}
    print(f"{run.card['parameters']:,} parameters, {found['minutes']:.1f} minutes of training")
    show(found["systems"])
    judge(found["systems"])
    if options.all:
        found["languages"] = compare_languages(options)
    OUT.mkdir(exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (OUT / "caption.json").write_text(text + "\n", encoding="utf-8")


def train(languages: Sequence[str], options: argparse.Namespace) -> Run:
    """The run of these languages; it is trained on train.tsv if it is missing, and chosen by val.tsv."""
    name = "-".join((*languages, *([options.arch] if options.arch else []), f"{options.minutes:g}"))
    folder = OUT / "caption" / name
    if folder.is_dir() and Run(folder).is_finished:
        return Run.open(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    settings: Json = {
        "data": {
            "task": "caption",
            "train": [{"source": str(options.data / "train.tsv")}],
            "valid": [{"source": str(options.data / "val.tsv")}],
        },
        "pictures": {"images": str(options.data / "pictures.zip")},
        "caption": {"languages": list(languages)},
        "train": {"max_minutes": options.minutes},
    }
    if options.arch:
        settings["model"] = {"arch": options.arch}
    return start(resolve(settings, None, options.set), folder)


def read(
    captioner: Captioner, part: str, language: str, options: argparse.Namespace
) -> tuple[list[Described], Gallery]:
    """The pictures of a part, in the size that the model reads, and their captions."""
    path, images = options.data / f"{part}.tsv", options.data / "pictures.zip"
    with PictureSource(images) as source:
        found = group_captions(read_captions(Corpus(str(path)), source, (language,)))
        pixels = np.stack([source.read(one.picture, str(path), captioner.recipe.pictures) for one in found])
    return found, Gallery(PictureStore(images, pixels), [one.picture for one in found])


# The nearest training picture


def in_blocks(pixels_NCYX: NDArray[np.uint8]) -> torch.Tensor:
    """Means of 12 x 12 blocks."""
    return F.adaptive_avg_pool2d(torch.from_numpy(pixels_NCYX / 255.0).float(), 12).flatten(1)


def in_pixels(pixels_NCYX: NDArray[np.uint8]) -> torch.Tensor:
    return torch.from_numpy(pixels_NCYX / 255.0).float().flatten(1)


def in_colors(pixels_NCYX: NDArray[np.uint8], steps: int = 6) -> torch.Tensor:
    """Square roots of a histogram of colors, so that distances are those of Hellinger."""
    level_NCYX = pixels_NCYX.astype(np.int64) * steps // 256
    color_NP = ((level_NCYX[:, 0] * steps + level_NCYX[:, 1]) * steps + level_NCYX[:, 2]).reshape(len(pixels_NCYX), -1)
    counts = np.stack([np.bincount(row, minlength=steps**3) for row in color_NP])
    return torch.from_numpy(np.sqrt(counts / counts.sum(1, keepdims=True))).float()


@torch.inference_mode()
def in_states(captioner: Captioner, pixels_NCYX: NDArray[np.uint8]) -> torch.Tensor:
    """The mean of the states of the model's encoder, of length 1."""
    means = [captioner.encode(np.stack(some))[0].states_BSD.mean(1) for some in chunks(pixels_NCYX, 64)]
    return F.normalize(torch.cat(means), dim=1)


def compare(captioner: Captioner, options: argparse.Namespace) -> Json:
    """Scores of the nearest pictures and of the model on the English captions of a part."""
    (train_set, train_gallery), (wanted, gallery) = (
        read(captioner, part, "en", options) for part in ("train", options.part)
    )
    known, new = (one.pixels([each.picture for each in some]) for one, some in (
        (train_gallery, train_set), (gallery, wanted),
    ))  # fmt: skip
    texts, references = [one.references[0] for one in train_set], [one.references for one in wanted]
    features = {
        "nearest by pixels": (in_pixels(known), in_pixels(new)),
        "nearest by 12 x 12 means": (in_blocks(known), in_blocks(new)),
        "nearest by colors": (in_colors(known), in_colors(new)),
        "nearest by the encoder": (in_states(captioner, known), in_states(captioner, new)),
    }
    systems: Json = {}
    for name, (old_ND, new_MD) in features.items():
        nearest = torch.cdist(new_MD, old_ND).argmin(1).tolist()
        systems[name] = score_captions([texts[place] for place in nearest], references)
    scores, captions = evaluate(captioner, wanted, gallery)
    systems["the model"] = scores
    samples = [
        {"picture": one.picture, "reference": one.references[0], "caption": caption.text}
        for one, caption in zip(wanted, captions, strict=True)
    ]
    return {"systems": systems, "pictures": len(wanted), "samples": samples}


def judge(systems: Json) -> None:
    """Print how many times the best nearest picture the model reaches."""
    for name in ("chrf", "bleu"):
        best = max(found[name] for side, found in systems.items() if side != "the model")
        times = systems["the model"][name] / best
        verdict = "at least" if times >= WANTED else "below"
        print(f"{name}: {times:.2f} times the best nearest picture ({verdict} {WANTED})")


def compare_languages(options: argparse.Namespace) -> Json:
    """ChrF of one model of five languages, and of five models of one language, each trained for the same minutes."""
    together = load(train(LANGUAGES, options))
    found: Json = {}
    for language in LANGUAGES:
        alone = load(train((language,), options))
        sides = {}
        for name, captioner in (("one of five", alone), ("five in one", together)):
            wanted, gallery = read(captioner, options.part, language, options)
            sides[name] = {key: evaluate(captioner, wanted, gallery)[0][key] for key in SHOWN}
        found[language] = sides
    print(f"\n{'':12}" + "".join(f"{name:>14}" for name in ("one of five", "five in one", "difference")))
    rows = {language: [sides[name]["chrf"] for name in sides] for language, sides in found.items()}
    rows["mean"] = [sum(column) / len(found) for column in zip(*rows.values(), strict=True)]
    for name, (one, other) in rows.items():
        print(f"{name:12}{one:14.1f}{other:14.1f}{other - one:+14.1f}")
    return found


def show(systems: Json) -> None:
    """Print the scores of all sides."""
    print(f"\n{'':26}" + "".join(f"{name:>11}" for name in SHOWN))
    for side, scores in systems.items():
        cells = (f"{scores[name]:11.2f}" if name in scores else f"{'':11}" for name in SHOWN)
        print(f"{side:26}" + "".join(cells))


if __name__ == "__main__":
    main()
