"""Records what Regard computes, bit for bit, and compares two recordings, to prove that a refactoring changed nothing.

Every architecture is trained for 50 steps on one thread by `regard train`, for every task that it fits, and so is every
feature of training once. Losses, gradient norms, weights, optimizer states, validation scores and the answers of the
commands must be equal. Weights are compared by position and JSON without its field names, so that both may be renamed.
What users see by name (options, recipe.toml, card.json, /openapi.json) is compared too, but only reported.

    python benchmarks/golden.py record FILE [--only TEXT] [--work DIR]     with the `regard` that is importable
    python benchmarks/golden.py compare OLD NEW [--only TEXT] [--accept CASE/PART] [--surface]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

# ---------------------------------------------------------------------------------------------------------------------
# Everything that has a name in Regard: settings, options, fields. After a rename only this part changes, except that
# the names of cases and tasks on the left stay, because recordings are compared by them.

COMMON = (
    "train.max_steps=50", "train.log_every=1", "train.validate_every=25", "train.checkpoint_every=25",
    "train.learning_rate=0.005", "train.warmup_steps=10", "train.ema_decay=0.9", "train.batch_tokens=256",
    "train.validation_sentences=8", "train.device=cpu", "train.precision=float32", "train.max_minutes=0",
    "train.seed=3",
)  # fmt: skip
TASKS = {
    "translate": (
        'task = "translate"\ntrain = [{ source = "train.en", target = "train.it" }]\n'
        'valid = [{ source = "valid.en", target = "valid.it" }]\ntest = [{ source = "test.en", target = "test.it" }]\n'
        'source_language = "en"\ntarget_language = "it"\n',
        ("tokenizer.vocab_size=300",),
    ),
    "chat": (
        'task = "chat"\ntrain = [{ source = "talks.jsonl" }]\n',
        ("tokenizer.vocab_size=300", "chat.context_turns=3"),
    ),
    "classify": ('task = "classify"\ntrain = [{ source = "reviews.tsv" }]\n', ("tokenizer.vocab_size=60",)),
    "tag": ('task = "tag"\ntrain = [{ source = "chunks.conll" }]\n', ("tag.max_words=40",)),
    "retrieve": ('task = "retrieve"\ntrain = [{ source = "faq.tsv" }]\n', ("tokenizer.vocab_size=300",)),
}
"""The [data] table of a recipe, and the settings of every run of a task."""
SIZES = {
    "transformer": (
        "model.width=32", "model.heads=2", "model.ffn_width=48", "model.encoder_layers=2", "model.decoder_layers=2",
    ),
    "recurrent": ("model.width=32", "model.embedding_width=32", "model.encoder_layers=2", "model.decoder_layers=2"),
    "deep": ("model.width=32", "model.embedding_width=32", "model.encoder_layers=4", "model.decoder_layers=4"),
    "hran": ("model.width=32", "model.embedding_width=32"),
    "han": ("model.width=8", "model.embedding_width=16"),
    "classifier": ("model.width=16", "model.heads=2", "model.ffn_width=24", "model.window_tokens=16"),
    "text encoder": ("model.width=32", "model.heads=2", "model.ffn_width=32", "model.vector_size=32"),
    "gru tagger": (
        "model.char_embedding=8", "model.char_cnn_width=16", "model.embedding_width=8", "model.word_hash_rows=256",
        "model.width=16",
    ),
    "block tagger": (
        "model.char_embedding=8", "model.char_cnn_width=16", "model.embedding_width=8", "model.word_hash_rows=256",
        "model.width=16",
        "model.heads=2", "model.ffn_width=24", "model.encoder_layers=2",
    ),
}  # fmt: skip
WRITERS = {
    "transformer-tiny": ("transformer-tiny", "transformer"),
    "transformer-mini": ("transformer-mini", "transformer"),
    "transformer-small": ("transformer-small", "transformer"),
    "transformer-base": ("transformer-base", "transformer"),
    "transformer-big": ("transformer-big", "transformer"),
    "seq2seq-lstm": ("seq2seq-lstm", "recurrent"),
    "bahdanau": ("bahdanau", "recurrent"),
    "luong-dot": ("luong-dot", "recurrent"),
    "luong-general": ("luong-general", "recurrent"),
    "luong-concat": ("luong-concat", "recurrent"),
    "gnmt": ("gnmt", "deep"),
    "hran": ("hran", "hran"),
}
OTHERS = {
    "classify/han": ("han", "han"),
    "classify/encoder": ("transformer-classifier", "classifier"),
    "tag/gru": ("bigru-crf", "gru tagger"),
    "tag/encoder": ("transformer-crf", "block tagger"),
    "retrieve/dense": ("text-encoder", "text encoder"),
}
"""Architectures by the name of their case: the value of model.arch, and a key of SIZES."""
FEATURES = {
    "translate/muon": ("train.optimizer=muon", "train.muon_learning_rate=0.02", "train.weight_decay=0.01"),
    "translate/r-drop": ("train.r_drop=2", "train.label_smoothing=0"),
    "translate/no average": ("train.ema_decay=0", "train.clip_norm=0", "train.schedule=constant"),
    "translate/mean of checkpoints": ("train.average_checkpoints=3", "train.validate_every=10"),
    "translate/quiet start": ("train.zero_init_residual=true", "model.norm=pre"),
    "translate/cool down": (
        "train.regularization_warmup=20",
        "train.cooldown=0.4",
        "train.patience=3",
        "tokenizer.subword_regularization=0.1",
    ),
    "translate/patience": ("train.patience=1", "train.validate_every=5", "train.cooldown=0.2", "train.max_steps=60"),
    "translate/unigram": ("tokenizer.kind=unigram", "tokenizer.subword_regularization=0.2", "train.schedule=cosine"),
    "translate/words": ("tokenizer.kind=word", "tokenizer.lowercase=true", "search.replace_unknown=true"),
    "translate/characters": ("tokenizer.kind=character", "tokenizer.joint=false", "model.tie_embeddings=none"),
    "translate/hidden words": (
        "model.word_dropout=0.2",
        "train.gradient_accumulation=3",
        "train.adam_betas=[0.8, 0.95]",
    ),
    "translate/rotary": (
        "model.positional_encoding=rotary",
        "model.activation=swiglu",
        "model.attention_window=5",
        "model.norm=pre",
    ),
    "translate/learned": (
        "model.positional_encoding=learned",
        "model.activation=gelu",
        "model.position_mode=add",
        "model.head_width=12",
    ),
    "translate/concatenated": (
        "model.position_mode=concatenate",
        "model.output_bias=true",
        "model.tie_embeddings=target",
    ),
    "classify/several": ("classify.multi_label=true", "classify.truncate=end", "classify.max_tokens=50"),
    "classify/balanced": (
        "classify.class_weights=balanced",
        "classify.word_dropout=0.3",
        "train.regularization_warmup=10",
    ),
    "tag/two layers": ("model.layers=2", "tag.scheme=BIOES", "tag.max_word_pieces=3", "tag.max_words=8"),
    "retrieve/blocks": ("model.encoder_layers=2", "model.pool=attention", "retrieve.match_answers=false"),
}
"""Settings of each feature, in addition to those of a small architecture of the task."""
BUILT_IN = {
    "translate/phrasebook": TASKS["translate"][0].replace(
        'source = "train.en", target = "train.it"', 'source = "phrasebook"'
    ),
    "chat/small talk": TASKS["chat"][0].replace(
        'train = [{ source = "talks.jsonl" }]', 'train = [{ source = "smalltalk" }]'
    )
    + 'valid = [{ source = "few.jsonl" }]\n',
}
"""The [data] tables of runs on the built-in corpora, which must stay the same."""
ANSWERS = {
    "translate": {
        "best": (["translate", "RUN", "test.en", "--json", "--nbest", "2", "--engine", "torch", "--workers", "1"], ""),
        "text": (["translate", "RUN", "test.en", "--scores", "--align", "--engine", "torch", "--workers", "1"], ""),
    },
    "chat": {"replies": (["chat", "RUN", "--json"], "hello\nwhat is my name?\n\nI am Anna.\nwhat is my name?\n")},
    "classify": {
        "verdicts": (["classify", "RUN", "reviews.tsv", "--json"], ""),
        "explained": (
            ["classify", "RUN", "--explain", "--json"],
            "The film was lovely. Friends came.\nA dull day.\n",
        ),
    },
    "tag": {
        "tagged": (["tag", "RUN", "chunks.conll", "--json"], ""),
        "explained": (["tag", "RUN", "--explain", "--json"], "The old dog sees a bird slowly.\nBirds find rivers.\n"),
    },
    "retrieve": {"found": (["chat", "RUN", "--json", "--top", "3"], "explain the cake\nwhat about yeast\nthe moon\n")},
}
"""Commands by task, with their standard input."""


def searched(*settings: str) -> tuple[list[str], str]:
    """Return the command that translates with these search settings, and its standard input."""
    overrides = [word for setting in settings for word in ("--set", setting)]
    return ["translate", "RUN", "test.en", "--json", "--engine", "torch", "--workers", "1", *overrides], ""


ONCE = {
    "translate/transformer-small": {
        "ctranslate2": (["translate", "RUN", "test.en", "--json", "--engine", "ctranslate2"], ""),
        "evaluated": (["evaluate", "RUN", "--source", "test.en", "--target", "test.it", "--json"], ""),
        "inspected": (["inspect", "RUN", "the old dog sees a bird", "--json"], ""),
        "scored": (["score", "RUN", "--source", "test.en", "--target", "test.it"], ""),
        "heads": (["heads", "RUN", "--json"], ""),
        "exact": searched("search.stop=exact", "search.length_penalty_form=gnmt", "search.coverage_penalty=0.2"),
        "diverse": searched(
            "search.beam_size=4", "search.beam_groups=2", "search.diversity_penalty=1", "search.no_repeat_ngram_size=2"
        ),
        "sampled": searched("search.sample=true", "search.top_k=9", "search.top_p=0.9", "search.epsilon_cutoff=0.001"),
        "limited": searched(
            "search.max_length_ratio=1",
            "search.max_length_extra=1",
            "search.max_source_tokens=9",
            "search.retry_failures=false",
        ),
        "suppressed": searched("search.suppress_tokens=['▁l']", "search.min_length=3", "search.repetition_penalty=1.5"),
        "together": (
            [
                "translate",
                "RUN",
                "test.en",
                "--json",
                "--engine",
                "torch",
                "--workers",
                "1",
                "--ensemble",
                "runs/translate-transformer-mini",
                "--set",
                "search.ensemble_average=log-mean",
            ],
            "",
        ),
    },
    "translate/bahdanau": {"inspected": (["inspect", "RUN", "the old dog sees a bird", "--json"], "")},
    "chat/hran": {"inspected": (["inspect", "RUN", "what is my name?", "--context", "I am Anna.", "--json"], "")},
    "classify/han": {"inspected": (["inspect", "RUN", "The film was lovely.", "--json"], "")},
    "tag/gru": {
        "inspected": (["inspect", "RUN", "The old dog sees a bird.", "--json"], ""),
        "scored": (["tag", "RUN", "chunks.conll", "--score", "--json"], ""),
    },
    "retrieve/dense": {"scored": (["index", "RUN", "--score", "faq.tsv", "--json"], "")},
}
"""Commands that are run for one case each."""
SERVED = ("translate/transformer-small", "chat/hran", "classify/han", "tag/gru", "retrieve/dense")
"""Runs that are served."""
REQUESTS = {
    "translate": ("/v1/translate", {"q": ["the old dog sees a bird"], "nbest": 2, "scores": True}),
    "plain": ("/translate", {"q": "the old dog sees a bird", "source": "en", "target": "it"}),
    "classify": ("/v1/classify", {"q": "The film was lovely."}),
    "tag": ("/v1/tag", {"q": "The old dog sees a bird."}),
}
UPDATE, VALIDATION, KIND = "step", "validation", "kind"
CURVE = ("loss", "rate", "norm")
"""Fields of a step in metrics.jsonl; the loss is the running mean that is shown, which depends on every step."""
TIMES = frozenset({"seconds", "tokens_per_second", "created", "started", "date", "speed", "milliseconds"})
"""JSON fields that hold times."""
STATES, WEIGHTS_OF_STATE = "checkpoints", "*.safetensors"


def call(arguments: list[str]) -> int:
    """Run a command of Regard in this process; return the exit code."""
    from regard.cli import main

    return main(arguments)


def parameters(folder: str) -> dict[str, Any]:
    """The trained weights of a run by name, in the order of construction."""
    from regard.run import Run

    return dict(Run.open(folder).load_network().named_parameters())


# ---------------------------------------------------------------------------------------------------------------------
# Data: small languages, the same on every machine


def noun_phrase(chance: random.Random) -> list[tuple[str, str, str]]:
    """Draw a noun phrase: English words, Italian words and labels of chunks."""
    article, adjective, noun = chance.choice(ARTICLES), chance.choice(ADJECTIVES), chance.choice(NOUNS)
    return [(*article, "B-NP"), *([(*adjective, "I-NP")] if chance.random() < 0.6 else []), (*noun, "I-NP")]


ARTICLES = [("the", "il"), ("a", "un"), ("every", "ogni")]
ADJECTIVES = [("small", "piccolo"), ("old", "vecchio"), ("green", "verde"), ("tired", "stanco")]
NOUNS = [
    ("dog", "cane"),
    ("cat", "gatto"),
    ("bird", "uccello"),
    ("river", "fiume"),
    ("tree", "albero"),
    ("book", "libro"),
]
VERBS = [("sees", "vede"), ("likes", "ama"), ("finds", "trova"), ("forgets", "dimentica")]
ADVERBS = [("slowly", "lentamente"), ("gladly", "volentieri"), ("rarely", "raramente")]
GOOD, BAD = ("lovely", "superb", "charming"), ("dull", "awful", "clumsy")
FILLER = ("the", "film", "was", "shown", "on", "a", "Monday", "and", "people", "came", "with", "friends")
NAMES = ("Anna", "Bruno", "Carla", "Dario", "Elena")
KNOWN = {
    "At six in the morning.": ("opening hours", "the morning", "when you start"),
    "Call us three days before.": ("birthday cake", "order a cake", "wedding cake"),
    "Cards are welcome from five euros on.": ("pay by card", "credit card", "contactless payment"),
    "The dough rests for two days.": ("sourdough", "yeast", "ferment the dough"),
}
FORMS = (
    "what about {}",
    "please explain {}",
    "a question on {}",
    "{} please",
    "any news on {}",
    "how about {}",
    "tell {}",
)


def write_data() -> None:
    """Write all data files into the current folder."""
    chance = random.Random(7)
    sentences = []
    for _ in range(260):
        verb, adverb = (*chance.choice(VERBS), "B-VP"), (*chance.choice(ADVERBS), "B-ADVP")
        sentences.append(
            [*noun_phrase(chance), verb, *noun_phrase(chance), *([adverb] if chance.random() < 0.5 else [])]
        )
    unique = list({" ".join(word[0] for word in words): words for words in sentences}.values())
    for part, rows in (("train", unique[:180]), ("valid", unique[180:196]), ("test", unique[196:208])):
        for column, language in ((0, "en"), (1, "it")):
            lines = [" ".join(word[column] for word in words) + "\n" for words in rows]
            Path(f"{part}.{language}").write_text("".join(lines), encoding="utf-8")
    blocks = ["".join(f"{word[0]} {word[2]}\n" for word in words) + ". O\n" for words in unique[:160]]
    Path("chunks.conll").write_text("\n".join(blocks), encoding="utf-8")
    reviews = []
    for place in range(120):
        words = [chance.sample(FILLER, chance.randint(3, 8)) for _ in range(chance.randint(2, 4))]
        chance.choice(words)[1] = chance.choice(GOOD if place % 2 else BAD)
        reviews.append(("good" if place % 2 else "bad", " ".join(" ".join(one).capitalize() + "." for one in words)))
    Path("reviews.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in reviews), encoding="utf-8")
    talks = []
    for place in range(80):
        name, noun = chance.choice(NAMES), chance.choice(NOUNS)[0]
        thing = f"I have a {chance.choice(ADJECTIVES)[0]} {noun}."
        turns = [
            "hello",
            "hi, who are you?",
            f"I am {name}.",
            f"nice to meet you, {name}.",
            thing,
            f"a {noun}! how nice.",
        ]
        talks.append([*turns, "what is my name?", f"you are {name}."][2 * (place % 2) :])
    Path("talks.jsonl").write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in talks), encoding="utf-8")
    Path("few.jsonl").write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in talks[:4]), encoding="utf-8")
    questions = [(form.format(words), answer) for answer, known in KNOWN.items() for words in known for form in FORMS]
    chance.shuffle(questions)
    Path("faq.tsv").write_text("".join(f"{one}\t{answer}\n" for one, answer in questions), encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Recording


class Case(NamedTuple):
    """One run, and the commands to run with it."""

    name: str
    data: str
    settings: tuple[str, ...]
    answers: dict[str, tuple[list[str], str]]


def all_cases() -> Iterator[Case]:
    """Every architecture for every task that it fits, then every feature, then the built-in corpora."""
    small = {"translate": "transformer-small", "chat": "hran", "classify": "han", "tag": "gru", "retrieve": "dense"}
    archs = {f"{task}/{name}": chosen for task in ("translate", "chat") for name, chosen in WRITERS.items()} | OTHERS
    for name, (arch, size) in archs.items():
        if name != "translate/hran":  # it reads conversations
            yield make_case(name, arch, size)
    for name, settings in FEATURES.items():
        task = name.partition("/")[0]
        yield make_case(name, *archs[f"{task}/{small[task]}"], settings)
    for name, data in BUILT_IN.items():
        yield make_case(name, *WRITERS["transformer-tiny"], data=data)


def make_case(name: str, arch: str, size: str, settings: Sequence[str] = (), data: str = "") -> Case:
    """Make a case from the tables above."""
    task = name.partition("/")[0]
    usual, own = TASKS[task]
    return Case(
        name, data or usual, (*COMMON, *own, f"model.arch={arch}", *SIZES[size], *settings),
        ANSWERS[task] | ONCE.get(name, {}),
    )  # fmt: skip


def record(only: str) -> dict[str, Any]:
    """Run all cases in the current folder."""
    import torch

    torch.set_num_threads(1)
    write_data()
    cases = {}
    for case in all_cases():
        if only in case.name:
            began = time.monotonic()
            cases[case.name] = record_case(case)
            print(f"{case.name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    surface: dict[str, Any] = {} if only else {"options": all_options()}
    if all(name in cases for name in SERVED):
        surface["openapi"], cases["served"] = serve()
    return {"cases": cases, "surface": surface}


def record_case(case: Case) -> dict[str, Any]:
    """Train a run, then run its commands."""
    folder = run_folder(case.name)
    recipe = Path(f"{folder}.toml")
    recipe.parent.mkdir(exist_ok=True)
    recipe.write_text("[data]\n" + case.data, encoding="utf-8")
    overrides = [word for setting in case.settings for word in ("--set", setting)]
    command(["train", str(recipe), "--out", folder, *overrides])
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text(encoding="utf-8").split("\n") if line]
    card = json.loads(Path(folder, "card.json").read_text(encoding="utf-8"))
    weights, states = hash_weights(folder)
    return {
        "losses": [[repr(line[name]) for name in CURVE] for line in lines if line[KIND] == UPDATE],
        "weights": weights,
        "states": states,
        "scores": nameless([line for line in lines if line[KIND] == VALIDATION], drop=(KIND, "tokens", "flops")),
        "final scores": nameless(card["scores"]),
        "answers": {name: answer(folder, *asked) for name, asked in case.answers.items()},
        "surface": {
            "recipe": tomllib.loads(Path(folder, "recipe.toml").read_text(encoding="utf-8")),
            "card": without_times(card),
            "info": parsed(command(["info", folder, "--json"])),
        },
    }


def run_folder(name: str) -> str:
    """Return the folder of the run of a case."""
    return "runs/" + name.replace("/", "-").replace(" ", "-")


def command(arguments: list[str], stdin: str = "", *, refusable: bool = False) -> str:
    """Run a command that must succeed; return its output or, if it is `refusable` and fails, the exit code."""
    out, log = io.StringIO(), io.StringIO()
    reader = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(log), mock.patch.object(sys, "stdin", reader):
        code = call(arguments)
    if code and refusable:
        print(f"regard {' '.join(arguments)} ended with {code}: {log.getvalue().strip()}", file=sys.stderr)
        return json.dumps({"exit code": code})
    if code:
        raise SystemExit(f"golden: regard {' '.join(arguments)} ended with {code}:\n{log.getvalue()}")
    return out.getvalue()


def answer(folder: str, arguments: list[str], stdin: str) -> Any:
    """Run a command; return its output as JSON without field names, or as text."""
    words = [folder if word == "RUN" else word for word in arguments]
    return nameless(parsed(command(words, stdin, refusable=True)))


def parsed(text: str) -> Any:
    """Parse JSON or JSON lines; other text becomes a list of lines."""
    with contextlib.suppress(ValueError):
        return without_times(json.loads(text))
    with contextlib.suppress(ValueError):
        return [without_times(json.loads(line)) for line in text.split("\n") if line]
    return text.split("\n")


def without_times(value: Any) -> Any:
    """Remove the JSON fields with times, which differ from run to run."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def nameless(value: Any, drop: Sequence[str] = ()) -> Any:
    """Replace each JSON object by the sorted list of its values, so that fields may be renamed and reordered."""
    if isinstance(value, dict):
        kept = [nameless(item, drop) for key, item in value.items() if key not in TIMES and key not in drop]
        return {"values": sorted(kept, key=lambda item: json.dumps(item, sort_keys=True))}
    if isinstance(value, list):
        return [nameless(item, drop) for item in value]
    return repr(value) if isinstance(value, float) else value


