"""HTTP API of tagging: /v1/tag and /v1/inspect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from regard.tasks.api import FRAMES_HELP, FieldError, Frames, InspectRequest, TaskRequest, divide_series

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.tag.tagger import Tagger


class Request(TaskRequest):
    """Label the words of texts, and return the spans that the labels mark; or label the frames of series."""

    q: str | list[str] | None = Field(None, description="A text, or a list of texts, for a run that reads words.")
    frames: Frames | list[Frames] | None = Field(None, description=FRAMES_HELP)
    explain: bool = Field(False, description="Add the most probable labels and the influence of each word or number.")

    def texts(self) -> tuple[str, list[Any]]:
        """The texts, or the numbers of each series, one after another."""
        if (self.q is None) == (self.frames is None):
            raise FieldError("q", "give either q (texts) or frames (series of numbers)")
        if self.q is not None:
            return "q", [self.q] if isinstance(self.q, str) else self.q
        return "frames", [list(chain.from_iterable(one)) for one in divide_series(self.frames)]

    @property
    def limits(self) -> tuple[str, str]:
        return ("texts", "characters") if self.frames is None else ("series", "numbers")

    def split(self) -> list[Self]:
        if self.frames is None:
            return [self.model_copy(update={"q": text}) for text in self.texts()[1]]
        return [self.model_copy(update={"frames": one}) for one in divide_series(self.frames)]

    @property
    def width(self) -> int:
        """Number of numbers per frame of a request with one series; 0 for a text."""
        return len(self.frames[0]) if self.frames else 0


def batch_key(request: Request) -> Hashable:
    return request.explain, request.width


def answer(tagger: Tagger, requests: Sequence[Request]) -> list[dict[str, Any]]:
    wanted, given = getattr(tagger, "width", 0), requests[0].width
    if wanted != given:
        instead = f"not of {given}" if given else "not text: send frames"
        reads = f"frames of {wanted} numbers, {instead}" if wanted else "words: send q"
        raise FieldError("frames" if given else "q", f"this run reads {reads}")
    contents: list[Any] = [request.frames or request.q or "" for request in requests]
    tagged = tagger.tag(contents, explain=requests[0].explain)
    return [one.as_dict() for one in tagged]


def facts(run: Run) -> dict[str, Any]:
    return {"frame_width": width} if (width := run.sizes.get("frame_width")) else {}


def inspect(tagger: Tagger, run: Run, request: InspectRequest) -> dict[str, Any]:
    from regard.tasks.tag.inspect import inspect as inspect_sentence

    request.require_text_only()
    if facts(run):
        raise FieldError("text", "this run reads frames, not text; use regard inspect on the command line")
    return inspect_sentence(run, request.text, tagger)
