"""How heads are shown: a grid of layers by heads for the eye, lines with tabs for programs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from regard.tasks.beside import Change
from regard.tasks.heads import Head, Role
from regard.tasks.prune import Pruning

STYLES = {"positional": "cyan", "rare": "magenta", "syntactic": "green", "alignment": "yellow"}
MEANINGS = {
    "positional": "looks at one offset",
    "rare": "looks at the rarest token",
    "syntactic": "follows a relation",
    "alignment": "looks at the word it translates",
}
OFFSETS = {"-1": "1 back", "+1": "1 ahead", "+0": "itself"}
KINDS = {"encoder": "encoder, source to source", "decoder": "decoder, target to target", "cross": "target to source"}
NARROWEST, WIDEST, LABEL, BAR = 17, 23, 11, 8
QUIET = "dim"


def show_heads(heads: Sequence[Head], title: str, sentences: int) -> None:
    """Role, confidence and importance of every head."""
    console = Console(highlight=False)
    if not console.is_terminal:
        _print_plain(heads)
        return
    console.print(
        Text.assemble("\n  ", (title, "bold"), (f"  {len(heads)} heads, judged by {sentences:,} pairs", QUIET))
    )
    most = max(head.ablation for head in heads)
    for kind, of_kind in _by_kind(heads).items():
        console.print(Text.assemble("\n  ", (KINDS[kind], "bold")))
        for attention, row in groupby(of_kind, key=lambda head: head.attention):
            _print_layer(console, attention, list(row), most)
    _print_legend(console, heads, most)


def _print_layer(console: Console, attention: str, row: Sequence[Head], most: float) -> None:
    """As many heads beside one another as there is room for: their roles, and below how much they matter."""
    room = console.width - LABEL
    cell = min(max(room // len(row), NARROWEST), WIDEST)
    fit = max(room // cell, 1)
    for first in range(0, len(row), fit):
        part = row[first : first + fit]
        upper, lower = Text(_layer(attention).ljust(LABEL) if not first else " " * LABEL), Text(" " * LABEL)
        for head in part:
            upper.append_text(_fit(Text.assemble((f"{head.head} ", QUIET), _role(head)), cell))
            lower.append_text(_fit(_weight(console, head, most), cell))
        console.print(upper, no_wrap=True, crop=True)
        console.print(lower, no_wrap=True, crop=True)


def _role(head: Head) -> Text:
    if not head.roles:
        return Text("·", QUIET)
    role = head.roles[0]
    more = " +" if len(head.roles) > 1 else ""
    return Text(f"{role.evidence.share:.0%} {_name(role)}{more}", STYLES[role.kind])


def _name(role: Role) -> str:
    if role.kind == "positional":
        return OFFSETS.get(role.name, f"{role.name[1:]} {'back' if role.name.startswith('-') else 'ahead'}")
    return {"rare": "rarest", "alignment": "aligned"}.get(role.kind, role.name)


def _weight(console: Console, head: Head, most: float) -> Text:
    """A bar for what is lost without the head, and its confidence."""
    filled = _bar(console, head.ablation / most if most > 0 else 0.0)
    style = STYLES[head.roles[0].kind] if head.roles else QUIET
    return Text.assemble("  ", (filled, style), (f" {head.confidence:.2f}", QUIET))


def _bar(console: Console, share: float) -> str:
    eighths = max(round(8 * BAR * min(share, 1.0)), 0)
    if not console.encoding.lower().startswith("utf"):
        return ("#" * (eighths // 8)).ljust(BAR, ".")
    full, rest = divmod(eighths, 8)
    return ("█" * full + " ▏▎▍▌▋▊▉"[rest] * bool(rest)).ljust(BAR)


def _print_legend(console: Console, heads: Sequence[Head], most: float) -> None:
    found = {role.kind for head in heads for role in head.roles}
    console.print()
    for kind in STYLES:
        if kind in found:
            console.print(Text.assemble("  ", (f"{kind:<11}", STYLES[kind]), (MEANINGS[kind], QUIET)))
    counted = sum(bool(head.roles) for head in heads)
    lines = (
        f"{counted} of {len(heads)} heads have a role; the share: how often their largest weight goes there",
        f"bars: rise of the loss without the head, up to {most:.3f} a token",
        "beside them: mean of the head's largest weight (its confidence)",
    )
    for line in lines:
        console.print(Text(f"  {line}", QUIET))
    console.print()


def _print_plain(heads: Sequence[Head]) -> None:
    print("attention\thead\tconfidence\tablation\tgradient\trole\tof\tshare\tlow\thigh\tbaseline")
    for head in heads:
        facts = f"{head.attention}\t{head.head}\t{head.confidence:.4f}\t{head.ablation:.5f}\t{head.gradient:.5f}"
        for role in head.roles or (None,):
            print(f"{facts}\t{_plain_role(role)}" if role else f"{facts}\t\t\t\t\t\t")


def _plain_role(role: Role) -> str:
    found = role.evidence
    numbers = "\t".join(f"{value:.4f}" for value in (found.share, found.low, found.high, found.baseline))
    return f"{role.kind}\t{role.name}\t{numbers}"


def show_pruning(pruning: Pruning, out: str) -> None:
    """What stayed, what was lost and what was won."""
    console = Console(highlight=False)
    figures = [
        ("heads", pruning.heads, "{:,.0f}"),
        ("parameters", pruning.compared.parameters, "{:,.0f}"),
        ("bytes", pruning.compared.bytes, "{:,.0f}"),
        ("BLEU", pruning.compared.bleu, "{:.2f}"),
        ("CPU seconds", pruning.compared.seconds, "{:.2f}"),
    ]
    if not console.is_terminal:
        for name, change, form in figures:
            print(f"{name}\t{form.format(change.before)}\t{form.format(change.after)}".replace(",", ""))
        print(f"run\t{out}")
        return
    console.print(Text.assemble("\n  ", (f"{pruning.parent} → {out}", "bold"), (f"  by {pruning.by}\n", QUIET)))
    _print_kept(console, pruning)
    console.print(Text(f"\n  {'':<12}{'before':>12}{'after':>12}", QUIET))
    for name, change, form in figures:
        line = f"  {name:<12}{form.format(change.before):>12}{form.format(change.after):>12}"
        console.print(Text.assemble(line, (f"  {_difference(name, change)}", QUIET)))
    console.print(
        Text(
            f"\n  BLEU and decoding on {pruning.compared.sentences:,} sentences, both runs in turn, one thread.\n",
            QUIET,
        )
    )


def _print_kept(console: Console, pruning: Pruning) -> None:
    utf = console.encoding.lower().startswith("utf")
    stays, gone = ("■", "·") if utf else ("#", ".")
    for attention, kept in pruning.kept.items():
        marks = " ".join(stays if head in kept else gone for head in range(pruning.had[attention]))
        console.print(Text.assemble(f"  {attention:<18}", (marks, "cyan")))


def _difference(name: str, change: Change) -> str:
    if name == "BLEU":
        return f"{change.after - change.before:+.2f}"
    return f"{change.after / change.before - 1:+.0%}"


def _by_kind(heads: Sequence[Head]) -> dict[str, list[Head]]:
    groups: dict[str, list[Head]] = {}
    for head in heads:
        groups.setdefault(head.kind, []).append(head)
    return groups


def _layer(attention: str) -> str:
    parts = attention.split(".")
    return f"  layer {parts[1]}" if len(parts) == 3 else f"  {parts[0]}"


def _fit(text: Text, width: int) -> Text:
    text.truncate(width - 1, overflow="ellipsis")
    text.pad_right(width - text.cell_len)
    return text