def hash_weights(folder: str) -> tuple[list[str], list[list[str]]]:
    """Return the hash of each weight, in the order of construction, and the hashes of its tensors in the checkpoint."""
    from safetensors.torch import load_file

    named = parameters(folder)
    state = load_file(sorted(Path(folder, STATES).glob(WEIGHTS_OF_STATE))[-1])
    kept: dict[str, list[str]] = {name: [] for name in named}
    for place, tensor in state.items():
        owner = max((name for name in named if place.endswith(f".{name}")), key=len, default="")
        kept.setdefault(owner, []).append(hash_tensor(tensor))
    return [hash_tensor(tensor) for tensor in named.values()], [sorted(hashes) for hashes in kept.values()]


def hash_tensor(tensor: Any) -> str:
    """Return shape, type and a hash of the content."""
    content = tensor.detach().contiguous().numpy().tobytes()
    return f"{list(tensor.shape)} {tensor.dtype} {hashlib.sha256(content).hexdigest()}"


def all_options() -> dict[str, Any]:
    """Return the options of all commands, read from their parsers."""
    listed = [line.split()[0] for line in command(["--help"]).split("\n") if line.startswith("  ") and line[2] != " "]
    found: dict[str, Any] = {}
    for name in listed:
        with mock.patch.object(argparse.ArgumentParser, "parse_known_args", _show_options):
            try:
                call([name])
            except _Shown as shown:
                found[name] = shown.args[0]
    return found


