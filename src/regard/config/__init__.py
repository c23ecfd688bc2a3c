"""Settings and their defaults, as frozen dataclasses. Tasks share data, pictures, tokenizer, train and search.

The string below a field is its help text, in `--help` and in the documentation. `recipe.py` reads TOML into these
classes. The settings and presets of an architecture are in its file in `models/`, which is imported only when one of
its presets is used: `registry.py` maps every preset to its file. The settings of a task are in the folder of the task.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from regard import registry
from regard.config.ranges import CheckedSettings, Count, CountOrZero, NotNegative, Positive, Range, Share, require
from regard.errors import SettingsError, nearest

DEFAULT_ARCH = "transformer-small"  # for recipes without model.arch
ACTIVATIONS_PER_UNIT = 14
"""Measured number of activations that training stores for the backward pass, per layer, token and unit of width."""


@dataclass(frozen=True)
class Corpus(CheckedSettings):
    """One corpus: sentence pairs, or one file (`source`) for tasks other than translation."""

    section: ClassVar[str] = "data"

    source: str = ""
    """File of source sentences; or one file with both sides (TSV, JSON lines, TMX, PO, Parquet); or "phrasebook"."""
    target: str = ""
    """File of target sentences, one line per line of the source file; empty when `source` holds both sides."""
    weight: Positive = 1.0
    """How often each pair is used per epoch: 2 means twice, 0.5 means a new random half of the pairs in each epoch."""


@dataclass(frozen=True)
class DataSettings(CheckedSettings):
    """The task, and its training, validation and test data."""

    section: ClassVar[str] = "data"

    task: str = next(iter(registry.TASKS))
    """What to learn: the name of a task, e.g. "tag"; `regard train --help` lists them."""
    train: tuple[Corpus, ...] = ()
    """The corpora to train on, as [[data.train]] tables."""
    valid: tuple[Corpus, ...] = ()
    """The corpora to validate on; empty: `valid_size` examples of the training data are held out."""
    test: tuple[Corpus, ...] = ()
    """The corpora to score once, after training."""
    valid_size: CountOrZero = 1000
    """Number of examples to hold out when `valid` is empty; at most 5 % of sentence pairs, or 10 % of documents."""
    test_size: CountOrZero = 1000
    """Number of examples to hold out for the final score if `valid` and `test` are empty; limited like `valid_size`."""
    source_language: str = ""
    """Language code of the source, e.g. "en": stored in the card, and selects the source side in TMX and PO files."""
    target_language: str = ""
    """Language code of the target."""
    max_length: Annotated[int, Range(4)] = 250
    """Pairs with more tokens than this on either side are left out of training and of the validation loss."""


@dataclass(frozen=True)
class PictureSettings(CheckedSettings):
    """How pictures are read, divided into patches, and changed at random in training (augmentation)."""

    section: ClassVar[str] = "pictures"

    images: str = ""
    """Folder or ZIP file with the pictures that the corpora name."""
    size: Annotated[tuple[int, int], Range(4, 1024)] = (64, 64)
    """Height and width in pixels to which every picture is scaled."""
    fit: Literal["pad", "crop", "stretch"] = "pad"
    """How a picture of another shape is scaled: with white edges (pad), without its edges (crop), or stretched."""
    channels: Literal[3, 1] = 3
    """3: red, green and blue; 1: shades of gray."""
    patch_size: Annotated[int, Range(1, 256)] = 8
    """Height and width of a patch in pixels; the encoder reads one vector per patch."""
    convolutions: Annotated[int, Range(0, 16)] = 2
    """Convolutions between two halvings of the picture, which compute the vectors of patches; 0: a linear map."""
    mean: Annotated[float, Range(-1, 1)] = 0.0
    """Mean of all pixels, from -1 (black) to 1 (white), which is subtracted (set by the plan)."""
    deviation: Annotated[float, Range(above=0, high=2)] = 1.0
    """Standard deviation of all pixels, by which the difference is divided (set by the plan)."""
    shift: Share = 0.0
    """Augmentation: largest random shift, as a share of height and width."""
    zoom: Share = 0.0
    """Augmentation: largest random change of the scale; 0.2 means from 0.8 to 1.25 times, which also crops."""
    rotation: Annotated[float, Range(0, 180)] = 0.0
    """Augmentation: largest random rotation in degrees."""
    flip: Share = 0.0
    """Augmentation: probability to exchange left and right; only for pictures whose meaning then stays the same."""
    color: Share = 0.0
    """Augmentation: largest random change of brightness, contrast and saturation; 0.2 means 0.8 to 1.2 times."""
    erase: Share = 0.0
    """Augmentation: probability to replace a random rectangle by gray (random erasing, Zhong et al. 2020)."""

    def check(self) -> None:
        require(
            not any(side % self.patch_size for side in self.size),
            f"pictures.size must be multiples of pictures.patch_size = {self.patch_size}, not {list(self.size)}",
        )
        is_power = self.patch_size > 1 and self.patch_size & (self.patch_size - 1) == 0
        require(
            not self.convolutions or is_power,
            f"pictures.convolutions needs a patch_size of 2, 4, 8, ..., not {self.patch_size}; or set it to 0",
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that a network gets which reads these pictures."""
        height, width = self.size
        sizes = {"picture_channels": self.channels, "picture_height": height, "picture_width": width}
        return (
            sizes | {"patch_size": self.patch_size} | ({"convolutions": self.convolutions} if self.convolutions else {})
        )


