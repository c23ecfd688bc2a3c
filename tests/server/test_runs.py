"""Opened runs: the same answers as without a server, whoever else is asking, and runs found by name and language."""

import asyncio
import shutil
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace
from itertools import cycle
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import SearchSettings
from regard.config.recipe import make_recipe
from regard.data.builtin import read_phrases
from regard.data.pairs import Pair
from regard.errors import ModelError, RunError, SettingsError
from regard.languages import language_name
from regard.registry import TASKS
from regard.run import CARD, RECIPE, WEIGHTS, Run
from regard.server.batching import Closing, TooLate
from regard.server.errors import to_api_error
from regard.server.runs import Capacity, NotServed, ServedRun, ServedRuns, unique_names
from regard.server.settings import ServerSettings
from regard.tasks import find, part
from regard.tasks.api import ConversationRequest, InspectRequest, SearchOptions
from regard.tasks.translate.engine import load_fast
from regard.tasks.translate.translation import Pieces, Translation
from regard.tasks.translate.translator import load
from tests.export.runs import random_recipe, random_run, sentences, tokenizer

pytest.importorskip("ctranslate2")

ENGLISH_ITALIAN = {"source_language": "en", "target_language": "it"}
TEXTS = [*sentences(6), "", "  I am here.\n\n\tYou are there. "]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = random_run(tmp_path_factory.mktemp("runs") / "en-it", random_recipe(data=ENGLISH_ITALIAN))
    pairs = read_phrases()[1:401]
    made.write_held_out([Pair(phrase.source, phrase.target) for phrase in pairs])
    return made


def serve(run, scenario, **options):
    """Open a runs of this run, and close it after the scenario with the run as it is served."""

    async def whole():
        runs = ServedRuns.open([run.folder], ServerSettings(quantization="float32", **options))
        try:
            [served] = runs.served.values()
            return await asyncio.wait_for(scenario(served), 60)
        finally:
            await runs.close()

    return asyncio.run(whole())


# ---------------------------------------------------------------------------------------------------------------------
# Translation


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_answers_are_those_that_the_run_gives_without_a_server(run, engine):
    texts = TEXTS[:-1]
    alone = load_fast(run, "float32") if engine == "auto" else load(run.folder)

    async def scenario(served):
        together = await asyncio.gather(*(served.handler.translate_texts([text]) for text in texts))
        return [answer for [answer] in together], await served.handler.translate_texts(texts, beam_size=1)

    together, greedy = serve(run, scenario, engine=engine)
    for found, expected in ((together, alone.translate(texts)), (greedy, alone.translate(texts, beam_size=1))):
        assert [answer.text for answer in found] == [answer.text for answer in expected]
        assert [answer.source for answer in found] == texts
        assert [answer.score for answer in found] == pytest.approx([answer.score for answer in expected], abs=1e-4)


def test_lines_stay_lines(run):
    async def scenario(served):
        return await served.handler.translate_texts([TEXTS[-1], "I am here.", "You are there."])

    both, first, second = serve(run, scenario)
    assert both.text == f"  {first.text}\n\n\t{second.text} "
    assert both.source == TEXTS[-1]
    assert both.tokens == first.tokens + second.tokens
    assert "split" not in both.flags


def test_long_texts_are_cut_before_they_are_queued(run):
    text = " ".join(f"{sentence.rstrip('.')}." for sentence in sentences(12))

    async def scenario(served):
        [answer] = await served.handler.translate_texts([text], max_source_tokens=40, max_joined_tokens=1)
        pieces = [piece async for piece in served.handler.translate_sentences(text, max_source_tokens=40)]
        return answer, pieces, served.queues["ctranslate2"].items

    answer, pieces, items = serve(run, scenario)
    assert len(pieces) > 3
    assert items == 2 * len(pieces)
    assert answer.text == " ".join(piece.text for piece in pieces if piece.text)
    assert "split" in answer.flags


def test_everything_known_is_given_when_asked_for(run):
    async def scenario(served):
        return await served.handler.translate_texts(
            ["I am here.\nYou are there.", "I am here."], nbest=7, align=True, details=True
        )

    two_lines, one = serve(run, scenario)
    assert len(one.alternatives) == 6  # the beam of 5 grew
    ended = "cut off" not in one.flags  # of a model that has learnt nothing, hangs on the processor's rounding
    assert len(one.log_probs) == len(one.tokens) + ended
    assert one.alignment.source == ("I", "am", "here", ".")
    assert two_lines.alignment.source == (*one.alignment.source, "You", "are", "there", ".")
    assert {link for link in two_lines.alignment.links if link[0] < 4} == set(one.alignment.links)


