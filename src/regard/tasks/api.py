"""The HTTP API of tasks: requests that several tasks use, and what the server expects of the api.py of a task.

A task is served if its folder has a file api.py with

    Request                        body of POST /v1/<task>: a subclass of `TextRequest` or `ConversationRequest`
    answer(predictor, requests)    one JSON result per request; each request holds one text or one conversation

and, optionally, with

    batch_key(request)             only requests with equal keys are answered together (default: all keys are equal)
    BATCH_SIZE                     maximum number of requests answered together (default: --batch)
    Results                        schema of the response (default: `model`, and a list of objects as `results`)
    stream(predictor, request)     parts of the text of a reply, for /v1/chat/completions (conversations only)
    inspect(predictor, run, request)   the data of /v1/inspect for one text
    facts(run)                     numbers about the run, for /v1/models
    make_handler(host)             for a task with several queues: replaces `answer` and `batch_key`; see `Host`

The server makes the queue, the route, the limits and the metrics. It also reads these fields of a `Request`, if it has
them: `nbest` (limited by --nbest), `source` and `target` (the run may be chosen by its languages), `stream` (results
are sent one by one). The module must not import torch: the server imports it at start-up, and calls its functions in
the thread that runs torch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from regard.config import SearchSettings
from regard.config.recipe import describe
from regard.errors import RegardError, SettingsError, nearest

if TYPE_CHECKING:
    from regard.run import Run

_HELP = describe(SearchSettings)
UNKNOWN_FIELD = "unknown_field"
"""Type of the validation error for an unknown field."""
MAX_REPLY_TOKENS = 512
"""Upper limit of `max_tokens`: clients often ask for thousands, and a bad model may never stop by itself."""


class StrictRequest(BaseModel):
    """A request in Regard's own format. Types are strict (no "3" for 3) and unknown fields are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, body: Any) -> Any:
        for name in body if isinstance(body, dict) else ():
            if name not in cls.model_fields:
                context = {"field": name, "nearest": nearest(name, cls.model_fields)}
                raise PydanticCustomError(UNKNOWN_FIELD, "there is no such field{nearest}", context)
        return body


def _limited(name: str, least: float, most: float) -> Any:
    """A request field for the search setting `name`. Its value must be from `least` to `most`, to bound the cost."""
    return Field(None, ge=least, le=most, description=_HELP[name])


class SearchOptions(StrictRequest):
    """Search settings of a request. For a setting that is left out, the value in the recipe of the run is used."""

    beam_size: int | None = _limited("beam_size", 1, 16)
    length_penalty: float | None = _limited("length_penalty", 0, 5)
    coverage_penalty: float | None = _limited("coverage_penalty", 0, 5)
    sample: bool | None = Field(default=None, description=_HELP["sample"])
    temperature: float | None = _limited("temperature", 0, 10)
    top_k: int | None = _limited("top_k", 0, 1000)
    top_p: float | None = _limited("top_p", 0.01, 1)
    seed: int | None = _limited("seed", 0, 2**31 - 1)
    min_length: int | None = _limited("min_length", 0, 20)
    no_repeat_ngram_size: int | None = _limited("no_repeat_ngram_size", 0, 10)
    repetition_penalty: float | None = _limited("repetition_penalty", 1, 5)

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


def generation_settings(search: SearchOptions, max_tokens: int | None) -> dict[str, Any]:
    """The given search settings as a dictionary. With `max_tokens`, the input length no longer limits the output."""
    limits = {"max_length_ratio": 1e-9, "max_length_extra": max_tokens} if max_tokens else {}
    return search.given() | limits


class TaskRequest(StrictRequest):
    model: str = Field("", description="Name of a run; empty: the only run of this task.")

    def texts(self) -> tuple[str, list[str]]:
        """The name of the field with the texts, and the texts. The server limits their number and length."""
        raise NotImplementedError

    def split(self) -> list[Self]:
        """Divide the request into requests that are queued separately, each with one text or one conversation."""
        return [self]


