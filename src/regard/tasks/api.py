"""The HTTP API of tasks: requests that several tasks use, and what the server expects of the api.py of a task.

A task is served if its folder has a file api.py with

    Request                        body of POST /v1/<task>: a subclass of `TextRequest`, `PictureRequest` or
                                   `ConversationRequest`
    answer(predictor, requests)    one JSON result per request; each request holds one text, picture or conversation

and, optionally, with

    batch_key(request)             only requests with equal keys are answered together (default: all keys are equal)
    BATCH_SIZE                     maximum number of requests answered together (default: --batch)
    Results                        schema of the response (default: `model`, and a list of objects as `results`)
    stream(predictor, request)     parts of the written text, for /v1/chat/completions if `Request` is a
                                   `ConversationRequest`, for /v1/completions if it is a `ContinuationRequest`
    inspect(predictor, run, request)   the data of /v1/inspect for one text
    inspection_work(run, request, parameters)   about how many multiplications an inspection needs; `parameters`: the
                                   number of the model's parameters
    facts(run)                     numbers about the run, for /v1/models
    make_handler(host)             for a task with several queues: replaces `answer` and `batch_key`; see `Host`

The server makes the queue, the route, the limits and the metrics. It also reads these fields of a `Request`, if it has
them: `nbest` (limited by --nbest), `source` and `target` (the run may be chosen by its languages), `stream` (results
are sent one by one), `pictures` (their number and the size of the body have limits of their own; they can also be sent
as files in a form). The module must not import torch: the server imports it at start-up, and calls its functions in
the thread that runs torch.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, Strict, model_validator
from pydantic_core import PydanticCustomError

from regard.config import SearchSettings
from regard.config.recipe import describe
from regard.errors import CorpusError, RegardError, SettingsError, nearest

if TYPE_CHECKING:
    from regard.run import Run

_HELP = describe(SearchSettings)
UNKNOWN_FIELD = "unknown_field"
"""Type of the validation error for an unknown field."""
PICTURE_WEIGHT = 200.0
"""Room of a picture in a queue: that of a text with this number of characters."""
MOST_PIXELS = 16_000_000
"""Largest number of pixels of a picture in a request: decoding needs memory and time in proportion."""
MAX_REPLY_TOKENS = 512
"""Upper limit of `max_tokens`: clients often ask for thousands, and a bad model may never stop by itself."""


class StrictRequest(BaseModel):
    """Base class of requests in Regard's own format. Types are strict (no "3" for 3), unknown fields are errors."""

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
    """A pydantic field for the search setting `name`. Values must be from `least` to `most`, to limit the cost."""
    return Field(None, ge=least, le=most, description=_HELP[name])


class SearchOptions(StrictRequest):
    """Search settings in a request. For a setting that is left out, the value in the recipe of the run is used."""

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
    """The search settings that a request gives, as a dictionary: only those that are not None.

    `max_tokens`, if given, becomes the length limit of the output, in place of the limit relative to the input length.
    """
    limits = {"max_length_ratio": 1e-9, "max_length_extra": max_tokens} if max_tokens else {}
    return search.given() | limits


class TaskRequest(StrictRequest):
    model: str = Field("", description="Name of a run; empty: the only run of this task.")

    def texts(self) -> tuple[str, list[str]]:
        """Return the name of the request field with the texts, and the texts, whose number and length are limited."""
        raise NotImplementedError

    @property
    def limits(self) -> tuple[str, str]:
        """The names of what `texts` returns and of its parts, for the messages about limits."""
        return "texts", "characters"

    def split(self) -> list[Self]:
        """Split this request into requests with one text, picture or conversation each, which are queued separately."""
        return [self]

    @property
    def weight(self) -> float:
        """The number of characters, by which the room in a queue is counted; other requests count like a text."""
        return sum(map(len, self.texts()[1]))


class TextRequest(TaskRequest):
    """Request with one text, or with several texts that are answered independently."""

    q: str | list[str] = Field(description="The text, or a list of texts.")

    def texts(self) -> tuple[str, list[str]]:
        return "q", [self.q] if isinstance(self.q, str) else self.q

    def split(self) -> list[Self]:
        return [self.model_copy(update={"q": text}) for text in self.texts()[1]]

    @property
    def text(self) -> str:
        """The text of a request that has exactly one text, such as each request that `split` returns."""
        assert isinstance(self.q, str)
        return self.q


class PictureRequest(TaskRequest):
    """Request with one picture, or with several pictures that are answered independently."""

    pictures: str | list[str] = Field(
        description="The content of a picture file (PNG, JPEG, GIF, WebP, BMP) in base64 or as a data URL; or a list."
    )

    _field: str = PrivateAttr("pictures")

    def texts(self) -> tuple[str, list[str]]:
        return "pictures", []

    def split(self) -> list[Self]:
        if isinstance(self.pictures, str):
            return [self]
        parts = [self.model_copy(update={"pictures": picture}) for picture in self.pictures]
        for place, part in enumerate(parts):
            part._field = f"pictures.{place}"
        return parts

    @property
    def weight(self) -> float:
        return PICTURE_WEIGHT

    @property
    def picture(self) -> bytes:
        """The content of the file in a request that has exactly one picture, such as each that `split` returns."""
        assert isinstance(self.pictures, str)
        return decode_picture(self.pictures, self._field)

    def refusal(self, problem: str) -> FieldError:
        """The error for a picture that cannot be used; it says which one of several pictures it is."""
        return FieldError(self._field, problem)


