"""A run folder: a trained model with everything that is needed to use it. Opening one is safe: no file is unpickled.

recipe.toml           all settings of the run; the version of the format; the sizes of the network
tokenizer.*           or source.* and target.* if each side has its own vocabulary
weights.safetensors   the weights
metrics.jsonl         one line per logged step and per validation
card.json             data hashes, versions, scores (with the settings of each metric), cost of training
report.html           web page with learning curves, scores and examples
held-out.jsonl        examples not used in training, to measure how much export or pruning changes the scores
base.json             of a fine-tuned run: the held-out examples of its base, and their scores before fine-tuning
labels.json           the labels of a classifier or tagger, in the order of the outputs of the network
normalization.json    mean and deviation of the training frames, for a model that reads frames
dictionary.tsv        of a translator with a word vocabulary: translations of words, to replace unknown words
checksums.json        the SHA-256 of recipe, tokenizers, labels, weights, held-out examples, dictionary, normalization
                      and base.json, checked on loading
knowledge.jsonl       questions and answers of a retriever; vectors.safetensors: embeddings of the questions
word-counts.json      counts of the words in the training texts, for word vectors
frozen-rows.json      indices of the embeddings that are not trained, with train.freeze_embeddings
checkpoints/          the state that `regard resume` continues from
store/                token ids of the training data, removed when training ends
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import plugins
from regard.checksums import Checksums
from regard.config import Recipe
from regard.config.recipe import FORMAT, find_task, make_recipe, read_table, to_table
from regard.errors import RunError, nearest
from regard.files import ABANDONED, atomic_folder, remove_drafts, write_atomically
from regard.system import exclusive
from regard.text.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.frame_store import Normalization
    from regard.data.pairs import Pair
    from regard.models.base import Network, Seq2Seq


RECIPE = "recipe.toml"
WEIGHTS = "weights.safetensors"
METRICS = "metrics.jsonl"
CARD = "card.json"
REPORT = "report.html"
HELD_OUT = "held-out.jsonl"
LABELS = "labels.json"
DICTIONARY = "dictionary.tsv"
BASE = "base.json"
NORMALIZATION = "normalization.json"
TOKENIZERS = tuple(f"{side}.{ending}" for side in ("tokenizer", "source", "target") for ending in ("json", "model"))
CHECKED = (
    RECIPE,
    LABELS,
    WEIGHTS,
    HELD_OUT,
    DICTIONARY,
    BASE,
    NORMALIZATION,
    *TOKENIZERS,
)  # files that have a checksum
LOCK = ".lock"  # locked by the process that trains in the folder
PREPARING = ".preparing"
"""File in a run folder while the data is prepared. If preparation was stopped, `Run.create` clears the folder."""


class Run:
    """Reads and writes the files of one run folder. `Run.open` opens an existing run, `Run.create` makes a new one."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.checksums = Checksums(folder)
        self._made: list[Path] = []

    @classmethod
    def create(cls, folder: str | Path) -> Run:
        """Make a run folder. `folder` must be missing or empty, or contain a run whose preparation was stopped."""
        folder = cls.refuse_existing(folder)
        run = cls(folder)
        if (folder / PREPARING).is_file():
            with run.locked():  # refuses a folder that another process is preparing now
                run.discard()
        run._made = [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{folder}: cannot make the run folder ({error.strerror}); choose another --out") from None
        return run

    @staticmethod
    def refuse_existing(folder: str | Path) -> Path:
        """Return the path of `folder`; raise an error if `create` cannot use it, because it is a file or not empty."""
        folder = Path(folder)
        is_free = (folder / PREPARING).is_file() or not folder.exists()
        if not is_free and (not folder.is_dir() or any(folder.iterdir())):
            hint = f'; "regard resume {folder}" continues it' if (folder / "checkpoints").is_dir() else ""
            raise RunError(f"{folder}: exists already; choose another --out{hint}")
        return folder

    @contextlib.contextmanager
    def preparing(self) -> Iterator[None]:
        """Lock the folder of a new run, and mark it as not prepared until the `with` block ends without an error.

        The block must write everything that `regard resume` needs.
        """
        mark = self.folder / PREPARING
        try:
            mark.touch()
        except OSError as error:
            raise RunError(f"{self.folder}: cannot write here ({error.strerror}); check the permissions") from None
        with self.locked():
            yield
            mark.unlink()

    def discard(self) -> None:
        """Remove the run folder, and the parent folders that `create` made, if they are empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for place in self._made:
            with contextlib.suppress(OSError):
                place.rmdir()

    @classmethod
    def open(cls, folder: str | Path | Run) -> Run:
        """Open a run folder. A `Run` is returned as it is."""
        if isinstance(folder, Run):
            return folder
        folder = Path(folder)
        if not folder.is_dir():
            siblings = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
            raise RunError(f"{folder}: there is no such run folder{nearest(folder.name, siblings)}")
        if (folder / PREPARING).is_file():
            raise RunError(f"{folder}: was stopped while its data was prepared; train again with the same --out")
        if not (folder / RECIPE).is_file():
            raise RunError(f"{folder}: not a run folder (it has no {RECIPE}); give the folder of a run")
        return cls(folder)

    @cached_property
    def _table(self) -> dict[str, Any]:
        self.checksums.check(RECIPE)
        return read_table(self.folder / RECIPE)

    @cached_property
    def recipe(self) -> Recipe:
        """The settings of this run."""
        plugins.require(self.card.get("plugins", ()), self.folder)
        return make_recipe(self._table, where=str(self.folder / RECIPE))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Arguments of the network's constructor, by name, such as vocabulary sizes or the number of labels."""
        sizes = self._table.get("sizes", {})
        if not (isinstance(sizes, dict) and all(type(size) is int and size > 0 for size in sizes.values())):
            raise RunError(
                f"{self.folder / RECIPE}: [sizes] must hold whole numbers above 0; take the file from a copy of the run"
            )
        return dict(sizes)

    def write_recipe(self, recipe: Recipe, sizes: Mapping[str, int] | None = None) -> None:
        """Write recipe.toml: the settings and `sizes`. If `sizes` is None, the stored sizes are kept.

        `sizes` are arguments of the network's constructor, such as the vocabulary sizes or the number of labels.
        """
        import tomli_w

        if sizes is None:
            sizes = self.sizes if (self.folder / RECIPE).is_file() else {}
        table = {"format": FORMAT, **to_table(recipe), **({"sizes": dict(sizes)} if sizes else {})}
        self.checksums.write(RECIPE, tomli_w.dumps(table).encode())
        for name in ("_table", "recipe", "sizes"):
            self.__dict__.pop(name, None)

    def with_recipe(self, recipe: Recipe) -> Run:
        """The same run with other settings, which are not written into its folder."""
        other = Run(self.folder)
        other.__dict__["recipe"] = recipe
        return other

    def write_sizes(self, **sizes: int) -> None:
        """Store arguments of the network's constructor, e.g. vocabulary sizes. recipe.toml must already exist."""
        self.write_recipe(self.recipe, sizes)

    @property
    def has_tokenizers(self) -> bool:
        return any((self.folder / name).is_file() for name in TOKENIZERS)

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The source and the target tokenizer: the same object twice if both sides share one tokenizer."""
        for name in TOKENIZERS:
            self.checksums.check(name)
        if self.recipe.tokenizer.joint and not (self.folder / "source.json").is_file():
            joint = load_tokenizer(self.folder, "tokenizer")
            return joint, joint
        return load_tokenizer(self.folder, "source"), load_tokenizer(self.folder, "target")

    def write_tokenizers(self, source: Tokenizer, target: Tokenizer) -> None:
        named = {"tokenizer": source} if source is target else {"source": source, "target": target}
        for name, tokenizer in named.items():
            for file, content in tokenizer.files(name).items():
                self.checksums.write(file, content)

    def new_store(self) -> contextlib.AbstractContextManager[Path]:
        """Context manager: yields a new folder for the token ids of the training data, then moves it to store/."""
        return atomic_folder(self.folder / "store")

    @property
    def is_finished(self) -> bool:
        """Whether training has ended: the scores are stored and the training data is removed."""
        return "scores" in self.card and not (self.folder / "store").exists()

    def require(self, *tasks: str) -> Run:
        """Return this run if its task is one of `tasks`; otherwise raise an error that names the right command."""
        task = find_task(self.recipe.data.task)
        if task.name not in tasks:
            raise RunError(f'{self.folder} {task.does}; use "regard {task.command} {self.folder}"')
        return self

    def require_model_kind(self, kind: str) -> Run:
        """Return this run if its network is of this `kind`, e.g. "seq2seq"; otherwise raise an error like `require`."""
        return self if find_task(self.recipe.data.task).model_kind == kind else self.require()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of a classifier or tagger, in the order of the outputs of the network."""
        path = self.folder / LABELS
        self.checksums.check(LABELS)
        try:
            return tuple(str(label) for label in json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path}: cannot read the labels ({error}); take the file from a copy of the run") from None

    def write_labels(self, labels: Sequence[str]) -> None:
        self.checksums.write(LABELS, (json.dumps(list(labels), indent=1, ensure_ascii=False) + "\n").encode())
        self.__dict__.pop("labels", None)

    @cached_property
    def dictionary(self) -> dict[str, str]:
        """Translations of words, by which search.replace_unknown replaces unknown words; empty if there is no file."""
        path = self.folder / DICTIONARY
        if not path.is_file():
            return {}
        self.checksums.check(DICTIONARY)
        try:
            entries = dict(line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line)
        except (OSError, ValueError) as error:
            remedy = "take the file from a copy of the run, or delete it: unknown words are then copied"
            raise RunError(f"{path}: cannot read the dictionary ({error}); {remedy}") from None
        return entries

    def write_dictionary(self, entries: Mapping[str, str]) -> None:
        self.checksums.write(DICTIONARY, "".join(f"{one}\t{other}\n" for one, other in entries.items()).encode())
        self.__dict__.pop("dictionary", None)

    @cached_property
    def normalization(self) -> Normalization:
        """Mean and deviation of the training frames, of a run that reads frames."""
        from regard.data.frame_store import Normalization

        path = self.folder / NORMALIZATION
        self.checksums.check(NORMALIZATION)
        try:
            return Normalization.from_json(path.read_bytes(), path)
        except OSError as error:
            problem = f"cannot read the normalization ({error.strerror})"
            raise RunError(f"{path}: {problem}; take the file from a copy of the run") from None

    def write_normalization(self, normalization: Normalization) -> None:
        self.checksums.write(NORMALIZATION, normalization.to_json())
        self.__dict__.pop("normalization", None)

    def build_network(self) -> Network:
        """The network of this run, with newly initialized weights."""
        from regard.models import build

        if not self.sizes:
            raise RunError(f"{self.folder / RECIPE}: section [sizes] is missing; take the file from a copy of the run")
        return build(self.recipe.model, **self.sizes)

    def load_model(self) -> Seq2Seq:
        """The trained encoder-decoder, in evaluation mode."""
        from regard.models.base import Seq2Seq

        model = self.require_model_kind("seq2seq").load_network()
        assert isinstance(model, Seq2Seq)
        return model

    def load_network(self) -> Network:
        """The trained network, in evaluation mode."""
        import torch
        from safetensors.torch import load_file

        path = self.require_weights()
        self.checksums.check(WEIGHTS)
        with torch.device("meta"):  # takes no memory: the sizes in the recipe may be wrong by any factor
            require_shapes(self.build_network(), stored_shapes(path), where=str(path))
        model, stored = self.build_network(), load_file(path)
        for name, tensor in stored.items():
            if not torch.isfinite(tensor).all():
                problem = f'tensor "{name}" has values that are not finite numbers'
                raise RunError(f"{path}: {problem}; take the file from a copy of the run")
        restore(model, stored, where=str(path))
        model.eval()
        return model.requires_grad_(False).to(torch.float32)

    def require_weights(self) -> Path:
        """The path of the file of weights, which is not loaded; raises an error if it is missing or damaged."""
        from safetensors import safe_open

        path = self.folder / WEIGHTS
        if not path.is_file() and self.is_finished:
            raise RunError(f"{self.folder}: {WEIGHTS} is missing; take it from a copy of the run")
        if not path.is_file():
            raise RunError(f'{self.folder}: has no {WEIGHTS} yet; "regard resume {self.folder}" continues its training')
        try:
            with safe_open(path, framework="numpy"):
                return path
        except Exception as error:  # safetensors raises its own untyped errors
            raise RunError(f"{path}: damaged ({error}); take it from a copy of the run") from None

    def write_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Write weights.safetensors, which `load_network` reads; `tensors`: the weights by name."""
        from safetensors.torch import save

        content = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        self.checksums.write(WEIGHTS, save(content, metadata={"regard": self.recipe.model.arch}))

    @property
    def card(self) -> dict[str, Any]:
        """The content of card.json: data hashes, versions, scores and cost of this run; empty if there is no file."""
        path = self.folder / CARD
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot read the card ({error}); take the file from a copy of the run") from None

    def write_card(self, card: Mapping[str, Any]) -> None:
        write_atomically(self.folder / CARD, (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode())

    def metrics(self) -> list[dict[str, Any]]:
        """The entries of metrics.jsonl, oldest first; for steps that a resumed run repeated, only the later entries."""
        kept: list[dict[str, Any]] = []
        for line in reversed(read_metrics(self.folder / METRICS)):
            if not kept or line["step"] <= kept[-1]["step"]:
                kept.append(line)
        return kept[::-1]

    def write_report(self, html: str) -> Path:
        write_atomically(self.folder / REPORT, html.encode())
        return self.folder / REPORT

    def held_out(self) -> list[Pair]:
        """Sentence pairs that were not used in training; empty for imported runs and for tasks without pairs."""
        from regard.data.pairs import Pair

        records = self.held_out_records()
        return [Pair(one["source"], one["target"]) for one in records if one.keys() >= {"source", "target"}]

    def held_out_records(self) -> list[dict[str, Any]]:
        """Examples that were not used in training, as `write_held_out` stored them; empty if there are none."""
        path = self.folder / HELD_OUT
        if not path.is_file():
            return []
        self.checksums.check(HELD_OUT)
        remedy = "take the file from a copy of the run, or delete it: the run works without it"
        try:
            records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot read the held-out examples ({error}); {remedy}") from None
        if not all(isinstance(one, dict) for one in records):
            raise RunError(f"{path}: a line is not a JSON object; {remedy}")
        return records

    def write_held_out(self, records: Sequence[Pair | Mapping[str, Any]]) -> None:
        """Store examples that are not used in training: sentence pairs, or JSON objects in the format of the task."""
        tables = [one if isinstance(one, Mapping) else one._asdict() for one in records]
        self.checksums.write(HELD_OUT, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in tables).encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, so that no other process changes it; remove temporary files that killed processes left."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(exclusive(self.folder / LOCK))
            except BlockingIOError:
                raise RunError(
                    f"{self.folder}: another process is training in this folder or changing it; wait until it ends"
                ) from None
            except OSError as error:
                raise RunError(
                    f"{self.folder}: cannot lock this folder ({error.strerror}); check the permissions"
                ) from None
            # Only the process with the lock writes weights, store and checkpoints, so their drafts are abandoned.
            remove_drafts(self.folder, WEIGHTS)
            remove_drafts(self.folder, "store", folders=True)
            remove_drafts(self.folder, older_than=ABANDONED)
            for folder in (self.folder / "checkpoints", self.folder / "checkpoints" / "best"):
                if not folder.is_symlink():
                    remove_drafts(folder)
            yield


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The entries of a metrics file (metrics.jsonl), in order. Damaged lines are skipped; a missing file has none."""
    try:
        lines = path.read_bytes().split(b"\n")  # a text may contain other line separators
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path}: cannot read the metrics ({error.strerror}); check the permissions") from None
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("kind"), str) and isinstance(entry.get("step"), int):
                found.append(entry)
    return found