@dataclass(frozen=True)
class TokenizerSettings(CheckedSettings):
    """How text is divided into tokens: kind and size of the vocabulary."""

    section: ClassVar[str] = "tokenizer"

    kind: Literal["bpe", "unigram", "word", "character"] = "bpe"
    """Subwords by BPE or unigram (SentencePiece, can represent any text), whole words, or characters."""
    vocab_size: Annotated[int, Range(8)] = 8000
    """Number of tokens in the vocabulary, including the special ones."""
    joint: bool = True
    """One vocabulary for both sides (needed to tie source and target embeddings), or one vocabulary per side."""
    lowercase: bool = False
    """Convert text to lower case before tokenizing. The case of the output is lost."""
    subword_regularization: Share = 0.0
    """Subword regularization in training: share of BPE merges dropped, or 1 / temperature of unigram sampling."""
    copy_from: str = ""
    """A run whose tokenizer is copied, with its kind and size; of two tokenizers, other tasks copy the target's."""
    special_tokens: tuple[str, ...] = ()
    """Strings that are always encoded as one token each; chat uses one to mark the end of a turn."""

    def check(self) -> None:
        require(
            not self.subword_regularization or self.kind in ("bpe", "unigram"),
            'tokenizer.subword_regularization needs subwords; set it to 0, or tokenizer.kind to "bpe" or "unigram"',
        )
        require(all(self.special_tokens), "tokenizer.special_tokens must not contain an empty string")


@dataclass(frozen=True)
class TrainSettings(CheckedSettings):
    """How the model is trained: optimization, regularization, validation, checkpoints and hardware."""

    section: ClassVar[str] = "train"

    seed: int = 1
    """The seed of the data order, the initial weights and dropout."""
    start_from: str = ""
    """A run with an encoder, e.g. a masked language model: its weights and its tokenizer are the starting point."""
    embeddings: str = ""
    """Word vectors that the embeddings start from, of the source or the only vocabulary: a file, or a run."""
    target_embeddings: str = ""
    """The same for the embeddings of the target."""
    freeze_embeddings: bool = False
    """Do not train the embeddings of words that have a vector in these files; all others are trained."""
    max_steps: Count = 100_000
    """Stop after this many steps."""
    max_minutes: NotNegative = 0.0
    """Stop after this many minutes of training and validation, not counting the reading of data; 0: no limit."""
    max_flops: NotNegative = 0.0
    """Stop after this many floating-point operations of training steps; 0: no limit."""
    clock: Literal["wall", "processor"] = "wall"
    """How minutes are measured: wall-clock time, or CPU time per thread, which other programs do not change."""
    batch_tokens: Annotated[int, Range(16)] = 4096
    """Tokens per batch: number of pairs times the padded length of the longer side."""
    gradient_accumulation: Count = 1
    """Number of batches whose gradients are summed into one step."""
    optimizer: Literal["adam", "muon", "adagrad"] = "adam"
    """Adam; or Muon for the weight matrices of hidden layers and Adam for the rest; or Adagrad with a rate per row."""
    learning_rate: Positive = 1e-3
    """Peak learning rate, reached at the end of the warm-up."""
    muon_learning_rate: Positive = 0.03
    """Peak learning rate of the weight matrices that Muon updates."""
    warmup_steps: CountOrZero = 400
    """Number of steps over which the learning rate increases to its peak."""
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    """How the learning rate decreases after the warm-up."""
    cooldown: Share = 0.0
    """Share of training, at the end, in which learning rate and subword regularization decrease to 0; 0: none."""
    zero_init_residual: bool = False
    """Initialize the output of every Transformer sub-layer to zero, so that blocks start as the identity."""
    regularization_warmup: CountOrZero = 0
    """Number of steps over which dropout and subword regularization increase from zero to full strength."""
    adam_betas: Annotated[tuple[float, float], Range(0, below=1)] = (0.9, 0.98)
    """Adam's decay rates."""
    adam_epsilon: Positive = 1e-9
    """Adam's epsilon."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay on matrices."""
    label_smoothing: Share = 0.1
    """Share of the target probability that the loss distributes evenly over all tokens."""
    r_drop: NotNegative = 0.0
    """Weight of R-Drop: each batch is computed with two dropout masks, and the two predictions should agree; 0: off."""
    clip_norm: NotNegative = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    ema_decay: Share = 0.998
    """Decay of the exponential moving average of the weights, which is validated and saved; 0: no averaging."""
    average_checkpoints: Annotated[int, Range(0, 1000)] = 0
    """Validate and save the mean of the weights at the last N validations, not the moving average; 0: off."""
    validate_every: Count = 500
    """Number of steps between validations."""
    validate_at_start: bool = False
    """Validate the initial weights, too: fine-tuning then keeps them if it finds no better ones."""
    checkpoint_every: Count = 500
    """Number of steps between checkpoints to resume from."""
    patience: CountOrZero = 10
    """Stop after this many validations without a better score (or lower loss, if the task writes text); 0: never."""
    metric: str = "loss"
    """The validation score that selects the best weights; each task has its own scores and its own default."""
    validation_sentences: CountOrZero = 500
    """Number of validation sentences to translate at each validation; 0: all."""
    log_every: Count = 20
    """Number of steps between lines in the metrics file."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run folder."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; auto: an NVIDIA or AMD GPU if there is one, else the CPU. mps (Apple GPUs) is not tested."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights stay in float32. auto: bfloat16 on a GPU that supports it, else float32."""
    fsdp: bool = False
    """Under torchrun: shard weights and optimizer state over the processes (FSDP2), for models too large for a GPU."""
    expert_parallel: bool = False
    """Under torchrun: each process has an equal share of the experts, and the processes exchange tokens."""

    def check(self) -> None:
        require(-(2**63) <= self.seed < 2**63, f"train.seed must be a signed integer of 64 bits, not {self.seed}")
        require(
            not self.fsdp or self.optimizer == "adam",
            f'train.fsdp needs train.optimizer = "adam": {self.optimizer} works on whole matrices',
        )
        require(
            not self.expert_parallel or (self.optimizer == "adam" and not self.fsdp),
            'train.expert_parallel needs train.optimizer = "adam" and train.fsdp = false',
        )