def decode_picture(text: str, field: str = "pictures") -> bytes:
    """The content of a picture file from base64 or a data URL. Of the picture, only the header is read.

    What is not a picture, or has too many pixels, is an error that names the `field`.
    """
    from regard.data.pictures import read_size

    head, comma, rest = text.partition(",") if text.startswith("data:") else ("", "", text)
    if comma and not head.endswith(";base64"):
        raise FieldError(field, "a data URL must hold base64 (data:image/png;base64,...)")
    try:
        content = base64.b64decode("".join(rest.split()), validate=True)
    except (binascii.Error, ValueError):  # ValueError: letters beyond ASCII
        content = b""
    if not content:
        raise FieldError(field, "not the content of a file in base64; encode it, or send it in a form")
    try:
        rows, columns = read_size(content, field)
    except CorpusError as error:
        raise FieldError(field, str(error).removeprefix(f"{field}: ")) from None
    if rows * columns > MOST_PIXELS:
        raise FieldError(field, f"at most {MOST_PIXELS:,} pixels, not {columns:,} x {rows:,}; make it smaller")
    return content


Frames = list[list[float]]
"""A series of frames in a request: for each frame, its numbers."""
FRAMES_HELP = "A series of frames, each a list of numbers, or a list of series; for runs that read frames."
LARGEST_NUMBER = 3e38
"""Largest absolute value of a number of a frame: frames become 32-bit floats."""


def divide_series(frames: Frames | list[Frames] | None, field: str = "frames") -> list[Frames]:
    """The series in the field of a request that has one series or several. Frames of unequal widths are an error."""
    given: Any = frames or []
    several = bool(given) and bool(given[0]) and isinstance(given[0][0], list)
    found: list[Frames] = given if several else [given]
    for place, one in enumerate(found):
        if not one or not one[0] or any(len(frame) != len(one[0]) for frame in one):
            raise FieldError(field, f"series {place} needs frames with equal numbers of values, and at least one")
        if any(abs(value) > LARGEST_NUMBER for frame in one for value in frame):
            raise FieldError(field, f"series {place} has a number that is too large for a 32-bit float")
    return found


class ConversationRequest(TaskRequest):
    """Request for the next reply in a conversation."""

    turns: str | list[str] = Field(description="The turns so far, oldest first; a text alone is the only turn.")
    search: SearchOptions = SearchOptions()
    max_tokens: int | None = Field(None, ge=1, le=MAX_REPLY_TOKENS, description="Length limit of the reply, in tokens.")

    def texts(self) -> tuple[str, list[str]]:
        return "turns", [self.turns] if isinstance(self.turns, str) else self.turns


class ContinuationRequest(TextRequest):
    """Request for continuations of texts; an empty text gives a new text."""

    search: SearchOptions = SearchOptions()
    max_tokens: int | None = Field(None, ge=1, le=MAX_REPLY_TOKENS, description="Length limit of the text, in tokens.")
    nbest: int = Field(1, ge=1, description="Number of texts to write per text: the first one and its alternatives.")


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
        """Raise an error if the request has `target` or `disabled_heads`, which only translation runs accept."""
        for field in ("target", "disabled_heads"):
            if getattr(self, field):
                raise SettingsError(f"{field}: only translation runs accept this field; leave it out")


class FieldError(RegardError):
    """Error for a request: the task cannot accept the value of the field `field`; `message` says why."""

    def __init__(self, field: str, message: str):
        super().__init__(f"{field}: {message}")
        self.field = field


class Queue(Protocol):
    """Interface of a bounded queue of the server, which computes the items of several requests together, in batches."""

    async def submit(self, items: Sequence[Any], *, key: Hashable = (), deadline: float | None = None) -> list[Any]:
        """Compute the results of `items`, in order. A batch contains only items of requests with the same `key`.

        After `deadline` seconds, `TooLate` is raised.
        """

    def submit_in_order(
        self, items: Sequence[Any], *, key: Hashable = (), deadline: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """As `submit`, but yield each result, in the order of the items, as soon as all results before it are ready."""

    def full_for(self) -> float:
        """Estimated seconds until the queue has room for another request; 0 if it has room now."""


class Host(Protocol):
    """Interface of a served run: the argument of the function `make_handler(host)` in the api.py of a task.

    It holds the run, its predictor and the settings of the server. `make_handler` adds the queues that it needs with
    `add_queue`, and returns a handler: the object that answers the requests to this run. A handler has the methods

        answer(request, deadline)    one JSON result per text of the request, in order (a coroutine)
        full_for()                   estimated seconds until the queues have room for a request; 0 if they have room
    and, optionally,
        stream_results(request, deadline)    for requests with `stream`: yields (index of a text, result) per sentence
        translate_texts(texts, nbest, align, deadline)    objects with `text`, `tokens`, `alignment` (a coroutine)
        translate_sentences(text, deadline)               yields such an object per sentence; for other APIs
    """

    run: Run
    settings: Any
    """Settings of the server; translation uses `engine` and `quantization`."""
    log: Callable[[str], None] | None

    @property
    def predictor(self) -> Any:
        """The object that `regard.load` returns for the run. Only the thread that runs torch may use it."""

    def load(self) -> Any:
        """Open and return the predictor. Called at start-up, so that errors appear before the first request."""

    def add_queue(
        self,
        name: str,
        work: Callable[[list[Any]], list[Any]],
        weigh: Callable[[Any], float],
        *,
        parallel: bool = False,
    ) -> Queue:
        """Add a queue with this name in the metrics; `work` takes a batch of items and returns their results.

        `work` runs in the torch thread or, if `parallel`, in one thread per core. `weigh` returns the weight of an
        item; the server limits the sum of the weights of all waiting items.
        """

    def open_request(self) -> AbstractContextManager[None]:
        """Return a context manager for a request that uses several queues: shutdown waits until it is left."""
