"""What the routes take and give, as the description at /openapi.json has it.

Requests are strict: a number is a number, not a text that looks like one. Limits that depend on settings are checked by
`Service`. Answers are described here and checked against it in the tests, not each time that one is given.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from regard.config import SearchSettings
from regard.config.recipe import describe
from regard.errors import nearest

_HELP = describe(SearchSettings)
UNKNOWN_FIELD = "unknown_field"
"""The kind of error that tells of a field that is not known."""


class RequestBody(BaseModel):
    """A request."""

    model_config = ConfigDict(strict=True)


class StrictRequestBody(RequestBody):
    """A request in our own form, where a field that is not known is a mistake, and not something for others."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, body: Any) -> Any:
        for name in body if isinstance(body, dict) else ():
            if name not in cls.model_fields:
                place = {"field": name, "nearest": nearest(name, cls.model_fields)}
                raise PydanticCustomError(UNKNOWN_FIELD, "there is no such field{nearest}", place)
        return body


def _option(name: str, least: float, most: float) -> Any:
    """A setting of the search that a request may change, within bounds that keep its cost within reason."""
    return Field(None, ge=least, le=most, allow_inf_nan=False, description=_HELP[name])


def _count(name: str, least: int, most: int) -> Any:
    return Field(None, ge=least, le=most, description=_HELP[name])


class SearchOptions(StrictRequestBody):
    """Settings of the search; what is left out is as the run has it."""

    beam_size: int | None = _count("beam_size", 1, 16)
    length_penalty: float | None = _option("length_penalty", 0, 5)
    coverage_penalty: float | None = _option("coverage_penalty", 0, 5)
    sample: bool | None = Field(default=None, description=_HELP["sample"])
    temperature: float | None = _option("temperature", 0, 10)
    top_k: int | None = _count("top_k", 0, 1000)
    top_p: float | None = _option("top_p", 0.01, 1)
    seed: int | None = _count("seed", 0, 2**31 - 1)
    min_length: int | None = _count("min_length", 0, 20)
    no_repeat_ngram_size: int | None = _count("no_repeat_ngram_size", 0, 10)
    repetition_penalty: float | None = _option("repetition_penalty", 1, 5)

    def given(self) -> dict[str, Any]:
        """What was not left out."""
        return self.model_dump(exclude_none=True)


# LibreTranslate


class PlainTranslateRequest(RequestBody):
    """A translation as LibreTranslate's clients ask for it."""

    q: str | list[str] = Field(description="The text, or several.")
    source: str = Field(description='Language code of the text, or "auto".')
    target: str = Field(description="Language code to translate into.")
    format: Literal["text", "html"] = Field("text", description="html: tags stay where they belong.")
    alternatives: int = Field(0, ge=0, description="How many other translations to give.")
    api_key: str = Field("", description="Where the server asks for one.")


class DetectRequest(RequestBody):
    """A text whose language is asked for."""

    q: str = Field(description="The text.")
    api_key: str = Field("", description="Where the server asks for one.")


class Detection(BaseModel):
    """A language, and how sure that is."""

    confidence: float = Field(description="From 0 to 100.")
    language: str


class PlainTranslation(BaseModel):
    """A translation as LibreTranslate's clients expect it: lists where a list was sent."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detection | list[Detection] | None = None


class Language(BaseModel):
    """A language, and what it can be translated into; nothing, where it is only translated into."""

    code: str
    name: str
    targets: list[str]


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]


class LanguageName(BaseModel):
    """A language."""

    code: str
    name: str


class LanguagePair(BaseModel):
    """The pair to start with."""

    source: LanguageName
    target: LanguageName


class FrontendSettings(BaseModel):
    """What a page must know to use this server."""

    apiKeys: bool
    keyRequired: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    language: LanguagePair
    suggestions: bool
    supportedFilesFormat: list[str]


class TranslatedFileAnswer(BaseModel):
    """Where the translated file can be fetched, for some minutes."""

    translatedFileUrl: str
    lost: list[str] = Field([], description="Addresses, placeholders, code and numbers that the model left out.")


class PlainError(BaseModel):
    """What went wrong."""

    error: str


# /v1


class TranslateRequest(StrictRequestBody):
    """A translation with everything that Regard knows."""

    q: str | list[str] = Field(description="The text, or several.")
    model: str = Field("", description="Name of a run; empty: chosen by the languages, or the only one.")
    source: str = Field("", description='Language code of the text; "auto": detected.')
    target: str = Field("", description="Language code to translate into.")
    nbest: int = Field(1, ge=1, description="How many translations of each text.")
    align: bool = Field(False, description="Say which words render which.")
    scores: bool = Field(False, description="Give the log-probability of each token.")
    stream: bool = Field(False, description="Server-sent events, one for each sentence as it is done, then [DONE].")
    search: SearchOptions = SearchOptions()


class AlignmentAnswer(BaseModel):
    """Which words belong together."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]] = Field(description="Places in source and target, counted from 0.")


