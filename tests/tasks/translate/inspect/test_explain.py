"""Explaining text: words in, words out, and names for what stands in for an absent word."""

import pytest
import torch

from regard import config, models
from regard.analysis.attribution import attribute
from regard.data.builtin import read_phrases
from regard.errors import ModelError, SettingsError
from regard.tasks.translate.inspect.explain import ExplainedExample, compare_explanations, explain, read_case
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import train_tokenizer
from tests.toys import close, toy

HELD_OUT = read_phrases("test")[:20]
METHODS = ("attention", "rollout", "gradient", "integrated", "occlusion", "alti")


def translator(arch: str = "transformer-tiny") -> Translator:
    """Untrained, but with real words."""
    lines = [text for phrase in read_phrases()[:200] for text in (phrase.source, phrase.target)]
    tokenizer = train_tokenizer(lines, config.TokenizerSettings(vocab_size=500), seed=1)
    torch.manual_seed(1)
    model = models.build(toy(arch), source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size).eval()
    return Translator(model, tokenizer, tokenizer, config.SearchSettings(beam_size=1))


@pytest.fixture(scope="module")
def small() -> Translator:
    return translator()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_speaks_of_words(small: Translator, method: str) -> None:
    found = explain(small, "I take a shower.", "Faccio la doccia.", method)
    assert found.source == ("I", "take", "a", "shower", ".", "</s>")
    assert found.target == ("Faccio", "la", "doccia", ".", "</s>")
    assert found.prefix == ("<s>", "Faccio", "la", "doccia", ".")
    assert found.method == method
    assert found.attribution.source_TS.shape == (5, 6)
    assert found.attribution.target_TT.shape == (5, 5)
    even = found.attribution.normalised()
    close(torch.cat([even.source_TS, even.target_TT], -1).abs().sum(-1), torch.ones(5))
    assert (found.attribution.gap_T is not None) == (method == "integrated")
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines] == list(found.target)


def test_a_word_sums_what_its_tokens_share(small: Translator) -> None:
    """The log-probability of a word is the sum over its tokens, and so are its shares."""
    texts = "The animal was tired.", "L'animale era stanco."
    case = read_case(small, ExplainedExample(*texts))
    by_tokens = attribute(small.model, *case.pair, "occlusion").source_TS
    assert len(case.target.words) < len(case.target.tokens)  # some word has several tokens
    expected = torch.zeros(len(case.target.words), len(case.source.words))
    for t, target_word in enumerate(case.target.word_of):
        for s, source_word in enumerate(case.source.word_of):
            expected[target_word, source_word] += by_tokens[t, s]
    close(explain(small, *texts, "occlusion").attribution.source_TS, expected)


def test_its_own_translation_by_default(small: Translator) -> None:
    [answer] = small.translate(["I take a shower."])
    found = explain(small, "I take a shower.")
    assert found.method == "alti"
    assert found.target == explain(small, "I take a shower.", answer.text).target


def test_baselines_have_names(small: Translator) -> None:
    ask = lambda name: explain(small, "I am trendy", "Io sono alla moda", "occlusion", baseline=name)  # noqa: E731
    maps = [ask(name).attribution.source_TS for name in ("zero", "unk", "pad")]
    assert not torch.allclose(maps[0], maps[1])
    assert not torch.allclose(maps[1], maps[2])
    close(maps[0], explain(small, "I am trendy", "Io sono alla moda", "occlusion").attribution.source_TS)
    with pytest.raises(SettingsError, match='baseline must be one of zero, unk, pad, not "noise"'):
        ask("noise")


def test_refusals(small: Translator) -> None:
    with pytest.raises(SettingsError, match="the text is empty"):
        explain(small, "  ", "Ciao")
    with pytest.raises(ModelError, match='no attribution method "alto"; did you mean "alti"'):
        explain(small, "I am trendy", "Io sono alla moda", "alto")
    with pytest.raises(ModelError, match="for Transformers only"):
        explain(translator("bahdanau"), "I am trendy", "Io sono alla moda", "alti")


@pytest.mark.parametrize("arch", ["transformer-tiny", "bahdanau"])
def test_comparing_over_the_phrasebook(arch: str) -> None:
    """Gold links are there for every sentence; a recurrent model is compared by what fits it."""
    short = sorted(HELD_OUT, key=lambda phrase: len(phrase.source))[:3]
    examples = [ExplainedExample(phrase.source, phrase.target, phrase.alignment) for phrase in short]
    found = compare_explanations(
        translator(arch), [*examples, ExplainedExample("", "Ciao")], {n: (n, {}) for n in METHODS if n != "integrated"}
    )
    assert found.sentences == 3
    names = {row.name for row in found.rows}
    expected = {"attention", "gradient", "occlusion", "random"}
    assert names == (expected if arch == "bahdanau" else expected | {"rollout", "alti"})
    assert all(row.precision is not None and 0 <= row.precision.mean <= 1 for row in found.rows)


def test_links_follow_words_into_shared_tokens(small: Translator) -> None:
    """Gold counts the words of the text; where two of them are one token, both become that one."""
    for phrase in HELD_OUT:
        case = read_case(small, ExplainedExample(phrase.source, phrase.target, phrase.alignment))
        assert case.links
        assert all(one < len(case.source.words) - 1 and other < len(case.target.words) - 1 for one, other in case.links)