class _Shown(BaseException):
    """Carries the options of a command, and ends the command before it does anything."""


def _show_options(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
    raise _Shown(
        {
            " ".join(action.option_strings) or action.dest: {
                "dest": action.dest,
                "nargs": action.nargs,
                "default": repr(action.default),
                "choices": list(action.choices) if action.choices else None,
                "type": getattr(action.type, "__name__", None),
                "required": action.required,
            }
            for action in parser._actions
        }
    )


def serve() -> tuple[Any, dict[str, Any]]:
    """Start a server; return the description of its API, and its answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    runs = [run_folder(name) for name in SERVED]
    arguments = [sys.executable, "-m", "regard", "serve", *runs, "--port", str(port)]
    with Path("serve.log").open("wb") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as server:
        try:
            wait_until(f"http://127.0.0.1:{port}/health", server)
            described = json.loads(fetch(f"http://127.0.0.1:{port}/openapi.json"))
            replies = {
                name: nameless(parsed(fetch(f"http://127.0.0.1:{port}{path}", body)))
                for name, (path, body) in REQUESTS.items()
            }
        finally:
            server.terminate()
    return described, {"answers": replies}


def wait_until(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            fetch(address)
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"golden: the server does not answer:\n{Path('serve.log').read_text()}")


def fetch(address: str, body: Any = None) -> str:
    """Send a request and return the body of the response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(response.read().decode())


# ---------------------------------------------------------------------------------------------------------------------
# Comparing


def compare(old: dict[str, Any], new: dict[str, Any], accepted: Sequence[str], *, surface: bool) -> int:
    """Print the differences; return 1 if a number or an answer differs, else 0."""
    failures = 0
    for name in sorted(old["cases"].keys() | new["cases"].keys()):
        before, after = old["cases"].get(name), new["cases"].get(name)
        if before is None or after is None:
            print(f"{name}: only in the {'new' if before is None else 'old'} recording")
            failures += name not in accepted
            continue
        old_parts, new_parts = parts_of(before), parts_of(after)
        for part in sorted(old_parts.keys() | new_parts.keys()):
            line = next(differences(old_parts.get(part), new_parts.get(part)), "")
            if line:
                is_accepted = f"{name}/{part}" in accepted
                print(f"{name}/{part}: {line}{' (accepted)' if is_accepted else ''}")
                failures += not is_accepted
    visible = [
        *differences(old["surface"], new["surface"]),
        *(
            line
            for name in old["cases"].keys() & new["cases"].keys()
            for line in differences(old["cases"][name].get("surface", {}), new["cases"][name].get("surface", {}), name)
        ),
    ]
    for line in sorted(visible) if surface else ():
        print(f"surface: {line}")
    total = len(old["cases"])
    print(f"{total} cases, {failures} parts differ; {len(visible)} differences in names and descriptions")
    return 1 if failures else 0


def parts_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a case that must be equal, with one part per answer."""
    numbers = {part: value for part, value in case.items() if part not in ("answers", "surface")}
    return numbers | {f"answers/{name}": value for name, value in case["answers"].items()}


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each difference between two recordings, in order."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key not in old or key not in new:
                yield f"{where} {key}: only in the {'old' if key in old else 'new'} recording"
            else:
                yield from differences(old[key], new[key], f"{where} {key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {len(old)} values before, {len(new)} now: {lost(old, new)}"
        for place, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, other, f"{where}[{place}]")
    elif old != new:
        yield f"{where}: {shortened(old)} before, {shortened(new)} now"


def lost(old: list[Any], new: list[Any]) -> str:
    """Return the entries that only one of two lists has, as text."""
    gone, came = [item for item in old if item not in new], [item for item in new if item not in old]
    return f"gone {shortened(gone)}, new {shortened(came)}"


def shortened(value: Any) -> str:
    """Return a value as JSON, cut to 200 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + " ..."


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="run all cases and write the results")
    recording.add_argument("file", type=Path)
    recording.add_argument("--only", default="", help="only cases whose name contains this text")
    recording.add_argument("--work", type=Path, help="an empty folder for the runs, which are kept")
    comparing = actions.add_parser("compare", help="exit with 1 if losses, weights, scores or answers differ")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--only", default="", help="only cases whose name contains this text")
    comparing.add_argument("--accept", action="append", default=[], metavar="CASE/PART", help="a wanted difference")
    comparing.add_argument("--surface", action="store_true", help="list differences of names and descriptions too")
    options = parser.parse_args()
    if options.action == "compare":
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (options.old, options.new))
        for recording in (old, new):
            recording["cases"] = {name: case for name, case in recording["cases"].items() if options.only in name}
        return compare(old, new, options.accept, surface=options.surface)
    file = options.file.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(work):  # relative paths: recordings contain no absolute paths
            found = record(options.only)
    file.write_text(json.dumps(found, ensure_ascii=False, indent=0), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