class TextRequest(TaskRequest):
    """One text, or several that are answered independently."""

    q: str | list[str] = Field(description="The text, or a list of texts.")

    def texts(self) -> tuple[str, list[str]]:
        return "q", [self.q] if isinstance(self.q, str) else self.q

    def split(self) -> list[Self]:
        return [self.model_copy(update={"q": text}) for text in self.texts()[1]]

    @property
    def text(self) -> str:
        """The only text of a request that `split` returned."""
        assert isinstance(self.q, str)
        return self.q


class ConversationRequest(TaskRequest):
    """A conversation to reply to."""

    turns: str | list[str] = Field(description="The turns so far, oldest first; a text alone is the only turn.")
    search: SearchOptions = SearchOptions()
    max_tokens: int | None = Field(None, ge=1, le=MAX_REPLY_TOKENS, description="Length limit of the reply, in tokens.")

    def texts(self) -> tuple[str, list[str]]:
        return "turns", [self.turns] if isinstance(self.turns, str) else self.turns


Head = Annotated[tuple[str, int], Strict(strict=False)]
"""Name of an attention module and index of a head. Not strict: JSON has lists instead of tuples."""


class InspectRequest(StrictRequest):
    """Body of POST /v1/inspect: a text, for which the server returns what the model computes (e.g. attention)."""

    text: str = Field(description="The text.")
    target: str | None = Field(None, description="The translation to explain; default: the translation by the model.")
    model: str = Field("", description="Name of a run; empty: the only run that can be inspected.")
    disabled_heads: list[Head] = Field(
        default_factory=list, max_length=256, description='Attention heads to disable, e.g. [["decoder.0.cross", 1]].'
    )
    skip_slow: bool = Field(True, description="Leave out slow analyses: attribution and mixing.")

    def require_text_only(self) -> None:
        """Raise an error if a field is given that only translation uses."""
        for field in ("target", "disabled_heads"):
            if getattr(self, field):
                raise SettingsError(f"{field}: only translation runs accept this field; leave it out")


class FieldError(RegardError):
    """Raised if a task cannot accept the value of the request field `field`."""

    def __init__(self, field: str, message: str):
        super().__init__(f"{field}: {message}")
        self.field = field


class Queue(Protocol):
    """A bounded queue of the server. It computes items of several requests together, in batches."""

    async def submit(self, items: Sequence[Any], *, key: Hashable = (), deadline: float | None = None) -> list[Any]:
        """Return the results in order, within `deadline` seconds. Only items with equal keys share a batch."""

    def submit_in_order(
        self, items: Sequence[Any], *, key: Hashable = (), deadline: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """Yield the results in the order of the items, each as soon as it and all results before it are ready."""

    def full_for(self) -> float:
        """Seconds until another request can be accepted; 0 if a request can be accepted now."""


class Host(Protocol):
    """A served run. `make_handler(host)` adds the queues of the run (`add_queue`), and returns an object with

        answer(request, deadline)    one JSON result per text of the request, in order (a coroutine)
        full_for()                   seconds until another request can be accepted; 0 if one can be accepted now
    and, optionally, with
        stream_results(request, deadline)    for requests with `stream`: pairs of the index of a text and a result
        translate_texts(texts, nbest, align, deadline)    objects with `text`, `tokens`, `alignment` (a coroutine), and
        translate_sentences(text, deadline)               the same for each sentence; for files and other APIs
    """

    run: Run
    settings: Any
    """Settings of the server; translation uses `engine` and `quantization`."""
    log: Callable[[str], None] | None

    @property
    def predictor(self) -> Any:
        """The object that `regard.load` returns. Only the torch thread may use it."""

    def load(self) -> None:
        """Open the predictor at start-up, so that errors are not first reported to a client."""

    def add_queue(
        self,
        name: str,
        work: Callable[[list[Any]], list[Any]],
        weigh: Callable[[Any], float],
        *,
        parallel: bool = False,
    ) -> Queue:
        """Add a queue; `work` computes the results of a batch of items. Metrics show `name`.

        `work` runs in the torch thread or, if `parallel`, in one thread per core. `weigh` returns the weight of an
        item; the sum of the weights of all waiting items is limited.
        """

    def open_request(self) -> AbstractContextManager[None]:
        """Return a context manager. A request that uses several queues enters it, so that shutdown waits for it."""