def test_what_cannot_be_done_is_said(run):
    async def scenario(served):
        with pytest.raises(SettingsError, match="nbest = 7"):
            await served.handler.translate_texts(["a"], nbest=7, beam_size=2)
        with pytest.raises(TooLate):
            await served.handler.translate_texts(TEXTS, deadline=0)
        return await served.handler.translate_texts(
            ["I am here."], sample=True
        )  # what CTranslate2 cannot do, torch can

    assert len(serve(run, scenario)) == 1


def test_closing_finishes_what_was_taken(run):
    async def scenario(served):
        waiting = asyncio.gather(
            *(served.handler.translate_texts([text], align=place % 2 == 0) for place, text in enumerate(TEXTS * 2))
        )
        await asyncio.sleep(0)
        await served.close()
        with pytest.raises(Closing):
            await served.handler.translate_texts(["too late"])
        return await waiting

    assert len(serve(run, scenario)) == 2 * len(TEXTS)


def test_a_model_that_only_torch_can_run(tmp_path):
    recipe = make_recipe({"model": {"arch": "bahdanau", "width": 16, "embedding_width": 16}})
    recurrent = random_run(tmp_path / "rnn", recipe)

    async def scenario(served):
        return await served.handler.translate_texts(["I am here."], align=True)

    [answer] = serve(recurrent, scenario)
    assert answer.text == load(recurrent.folder).translate(["I am here."])[0].text
    assert answer.alignment is not None


