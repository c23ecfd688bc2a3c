"""From files of labelled words to what training reads: held-out parts, vocabulary, labels, pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.config import Corpus, Data, Recipe, Tag
from regard.data.conll import TaggedSentence, read_tagged, to_json
from regard.data.document_store import DocumentStore, open_documents, write_documents
from regard.data.spans import OUTSIDE, Scheme, find_scheme, learnt_scheme, merge, rewrite
from regard.data.store import Part
from regard.data.tagged_batch import encode_words
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.data.treebank import find_clitics
from regard.durable import write_atomically
from regard.errors import CorpusError, RunError, SettingsError
from regard.run import Run
from regard.tasks.holding_out import deal, split_texts
from regard.tasks.kinds import Tell
from regard.training.tag_plan import Sentences

FEWEST_SENTENCES = 20


@dataclass(frozen=True)
class PreparedSentences:
    """Everything that training reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: DocumentStore
    """A word is a row of pieces, and a sentence has a label for each."""
    valid: list[TaggedSentence]
    test: list[TaggedSentence]
    clitics: tuple[str, ...]
    """English clitics, such as "n't", that are words in the training data."""


class TrainingSentences:
    """The labelled sentences of all parts. The same sentence is never in two of them, unless the files say so."""

    def __init__(self, data: Data, settings: Tag, seed: int):
        if not data.train:
            raise SettingsError("nothing to train on: give a file of labelled words, or [[data.train]] in a recipe")
        read = [_read(corpus, settings) for corpus in data.train]
        where, total = data.train[0].source, sum(map(len, read))
        if total < FEWEST_SENTENCES:
            few = "1 sentence is" if total == 1 else f"{total} sentences are"
            raise CorpusError(where, f"{few} too few to train on; give at least {FEWEST_SENTENCES}")
        self.scheme: Scheme = find_scheme(sentence.tags for found in read for sentence in found)
        """As the training files have it; spans are learnt as BIOES, and held-out ones written as answers are."""
        answers: Scheme = "plain" if self.scheme == "plain" else settings.scheme
        self.held_out = {
            part: [
                _rewrite(sentence, answers) for corpus in getattr(data, part) for sentence in _read(corpus, settings)
            ]
            for part in ("valid", "test")
        }
        parts = split_texts([" ".join(sentence.tokens) for found in read for sentence in found], data, seed)
        self.corpora: list[tuple[list[TaggedSentence], float]] = []
        """The training sentences of each file, with its weight."""
        self.mended = 0
        """Training labels that break the rules of their scheme, such as an I- that nothing has begun."""
        for corpus, dealt in zip(data.train, deal(read, parts), strict=True):
            learnt = [_rewrite(one, learnt_scheme(self.scheme)) for one in dealt["train"]]
            self.corpora.append((learnt, corpus.weight))
            self.mended += sum(_mistakes(one, self.scheme) for one in dealt["train"])
            for name, sentences in self.held_out.items():
                sentences += [_rewrite(one, answers) for one in dealt[name]]
        self.written = len({tag for found in read for sentence in found for tag in sentence.tags})
        """Different labels in the training files, in whatever scheme these have."""
        self.labels = _labels(self.train(), where)

    def __len__(self) -> int:
        return sum(len(sentences) for sentences, _ in self.corpora)

    def train(self) -> Iterator[TaggedSentence]:
        """All training sentences."""
        return (sentence for sentences, _ in self.corpora for sentence in sentences)

    def describe(self) -> str:
        """How the sentences are shared out, for people."""
        valid, test = (len(self.held_out[part]) for part in ("valid", "test"))
        shared = f"{len(self):,} sentences to train on, {valid:,} for validation, {test:,} for the test"
        kind = f"{self.written} labels"
        if self.scheme != "plain":
            kind += f" that mark spans ({self.scheme})"
        if self.mended:
            kind += f"; {self.mended:,} broke its rules and {'was' if self.mended == 1 else 'were'} mended"
        return f"{shared}; {kind}"

    @cached_property
    def words(self) -> Counter[str]:
        """How often each word is in the training sentences."""
        return Counter(token for sentence in self.train() for token in sentence.tokens)

    @cached_property
    def facts(self) -> Sentences:
        """What the plan must know."""
        words, characters = self.words, Counter[str]()
        for word, count in words.items():
            for character in word:
                characters[character] += count
        total = words.total()
        return Sentences(
            sentences=len(self),
            words=total / len(self),
            distinct=len(words),
            word_length=characters.total() / total,
            characters=sum(count >= 3 for count in characters.values()),
            labels=len(self.labels),
            scheme=self.scheme,
        )


