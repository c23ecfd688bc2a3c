"""Translate a text file of any size on any number of machines, with Ray Data.

    python examples/ray_translate.py runs/en-de corpus.en corpus.de --workers 8 --cpus 4
    python examples/ray_translate.py runs/en-de corpus.en corpus.de --address auto      # on a running cluster

The file is cut into parts of some hundred kilobytes. A worker opens the run once, translates one part after the other,
and writes each translation atomically as a separate file. When all parts are done they are joined as OUT, with the
lines in the order of the input. If it is stopped, the same command continues with the missing parts. On several
machines, run, input and output must be on a file system that all of them see.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # turn off usage statistics, before Ray is imported

import ray
import ray.data

from regard.errors import RegardError, SettingsError
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.translate.engine import FastTranslator, choose_engine, load_fast, open_engine

PART = 256_000
"""Bytes per part: a few minutes of work, so that little is lost if a machine fails."""


def main() -> int:
    """Parse the options and translate; errors are reported in one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path, help="text, one sentence per line")
    parser.add_argument("out", type=Path)
    parser.add_argument("--address", help='a cluster to join, e.g. "auto" (default: start one on this machine)')
    parser.add_argument("--workers", type=int, default=1, help="processes that translate")
    parser.add_argument("--cpus", type=int, default=1, help="processors per worker")
    parser.add_argument("--part", type=int, default=PART, help="bytes of a part")
    options = parser.parse_args()
    try:
        todo, folder = plan(options.run, options.source, options.out, options.part)
        start_ray(options.address, options.workers * options.cpus)
        translate_parts(options.run, options.source, folder, todo, options.workers, options.cpus)
        join(folder, options.out)
    except RegardError as error:
        print(f"ray_translate: {error}", file=sys.stderr)
        return 2
    return 0


def plan(run: Path, source: Path, out: Path, part: int) -> tuple[list[dict[str, int]], Path]:
    """The parts that are still to do, and the folder of the finished ones."""
    opened = Run.open(run)
    if not source.is_file():
        raise SettingsError(f"{source}: no such file")
    size = source.stat().st_size
    weights = (opened.folder / "weights.safetensors").stat()
    job = {"source": str(source.resolve()), "size": size, "part": part, "weights": [weights.st_size, weights.st_mtime]}
    folder = out.with_name(out.name + ".parts")
    note = folder / "job.json"
    if note.is_file() and json.loads(note.read_text(encoding="utf-8")) != job:
        raise SettingsError(f"{folder}: contains parts of another job; remove it to start again")
    if is_fast(opened):
        open_engine(opened, "int8")  # converts the model, once for all workers
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(note, json.dumps(job).encode())
    parts = [
        {"number": number, "start": start, "end": start + part} for number, start in enumerate(range(0, size, part))
    ]
    return [part for part in parts if not place_of(folder, part["number"]).is_file()], folder


def is_fast(run: Run) -> bool:
    """Whether CTranslate2 can translate with this run."""
    return choose_engine("auto", run, run.recipe.search) == "ctranslate2"


def place_of(folder: Path, number: int) -> Path:
    """Path of the translation of a part."""
    return folder / f"{number:08d}.txt"


def start_ray(address: str | None, cpus: int) -> None:
    """Join a cluster, or start one on this machine, without dashboard and log messages."""
    if address:
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)


def translate_parts(run: Path, source: Path, folder: Path, todo: list[dict[str, int]], workers: int, cpus: int) -> None:
    """Translate the remaining parts, in any order; Ray restarts a worker that dies."""
    if not todo:
        return
    places = (str(run.resolve()), str(source.resolve()), str(folder.resolve()))
    ray.data.DataContext.get_current().enable_progress_bars = False
    work = ray.data.from_items(todo, override_num_blocks=len(todo)).map(
        PartTranslator,
        fn_constructor_args=places,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(todo))),
        num_cpus=cpus,
    )
    for count, row in enumerate(work.iter_rows(), 1):
        print(f"{count}/{len(todo)} parts; part {row['number']}: {row['lines']} lines", file=sys.stderr)


class PartTranslator:
    """A worker: opens the run once, then translates parts."""

    def __init__(self, run: str, source: str, folder: str):
        from regard.tasks.translate.translator import Translator, load

        opened = Run.open(run)
        self.translator: FastTranslator | Translator = load_fast(opened) if is_fast(opened) else load(run)
        self.source, self.folder = Path(source), Path(folder)

    def __call__(self, part: dict[str, Any]) -> dict[str, Any]:
        """Translate one part and write it."""
        lines = read_part(self.source, part["start"], part["end"])
        answers = self.translator.translate(lines)
        content = "".join(f"{answer.text}\n" for answer in answers)
        write_atomically(place_of(self.folder, part["number"]), content.encode())
        return {"number": part["number"], "lines": len(lines)}


def read_part(source: Path, start: int, end: int) -> list[str]:
    """The lines whose first byte is from `start` up to `end`: every line is in exactly one part."""
    with source.open("rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()  # the rest of a line of the part before
        lines = []
        while file.tell() < end and (line := file.readline()):
            lines.append(line.decode("utf-8", "replace").rstrip("\r\n"))
    return lines


def join(folder: Path, out: Path) -> None:
    """Join all parts in order into one file, then remove them."""
    draft = folder / "whole"
    with draft.open("wb") as file:
        for part in sorted(folder.glob("*.txt")):
            with part.open("rb") as content:
                shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(out)
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
