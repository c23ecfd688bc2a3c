"""A long file with `regard translate --out`: memory over time, a kill in the middle, and `--resume`.

The phrasebook's sentences, repeated up to the given number of lines, are translated twice with the demo's run: once
without interruption, and once killed (SIGKILL) after half of the lines and resumed. Both files must be equal, byte for
byte. Memory is the resident size of the command and its workers, sampled every second: the maximum of the first half
and that of the second half.

    python benchmarks/stream.py [RUN] [--lines 200000] [--engine auto]      (make demo first)
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from itertools import cycle, islice
from pathlib import Path

from multi30k import OUT
from regard.data.builtin import read_phrases

FOLDER = OUT / "stream"


def write_lines(path: Path, lines: int) -> None:
    """Write the sentences of the corpus, repeated up to this number of lines."""
    sources = [phrase.source for phrase in read_phrases()]
    path.write_text("".join(f"{text}\n" for text in islice(cycle(sources), lines)), encoding="utf-8")


def resident(pid: int) -> float:
    """Return the resident memory of a process and its children in MB."""
    family = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        family += map(int, task.read_text().split())
    total = 0
    for member in family:
        try:
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1])
        except FileNotFoundError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


def written(part: Path) -> int:
    """Number of lines of the output so far."""
    return part.read_bytes().count(b"\n") if part.exists() else 0


def translate(options: argparse.Namespace, source: Path, out: Path, *, until: int = 0) -> list[tuple[int, float]]:
    """Run the command and sample its memory; with `until`, kill it after that many lines. Returns lines and MB."""
    command = [sys.executable, "-m", "regard", "translate", options.run, str(source), "--out", str(out)]
    search = [
        "--engine",
        options.engine,
        "--beam",
        "1",
    ]  # greedy search is faster, and memory and resume do not depend on it
    child = subprocess.Popen([*command, "--resume", *search], start_new_session=True)
    part, seen = out.with_name(out.name + ".part"), []
    while child.poll() is None:
        time.sleep(1)
        try:
            seen.append((written(part), resident(child.pid)))
        except FileNotFoundError:
            break
        if until and seen[-1][0] >= until:
            os.killpg(child.pid, signal.SIGKILL)
            break
    if child.wait() and not until:
        raise SystemExit("regard translate failed")
    return seen


def main() -> None:
    """Translate, kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="runs/demo", metavar="RUN")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--engine", default="auto")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    source, whole, again = FOLDER / "source.txt", FOLDER / "whole.txt", FOLDER / "again.txt"
    write_lines(source, options.lines)
    began = time.perf_counter()
    seen = translate(options, source, whole)
    seconds = time.perf_counter() - began
    half = options.lines // 2
    if not any(0 < lines <= half for lines, _ in seen) or not any(lines > half for lines, _ in seen):
        raise SystemExit("stream: the file was translated too fast to see both halves; give more --lines")
    first = max(size for lines, size in seen if 0 < lines <= half)
    second = max(size for lines, size in seen if lines > half)
    print(f"{options.lines:,} lines in {seconds / 60:.1f} min, {options.lines / seconds:.0f} a second")
    print(f"memory at most: {first:.0f} MB in the first half, {second:.0f} MB in the second")
    translate(options, source, again, until=half)
    part = again.with_name(again.name + ".part")
    print(f"killed with {written(part):,} lines there; resumed: ", end="", flush=True)
    translate(options, source, again)
    print("the same file" if again.read_bytes() == whole.read_bytes() else "ANOTHER FILE")


if __name__ == "__main__":
    main()