class TranslationAnswer(BaseModel):
    """A translation and what is known about it."""

    source: str
    text: str
    score: float | None
    tokens: list[str]
    finished: bool
    flags: list[str]
    alternatives: list[TranslationAnswer]
    alignment: AlignmentAnswer | None = None
    log_probs: list[float | None] = Field([], description="Of each token, the end included; with `scores`.")
    log_prob: float | None = Field(None, description="Of the whole; with `scores`.")


class Translations(BaseModel):
    """A translation for each text."""

    model: str
    translations: list[TranslationAnswer]


Head = Annotated[tuple[str, int], Strict(strict=False)]
"""An attention and a place in it. JSON has no tuples: a list may stand for one."""


class InspectRequest(StrictRequestBody):
    """A sentence to look inside."""

    text: str = Field(description="The sentence.")
    target: str | None = Field(None, description="The translation to explain; left out: the model's own.")
    model: str = Field("", description="Name of a run; empty: the only one that translates.")
    off: list[Head] = Field(
        default_factory=list, max_length=256, description='Heads to switch off, e.g. [["decoder.0.cross", 1]].'
    )
    quick: bool = Field(True, description="Leave out what takes seconds: attribution and mixing.")


class ClassifyRequest(StrictRequestBody):
    """Texts to classify."""

    q: str | list[str] = Field(description="The text, or several.")
    model: str = Field("", description="Name of a run; empty: the only one that classifies.")
    explain: bool = Field(False, description="Say how much each sentence and word weighed.")


class Classifications(BaseModel):
    """A verdict for each text."""

    model: str
    verdicts: list[dict[str, Any]]


class TagRequest(StrictRequestBody):
    """Sentences whose words shall be labelled."""

    q: str | list[str] = Field(description="The sentence, or several.")
    model: str = Field("", description="Name of a run; empty: the only one that tags.")
    explain: bool = Field(False, description="Say which labels came next and which words mattered.")


class TaggedSentences(BaseModel):
    """Labels for each sentence."""

    model: str
    tagged: list[dict[str, Any]]


class ModelFacts(BaseModel):
    """A run that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: Literal["translate", "chat", "classify", "tag"]
    source: str
    target: str
    arch: str
    parameters: int
    scores: dict[str, Any] = Field({}, description="As its card has them, with their signatures.")
    knowledge: dict[str, int] | None = Field(
        None, description="Of a run that answers from a knowledge base: its `questions` and `answers`."
    )


class ModelList(BaseModel):
    """All runs that are served."""

    object: Literal["list"]
    data: list[ModelFacts]


class ErrorFacts(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An error in OpenAI's form."""

    error: ErrorFacts


# OpenAI


class ContentPart(RequestBody):
    """A part of a message; only text is understood."""

    type: Literal["text"]
    text: str


class Message(RequestBody):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]

    @property
    def text(self) -> str:
        """What was said."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(RequestBody):
    """What a stream should tell besides its text."""

    include_usage: bool | None = False


class ChatRequest(RequestBody):
    """A completion as OpenAI's client asks for it. What it sends beyond this is ignored."""

    model: str = Field(description="Name of a run.")
    messages: list[Message] = Field(min_length=1, max_length=256)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, le=2**31 - 1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(1, ge=1, description="More than one is refused.")
    tools: list[Any] | None = Field(None, description="Refused, unless empty.")
    logprobs: bool | None = Field(None, description="Refused, unless false.")


class ChatMessage(BaseModel):
    """The reply."""

    role: Literal["assistant"]
    content: str


class ChatChoice(BaseModel):
    """One reply and how it ended."""

    index: int
    message: ChatMessage
    finish_reason: Literal["stop", "length"]


class Usage(BaseModel):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatSource(BaseModel):
    """Where an answer from a knowledge base is from."""

    question: str = Field(description="The known question that is nearest to the one asked.")
    score: float
    known: bool = Field(description="Whether it is near enough; if not, the reply says that it is not known.")


class ChatCompletion(BaseModel):
    """A reply in OpenAI's form."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    found: ChatSource | None = Field(None, description="Of a run that answers from a knowledge base.")