def open_together(run: str | Path | Run, *others: str | Path) -> list[Run]:
    """Open the runs of an ensemble. A run without weights, or with another vocabulary than the first, is an error."""
    first, *more = runs = [Run.open(folder).require_model_kind("seq2seq") for folder in (run, *others)]
    for member in runs:
        member.require_weights()
    for member in more:
        if [side.hash() for side in member.tokenizers] != [side.hash() for side in first.tokenizers]:
            raise RunError(
                f"{member.folder}: its vocabulary differs from that of {first.folder}; "
                "an ensemble needs runs with equal vocabularies"
            )
    return runs


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a file of weights, by name, from its header alone."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)


def require_shapes(model: Network, shapes: Mapping[str, tuple[int, ...]], *, where: str) -> None:
    """Raise an error unless `shapes` are those of the parameters of a model, by name. `where` begins the message."""
    own = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    missing, unused = sorted(own.keys() - shapes.keys()), sorted(shapes.keys() - own.keys())
    problem = f'missing tensor "{missing[0]}"' if missing else f'unexpected tensor "{unused[0]}"' if unused else ""
    for name in () if problem else own:
        if shapes[name] != own[name]:
            problem = f'tensor "{name}" has the shape {shapes[name]}, not {own[name]}'
            break
    if problem:
        remedy = "take recipe.toml and weights.safetensors from the same copy of the run"
        raise RunError(f"{where}: the weights do not fit the recipe: {problem}; {remedy}")


def restore(model: Network, stored: Mapping[str, Tensor], *, where: str) -> None:
    """Copy the tensors `stored` into the parameters of a model, by name; they must fit (`require_shapes`)."""
    import torch

    require_shapes(model, {name: tuple(tensor.shape) for name, tensor in stored.items()}, where=where)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(stored[name])
