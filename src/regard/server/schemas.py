"""Requests and results of the routes, as in /openapi.json: Regard's generic ones, LibreTranslate's and OpenAI's.

The requests of tasks are in regard/tasks/*/api.py. Requests are strict: "3" is not accepted for 3. Limits that depend
on settings are checked by `Service`. Results are only described here; the tests check that they match.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class RequestBody(BaseModel):
    """A request in the format of another API. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


# LibreTranslate


class PlainTranslateRequest(RequestBody):
    """A translation request in LibreTranslate's format."""

    q: str | list[str] = Field(description="The text, or a list of texts.")
    source: str = Field(description='Language code of the text, or "auto".')
    target: str = Field(description="Language code to translate into.")
    format: Literal["text", "html"] = Field("text", description="html: tags are kept in place.")
    alternatives: int = Field(0, ge=0, description="Number of alternative translations.")
    api_key: str = Field("", description="API key, if the server requires one.")


class DetectRequest(RequestBody):
    """A text whose language is to be detected."""

    q: str = Field(description="The text.")
    api_key: str = Field("", description="API key, if the server requires one.")


class Detection(BaseModel):
    """A detected language."""

    confidence: float = Field(description="From 0 to 100.")
    language: str


class PlainTranslation(BaseModel):
    """A translation in LibreTranslate's format: lists if `q` was a list."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detection | list[Detection] | None = None


class Language(BaseModel):
    """A language, and the languages that it can be translated into; empty if it is only a target."""

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
    """The default language pair."""

    source: LanguageName
    target: LanguageName


class FrontendSettings(BaseModel):
    """Settings for web pages that use this server."""

    apiKeys: bool
    keyRequired: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    language: LanguagePair
    suggestions: bool
    supportedFilesFormat: list[str]


class TranslatedFileAnswer(BaseModel):
    """Address of the translated file, valid for some minutes."""

    translatedFileUrl: str
    lost: list[str] = Field([], description="Addresses, placeholders, code and numbers that the model left out.")


class PlainError(BaseModel):
    """An error in LibreTranslate's format."""

    error: str


# /v1


class Results(BaseModel):
    """One result per text or conversation of the request. Their fields depend on the task."""

    model: str
    results: list[dict[str, Any]]


class ModelFacts(BaseModel):
    """A served run."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    source: str
    target: str
    arch: str
    parameters: int
    scores: dict[str, Any] = Field({}, description="Scores on held-out data, with their signatures.")
    facts: dict[str, Any] = Field(
        {}, description="Figures of the task, e.g. the `questions` and `answers` of a knowledge base."
    )


class ModelList(BaseModel):
    """All served runs."""

    object: Literal["list"]
    data: list[ModelFacts]


class TaskFacts(BaseModel):
    """A task, and the served runs that were trained for it."""

    name: str
    help: str
    chat: bool = Field(description="Whether its runs reply to conversations (POST /v1/chat/completions).")
    inspect: bool = Field(description="Whether its runs can be inspected (POST /v1/inspect).")
    models: list[str]


class TaskList(BaseModel):
    """All tasks that this server knows."""

    data: list[TaskFacts]


class ErrorFacts(BaseModel):
    """Description of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An error in OpenAI's format."""

    error: ErrorFacts


# OpenAI


class ContentPart(RequestBody):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: str


class Message(RequestBody):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]

    @property
    def text(self) -> str:
        """The text of all parts."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(RequestBody):
    """Options of a stream."""

    include_usage: bool | None = False


class ChatRequest(RequestBody):
    """A chat completion request in OpenAI's format."""

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
    """A reply and why it ended."""

    index: int
    message: ChatMessage
    finish_reason: Literal["stop", "length"]


class Usage(BaseModel):
    """Number of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatSource(BaseModel):
    """Origin of an answer from a knowledge base."""

    question: str = Field(description="The stored question that is nearest to the one asked.")
    score: float
    answered: bool = Field(description="Whether it is near enough; if not, the reply is the fallback text.")


class ChatCompletion(BaseModel):
    """A reply in OpenAI's format."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    found: ChatSource | None = Field(None, description="Of a run that answers from a knowledge base.")