@dataclass(frozen=True)
class SearchSettings(CheckedSettings):
    """How output is generated by tasks that write text: beam search or sampling, and limits of the output."""

    section: ClassVar[str] = "search"

    beam_size: Annotated[int, Range(1, 1000)] = 5
    """Number of hypotheses kept per sentence; 1: greedy search."""
    length_penalty: float = 1.0
    """Exponent of the length that divides the log-probability of a hypothesis."""
    length_penalty_form: Literal["plain", "gnmt"] = "plain"
    """Divide by length ** length_penalty (plain), or by ((5 + length) / 6) ** length_penalty (Wu et al. 2016)."""
    coverage_penalty: NotNegative = 0.0
    """Weight of the penalty for source tokens that received little attention (Wu et al. 2016); 0: none."""
    stop: Literal["beam-full", "exact"] = "beam-full"
    """Stop when `beam_size` hypotheses have ended, or only when no open hypothesis can still be the best (exact)."""
    beam_groups: Count = 1
    """Number of groups of hypotheses; each is made to differ from the groups before it (Vijayakumar et al. 2016)."""
    diversity_penalty: NotNegative = 0.5
    """With beam_groups: penalty for a token, per hypothesis of earlier groups with the same token at this position."""
    sample: bool = False
    """Sample each token at random instead of searching for the best output."""
    temperature: NotNegative = 1.0
    """For sampling: values below 1 favor likely tokens; 0: greedy."""
    top_k: CountOrZero = 0
    """For sampling: choose among this many most likely tokens; 0: all."""
    top_p: Annotated[float, Range(above=0, high=1)] = 1.0
    """For sampling: keep the likeliest tokens up to this total probability."""
    epsilon_cutoff: Share = 0.0
    """For sampling: choose among the tokens with a probability above this."""
    seed: int = 1
    """For sampling: the seed; the output for a sentence does not depend on the other sentences in the input."""
    min_length: Annotated[int, Range(0, 10_000)] = 0
    """Smallest number of tokens of an output."""
    max_length_ratio: Annotated[float, Range(above=0, high=100)] = 2.0
    """Largest number of output tokens per source token; `max_length_extra` is added."""
    max_length_extra: Annotated[int, Range(0, 10_000)] = 10
    """Output tokens allowed beyond `max_length_ratio` times the source length."""
    no_repeat_ngram_size: CountOrZero = 0
    """No sequence of this many tokens occurs twice in an output; 0: no such limit."""
    repetition_penalty: Annotated[float, Range(1)] = 1.0
    """Factor on the log-probability of tokens that are already in the output; values above 1 make them less likely."""
    suppress_tokens: tuple[str, ...] = ()
    """Tokens that are never written, as spelled in the vocabulary."""
    replace_unknown: bool = False
    """For word vocabularies: allow unknown words; each becomes a translation, or a copy, of the word it attends to."""
    ensemble_average: Literal["mean", "log-mean"] = "mean"
    """An ensemble averages the probabilities of its members, or their logarithms."""
    lm_weight: NotNegative = 0.2
    """With a language model (--lm): weight of its log-probabilities; they are added to those of the translator."""
    lm_use: Literal["fusion", "rerank"] = "fusion"
    """Language model in the search: fusion (in every step) or rerank (at the end)."""
    retry_failures: bool = True
    """Translate again with safer settings when the output is empty or repeats itself."""
    max_source_tokens: Annotated[int, Range(1, 100_000)] = 250
    """Texts with more tokens than this are long; see `long_lines`."""
    long_lines: Literal["split", "refuse"] = "split"
    """Long texts are split at sentence ends, translated in pieces and joined again; or refused."""
    max_joined_tokens: CountOrZero = 0
    """Sentences of one line are translated together up to this many tokens (set by training); 0: each alone."""
    batch_tokens: Count = 4096
    """Source tokens per batch."""

    def check(self) -> None:
        require(
            self.beam_size % self.beam_groups == 0,
            f"search.beam_size {self.beam_size} is not a multiple of search.beam_groups {self.beam_groups}",
        )