def test_torch_is_not_imported_for_translation_alone(run):
    load_fast(run, "float32")
    script = f"""
import asyncio, sys
from regard.server.runs import ServedRuns
from regard.server.settings import ServerSettings

async def main():
    runs = ServedRuns.open([{str(run.folder)!r}], ServerSettings(quantization="float32"))
    await runs.by_pair("en", "it").handler.translate_texts(["I am here."], nbest=2, details=True)
    print("torch" in sys.modules, runs.detect("I am here.")[0]["language"])
    await runs.close()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["False", "en"], "")


# ---------------------------------------------------------------------------------------------------------------------
# Lines and pieces


@given(st.text(alphabet=st.sampled_from(" \t\r\nab.\u2028\u00a0"), max_size=40))
def test_a_translation_that_changes_nothing_changes_nothing(text):
    lines_stay_whole = SearchSettings(
        max_joined_tokens=SearchSettings.max_source_tokens
    )  # between sentences there will be one space
    pieces = Pieces(text, tokenizer("bpe", "both"), lines_stay_whole)
    answers = [Translation(piece, piece, 0.0, (), (), True) for piece in pieces.texts]
    assert pieces.join(answers).text == text
    assert pieces.join(answers).source == text
    assert all(piece == piece.strip() and "\n" not in piece for piece in pieces.texts)


def test_alternatives_keep_the_space_around_them():
    [pieces] = [Pieces("\n a ", tokenizer("bpe", "both"), SearchSettings())]
    answer = Translation("a", "b", 0.0, (), (), True, alternatives=(Translation("a", "c", 0.0, (), (), True),))
    assert [one.text for one in pieces.join([answer]).alternatives] == ["\n c "]


def test_alternatives_that_say_the_same_are_dropped():
    pieces = Pieces("a", tokenizer("bpe", "both"), SearchSettings())
    others = [Translation("a", text, score, (), (), True) for score, text in enumerate(["b", "c", "b", "c", "d"])]
    [joined] = [pieces.join([Translation("a", "b", 0.0, (), (), True, alternatives=tuple(others))])]
    assert [(one.text, one.score) for one in joined.alternatives] == [("c", 1), ("d", 4)]


# ---------------------------------------------------------------------------------------------------------------------
# Looking inside


def look(text="I am here.", **fields):
    return InspectRequest(text=text, **fields)


def test_heads_can_be_disabled_for_one_inspection(run):
    async def scenario(served):
        plain = await served.inspect(look())
        changed = await served.inspect(look(disabled_heads=[("decoder.0.cross", 1), ("decoder.0.cross", 3)]))
        again = await served.inspect(look())
        given = await served.inspect(look(target="Io sono qui."))
        with pytest.raises(ModelError, match="heads 0 to 3"):
            await served.inspect(look(disabled_heads=[("decoder.0.cross", 9)]))
        with pytest.raises(ModelError, match="no such"):
            await served.inspect(look(disabled_heads=[("no such", 0)]))
        return plain, changed, again, given

    plain, changed, again, given = serve(run, scenario)
    assert plain == again
    [cross] = [attention for attention in changed["attention"] if attention["name"] == "decoder.0.cross"]
    assert [any(any(row) for row in head) for head in cross["weights"]] == [True, False, True, False]
    assert (plain["run"], plain["languages"]) == ("en-it", {"source": "en", "target": "it"})
    assert given["translation"]["given"]


# ---------------------------------------------------------------------------------------------------------------------
# Other tasks


class Labels(SimpleNamespace):
    """A result."""

    def as_dict(self):
        return vars(self)

    for_page = as_dict


class Predictor:
    """Answers as the predictors of all tasks, without a model."""

    reader = SimpleNamespace(field="q", unit="documents")

    def reply(self, turns, **search):
        return Translation(turns[-1], f"{len(turns)} turns, {search}", 0.0, (), (), True)

    def stream(self, turns, **search):
        if turns == ["fail"]:
            raise ModelError("as requested")
        yield from (cycle(turns) if turns == ["for ever"] else turns)

    def classify(self, texts, *, explain):
        return [Labels(text=text, explain=explain, together=len(texts)) for text in texts]

    tag = classify


def with_predictor(run, monkeypatch, task, scenario):
    """The scenario with a run of this task, whose predictor is replaced."""
    monkeypatch.setattr(ServedRun, "predictor", Predictor())
    other = Run(run.folder)
    other.__dict__["recipe"] = replace(run.recipe, data=replace(run.recipe.data, task=task))

    async def whole():
        capacity = Capacity(ServerSettings(threads=1, batch=8, queue=100))
        served = ServedRun(other, "one", capacity)
        try:
            return await asyncio.wait_for(scenario(served), 60)
        finally:
            await served.close()
            capacity.close()

    return asyncio.run(whole())


def conversation(*turns, **fields):
    return ConversationRequest(turns=list(turns), **fields)


def test_a_reply_comes_whole_or_in_parts(run, monkeypatch):
    async def scenario(served):
        search = SearchOptions(temperature=0.5)
        [result] = await served.handler.answer(conversation("hello", "you", search=search, max_tokens=3))
        assert result["text"] == ("2 turns, {'temperature': 0.5, 'max_length_ratio': 1e-09, 'max_length_extra': 3}")
        assert [part async for part in served.stream(conversation("a", "b", "c"))] == ["a", "b", "c"]
        with pytest.raises(ModelError, match="as requested"):
            async for _ in served.stream(conversation("fail")):
                pass
        assert set(served.queues) == {"chat", "stream"}

    with_predictor(run, monkeypatch, "chat", scenario)


def test_the_model_stops_when_the_client_leaves(run, monkeypatch):
    async def scenario(served):
        async with aclosing(served.stream(conversation("for ever"))) as parts:
            async for part in parts:
                assert part == "for ever"
                break
        return await served.handler.answer(conversation("next"))  # in the same thread, which is free again

    [result] = with_predictor(run, monkeypatch, "chat", scenario)
    assert result["source"] == "next"


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_texts_are_labelled_together_if_their_options_are_equal(run, monkeypatch, task):
    request = part(task, "api").Request

    async def scenario(served):
        first = asyncio.create_task(served.handler.answer(request(q="a")))
        await asyncio.sleep(0)
        some, explained, none = await asyncio.gather(
            served.handler.answer(request(q=["b", "c"])),
            served.handler.answer(request(q="d", explain=True)),
            served.handler.answer(request(q=[])),
        )
        return [tuple(one.values()) for one in (*await first, *some, *explained, *none)]

    found = with_predictor(run, monkeypatch, task, scenario)
    assert found == [("a", False, 1), ("b", False, 2), ("c", False, 2), ("d", True, 1)]


def test_a_task_without_an_api_is_refused(run, monkeypatch):
    mute = ModuleType("mute")
    mute.TASK = find("tag")._replace(name="mute")
    monkeypatch.setitem(sys.modules, "mute", mute)
    monkeypatch.setitem(TASKS, "mute", "mute")
    with pytest.raises(RunError, match='the task "mute" has no HTTP API'):
        with_predictor(run, monkeypatch, "mute", None)


def test_a_card_with_a_wrong_time_is_served(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    for wrong in ('"yesterday"', "17", "null"):
        (copy / CARD).write_text(f'{{"created": {wrong}}}')

        async def scenario(served):
            return served.about["created"]

        assert serve(Run.open(copy), scenario) == int((copy / RECIPE).stat().st_mtime)


def test_a_run_that_vanished_is_the_servers_fault(run, tmp_path, caplog):
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)

    async def scenario(served):
        shutil.rmtree(copy)
        assert len(await served.handler.translate_texts(["I am here."])) == 1  # CTranslate2 has the weights in memory
        with pytest.raises(RunError, match=str(copy)) as raised:
            await served.handler.translate_texts(["I am here."], align=True)
        return to_api_error(raised.value)

    load_fast(Run.open(copy), "float32")
    error = serve(Run.open(copy), scenario)
    assert error.status_code == 503
    assert str(tmp_path) not in error.detail
    assert str(copy) in caplog.text


# ---------------------------------------------------------------------------------------------------------------------
# The runs


def test_names_are_those_of_the_folders_made_unique(tmp_path):
    folders = [tmp_path / "a" / "demo", tmp_path / "b" / "demo", tmp_path / "demo-2", tmp_path / "c" / "demo"]
    assert unique_names(folders) == ["demo", "demo-2", "demo-2-2", "demo-3"]
    with pytest.raises(SettingsError, match="given 2 times"):
        unique_names([tmp_path / "demo", tmp_path / "a" / ".." / "demo"])


def test_runs_are_found_by_name_and_by_languages(run, tmp_path):
    other = random_run(tmp_path / "pt", random_recipe(data={"source_language": "pt-BR", "target_language": "de"}))
    unknown = random_run(tmp_path / "unknown", random_recipe())
    folders = [run.folder, other.folder, unknown.folder]

    async def scenario():
        runs = ServedRuns.open(folders, ServerSettings(engine="torch"))
        assert list(runs.served) == ["en-it", "pt", "unknown"]
        assert runs.served["pt"].source == "pt-BR"
        assert runs.by_pair("EN", "it").name == "en-it"
        assert runs.by_pair("en-GB", "it").name == "en-it"
        assert runs.by_pair("pt", "de").name == "pt"
        with pytest.raises(NotServed, match="it to en is not served; served: en to it, pt-BR to de"):
            runs.by_pair("it", "en")
        with pytest.raises(NotServed):
            runs.by_pair("", "")
        assert runs.languages == [
            {"code": "en", "name": "English", "targets": ["it"]},
            {"code": "pt-BR", "name": "Portuguese (BR)", "targets": ["de"]},
            {"code": "it", "name": "Italian", "targets": []},
            {"code": "de", "name": "German", "targets": []},
        ]
        assert runs.same_pair() == []
        about = runs.served["en-it"].about
        assert (about["id"], about["task"], about["arch"]) == ("en-it", "translate", "transformer-small")
        assert about["parameters"] == sum(weight.numel() for weight in run.load_model().parameters())
        await runs.close()

    asyncio.run(scenario())


def test_the_first_of_two_runs_of_a_pair_is_the_one_that_is_found(run, tmp_path):
    again = random_run(tmp_path / "again", random_recipe(data=ENGLISH_ITALIAN))

    async def scenario():
        runs = ServedRuns.open([run.folder, again.folder], ServerSettings(engine="torch"))
        [group] = runs.same_pair()
        assert [one.name for one in group] == ["en-it", "again"]
        assert runs.by_pair("en", "it") is group[0]
        await runs.close()

    asyncio.run(scenario())


def test_a_run_that_cannot_be_served_is_told_before_anything_starts(run, tmp_path):
    with pytest.raises(RunError, match="no such run folder"):
        ServedRuns.open([tmp_path / "none"], ServerSettings())
    unfinished = random_run(tmp_path / "unfinished", random_recipe())
    (unfinished.folder / WEIGHTS).unlink()
    with pytest.raises(RunError, match=r"has no weights\.safetensors yet"):
        ServedRuns.open([run.folder, unfinished.folder], ServerSettings())


def test_the_language_of_a_text_is_guessed_among_those_served(run, tmp_path):
    greek = random_run(tmp_path / "el", random_recipe(data={"source_language": "el", "target_language": "en"}))
    back = random_run(tmp_path / "it", random_recipe(data={"source_language": "it", "target_language": "en"}))
    fresh = read_phrases("test")[:100]

    async def scenario():
        runs = ServedRuns.open([run.folder, greek.folder, back.folder], ServerSettings(engine="torch"))
        for side, code in (("source", "en"), ("target", "it")):
            found = [runs.detect(getattr(phrase, side)) for phrase in fresh]
            right = sum(guesses[0]["language"] == code for guesses in found)
            assert right >= 98
        assert runs.detect("Καλημέρα")[0] == {"language": "el", "confidence": 100.0}
        assert {guess["confidence"] for guess in runs.detect("123 !?")} == {0.0}
        await runs.close()

    asyncio.run(scenario())


def test_a_text_in_a_target_language_is_not_taken_for_the_source(run):
    async def scenario(served):
        runs = ServedRuns([served], None)
        return runs.detect("Io sono alla moda."), runs.detect("I am trendy.")

    for code, (first, second) in zip(("it", "en"), serve(run, scenario), strict=True):
        assert first["language"] == code
        assert second["confidence"] < 10 < 90 < first["confidence"]


def test_languages_have_names():
    assert [language_name(code) for code in ("de", "zh-Hant", "pt_BR", "tlh")] == [
        "German",
        "Chinese (Hant)",
        "Portuguese (BR)",
        "tlh",
    ]