def prepare_sentences(
    run: Run, recipe: Recipe, sentences: TrainingSentences, tell: Tell, base: Run | None = None
) -> PreparedSentences:
    """Make vocabulary and labels, or take those of `base`; encode; write everything into the run."""
    labels = base.labels if base else sentences.labels
    unknown = sorted(set(sentences.labels) - set(labels))
    if unknown:
        label = merge(unknown[0], recipe.tag.scheme)
        raise SettingsError(f'the label "{label}" is unknown to the run that this one starts from')
    run.write_labels(labels)
    if base:
        tokenizer = base.tokenizers[0]
    else:
        tell(f"learning a vocabulary of {recipe.tokenizer.size:,} pieces ({recipe.tokenizer.kind})")
        texts = (" ".join(sentence.tokens) for sentence in sentences.train())
        tokenizer = train_tokenizer(texts, recipe.tokenizer, recipe.train.seed)
    run.write_tokenizers(tokenizer, tokenizer)
    return _build(run, recipe, sentences, tokenizer, labels, tell)


def reopen_sentences(run: Run, tell: Tell) -> PreparedSentences:
    """What `prepare_sentences` made, for going on; made again from the files where a finished run has put it away."""
    folder = run.folder / "store"
    tokenizer = run.tokenizers[0]
    if not folder.is_dir():
        sentences = TrainingSentences(run.recipe.data, run.recipe.tag, run.recipe.train.seed)
        return _build(run, run.recipe, sentences, tokenizer, run.labels, tell)
    valid, test = (_read_kept(folder / f"{part}.jsonl") for part in ("valid", "test"))
    return PreparedSentences(tokenizer, run.labels, open_documents(folder / "train"), valid, test, _known_clitics(run))


def _build(
    run: Run, recipe: Recipe, sentences: TrainingSentences, tokenizer: Tokenizer, labels: Sequence[str], tell: Tell
) -> PreparedSentences:
    """Encode, and write the store."""
    tell(f"encoding {len(sentences):,} sentences")
    number = {label: place for place, label in enumerate(labels)}
    short: list[TaggedSentence] = []
    parts = []
    for found, weight in sentences.corpora:
        pieces = (piece for sentence in found for piece in _cut(sentence, recipe.tag.max_words))
        short += [_rewrite(piece, learnt_scheme(sentences.scheme)) for piece in pieces]  # a cut may go through a span
        parts.append(Part(len(short), weight))
    words = encode_words([sentence.tokens for sentence in short], tokenizer, recipe.tag)
    numbered = ([number[tag] for tag in sentence.tags] for sentence in short)
    with run.new_store() as folder:
        write_documents(folder / "train", zip(words, numbered, strict=True), parts, tokenizer.size)
        for part, held_out in sentences.held_out.items():
            write_atomically(folder / f"{part}.jsonl", "".join(f"{to_json(one)}\n" for one in held_out).encode())
    store = open_documents(run.folder / "store" / "train")
    valid, test = sentences.held_out["valid"], sentences.held_out["test"]
    return PreparedSentences(tokenizer, tuple(labels), store, valid, test, find_clitics(sentences.words))


def _known_clitics(run: Run) -> tuple[str, ...]:
    return tuple(run.card.get("clitics", ()))


def _cut(sentence: TaggedSentence, most: int) -> Iterator[TaggedSentence]:
    """A sentence that is too long is learnt as several of about equal length."""
    tokens, tags = sentence
    parts = -(-len(tokens) // most)
    for part in range(parts):
        piece = slice(part * len(tokens) // parts, (part + 1) * len(tokens) // parts)
        yield TaggedSentence(tokens[piece], tags[piece])


def _read_kept(path: Path) -> list[TaggedSentence]:
    if not path.is_file():
        raise RunError(f"{path}: the held-out sentences are gone; start the run anew")
    return list(read_tagged(Corpus(str(path)))) if path.stat().st_size else []


def _read(corpus: Corpus, settings: Tag) -> list[TaggedSentence]:
    sentences = list(read_tagged(corpus, settings.column))
    if not sentences:
        raise CorpusError(corpus.source, "no word here")
    return sentences


def _rewrite(sentence: TaggedSentence, scheme: Scheme) -> TaggedSentence:
    return TaggedSentence(sentence.tokens, rewrite(sentence.tags, scheme))


def _mistakes(sentence: TaggedSentence, scheme: Scheme) -> int:
    """Labels that are not as the scheme would write the same spans. In IOB1 there is nothing to break."""
    return 0 if scheme == "IOB1" else sum(map(str.__ne__, rewrite(sentence.tags, scheme), sentence.tags))


def _labels(train: Iterator[TaggedSentence], where: str) -> tuple[str, ...]:
    """The labels that can be learnt, sorted. Held-out ones that are not among them count as mistakes when scored."""
    labels = sorted({tag for sentence in train for tag in sentence.tags})
    if len(labels) < 2:
        hint = "; the words' labels are in another column (tag.column)?" if labels != [OUTSIDE] else ""
        raise CorpusError(where, f'every word is labelled "{labels[0]}"; there must be at least two labels{hint}')
    return tuple(labels)