@dataclass(frozen=True)
class ModelSettings(CheckedSettings):
    """Base class of the settings of each architecture. Other modules use only the properties that are defined here."""

    section: ClassVar[str] = "model"
    kind: ClassVar[str] = ""
    """E.g. "seq2seq", "classifier", "tagger", "text-encoder", "decoder", "masked-encoder", "word-vectors"."""
    network: ClassVar[str] = ""
    """The network class: "Class" if it is in the same module as the settings, otherwise "package.module.Class"."""
    has_encoder: ClassVar[bool] = False
    """Whether the network has a Transformer encoder named "encoder" that can start from another run's weights."""
    about: ClassVar[str] = ""
    """Title, authors and year of the paper that describes the architecture; `regard info --arch` shows it."""

    arch: str = ""
    """Name of the preset that the settings below start from."""

    @property
    def needs_joint_vocabulary(self) -> bool:
        """Whether source and target must share one vocabulary."""
        return False

    @property
    def attends(self) -> bool:
        """Whether the model has attention weights between output and input."""
        return True

    @property
    def tokenizer_kind(self) -> str:
        """The kind of tokenizer (`tokenizer.kind`) that the architecture was made for; the plan chooses it."""
        return TokenizerSettings.kind

    @property
    def suits_muon(self) -> bool:
        """Whether the plan trains the architecture by Muon; otherwise by Adam."""
        return True

    @property
    def muon_rate(self) -> float:
        """The learning rate of Muon that the plan chooses."""
        return 0.02

    @property
    def document_window(self) -> int:
        """The largest number of tokens that a classifier encodes together; 0: it encodes each sentence separately."""
        return 0

    def paper(self) -> str:
        """The paper about this preset, as in "Attention Is All You Need (Vaswani et al. 2017)"."""
        return self.about

    def kept_per_token(self, length: float) -> float:
        """Number of activations per token kept for the backward pass, in sequences of `length` tokens; 0: unknown."""
        return 0.0


def settings_of(arch: str, where: str = "--arch") -> ModelSettings:
    """The settings of the preset named `arch`. If there is no such preset, the error message begins with `where`."""
    if arch not in registry.ARCHITECTURES:
        guess = nearest(str(arch), registry.ARCHITECTURES) or f"; choose from {', '.join(registry.ARCHITECTURES)}"
        raise SettingsError(f'{where}: there is no architecture "{arch}"{guess}')
    preset: ModelSettings = importlib.import_module(registry.ARCHITECTURES[arch]).PRESETS[arch]
    return preset


def presets(kind: str = "") -> dict[str, ModelSettings]:
    """All presets by name, or only those of one kind of model, e.g. "seq2seq". Imports all architectures."""
    every = {name: settings_of(name) for name in registry.ARCHITECTURES}
    return {name: preset for name, preset in every.items() if kind in ("", preset.kind)}


@dataclass(frozen=True)
class Recipe:
    """All settings of a run: one field per section of its recipe.toml.

    Only tasks that write text use `search`, and only tasks that read pictures use `pictures`.
    """

    data: DataSettings = field(default_factory=DataSettings)
    pictures: PictureSettings = field(default_factory=PictureSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=lambda: settings_of(DEFAULT_ARCH))
    train: TrainSettings = field(default_factory=TrainSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    task: Any = None
    """The settings of the task, e.g. `TagSettings` (in TOML: [tag]). None: the defaults, or a task without settings."""
