"""Analyses of the demo's model: alignment, faithfulness of explanations, effective attention, token identifiability.

The phrasebook has gold alignments. Heads and rules of alignment are chosen on its validation part and scored on its
test part; explanations are tested by deleting the words that they rank highest; effective attention is compared with
the raw weights, for a sentence and for a length beyond the width of a head; hidden states are mapped back to their
tokens. Head roles and pruning are commands: `regard heads RUN`, `regard prune RUN --out RUN2`.

    make bench-inside       (make demo first; python benchmarks/inside.py [RUN] [--sentences 50])
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import regard
from multi30k import OUT
from regard.analysis.alignment import best_heads, choose_heads, score_choice
from regard.analysis.effective_attention import effective_attention, seen_keys
from regard.analysis.faithfulness import EVERY_WAY
from regard.data.builtin import Phrase, read_phrases
from regard.tasks.translate.alignment import Aligner
from regard.tasks.translate.inspect.explain import ExplainedExample, compare_explanations, identify
from regard.tasks.translate.translator import Translator

SENTENCE = "The animal didn't cross the street because it was too tired."
WAYS = EVERY_WAY | {"integrated (unk)": ("integrated", {"baseline": "unk"})}


def alignment(translator: Translator) -> dict[str, Any]:
    """Print the alignment error rates of the chosen heads, of the best single head, and of the mean of all heads."""
    aligner = Aligner(translator.model, translator.source, translator.target)

    def maps_and_gold(part: tuple[Phrase, ...]) -> tuple[Any, list[Any]]:
        texts = [phrase.source for phrase in part], [phrase.target for phrase in part]
        return aligner.word_maps(*texts), [phrase.alignment for phrase in part]

    valid, valid_gold = maps_and_gold(read_phrases("valid"))
    test, test_gold = maps_and_gold(read_phrases("test"))
    ranked = best_heads(valid, valid_gold)
    rows = {
        "heads chosen together": choose_heads(valid, valid_gold),
        "the best single head": next(one for one in ranked if len(one.choice.heads) == 1),
        "the mean of all heads": next(one for one in ranked if one.name == "all heads"),
    }
    found = {}
    print(f"\n{'alignment, test part':28}{'AER':>8}{'precision':>11}{'recall':>8}   heads, rule")
    for name, row in rows.items():
        scores = score_choice(row.choice, test[row.choice.shift], test_gold)
        found[name] = scores._asdict() | {"choice": row.choice.as_dict()}
        heads = f"{len(row.choice.heads)} heads" if len(row.choice.heads) > 1 else row.name
        print(f"{name:28}{scores.aer:8.3f}{scores.precision:11.3f}{scores.recall:8.3f}   {heads}, {row.choice.rule}")
    return found


def faithfulness(translator: Translator, sentences: int) -> dict[str, Any]:
    """Print the faithfulness of the explanation methods."""
    examples = [ExplainedExample(one.source, one.target, one.alignment) for one in read_phrases("test")[:sentences]]
    found = compare_explanations(translator, examples, WAYS)
    print(f"\n{found}")
    return found.as_dict()


def effective(translator: Translator) -> dict[str, Any]:
    """Print figures about the effective attention of a sentence, and of the same sentence repeated four times."""
    found: dict[str, Any] = {}
    print(f"\n{'effective attention':28}{'tokens':>8}{'null space':>12}{'correlation':>13}{'output moved':>14}")
    for times in (1, 4):
        trace = translator.trace(" ".join([SENTENCE] * times), translator.translate([SENTENCE])[0].text)
        name = "encoder.0.self"
        parts = trace.weights[name], trace.values[name], trace.outward[name]
        result = effective_attention(*parts, seen_keys(parts[0]))
        change = (result.effective_HTS - parts[0]).double()
        moved = float((change @ parts[1].double() @ parts[2].double()).abs().max())
        row = {
            "tokens": parts[0].shape[-1],
            "dimension": result.dimension_H.tolist(),
            "correlation": result.correlation_H.tolist(),
            "output_moved": moved,
        }
        found[str(times)] = row
        mean = sum(row["correlation"]) / len(row["correlation"])
        print(f"{name:28}{row['tokens']:8}{max(row['dimension']):12}{mean:13.3f}{moved:14.1e}")
    return found


def main() -> None:
    """Run all analyses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="runs/demo", metavar="RUN")
    parser.add_argument("--sentences", type=int, default=50)
    options = parser.parse_args()
    if not Path(options.run).is_dir():
        raise SystemExit(f"{options.run}: no run there; make demo trains it")
    torch.manual_seed(1)
    translator = regard.load(options.run)
    found = {"alignment": alignment(translator), "effective": effective(translator)}
    lines = [phrase.source for phrase in read_phrases("valid")][:500]
    traced = identify(translator, lines, whole_vocabulary=True)
    print(f"\n{traced}")
    found["identifiability"] = traced.as_dict()
    found["faithfulness"] = faithfulness(translator, options.sentences)
    OUT.mkdir(exist_ok=True)
    (OUT / "inside.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
