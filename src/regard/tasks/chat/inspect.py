"""The content of `regard inspect` for a chat model: attention and attribution of one reply, as for translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regard.run import Run
from regard.tasks.chat.data import join_turns
from regard.tasks.translate.inspect import PAGE, read, summary
from regard.tasks.translate.inspect import inspect as inspect_translation

__all__ = ["OPTIONS", "PAGE", "inspect", "read", "summary"]

OPTIONS = ("target", "context", "quick")


def inspect(
    run: Run,
    said: str,
    *,
    context: Sequence[str] = (),
    target: str | None = None,
    quick: bool = False,
    log: Callable[[str], None] = lambda doing: None,
) -> dict[str, Any]:
    """Return the data of the page about one reply: `target` (a text or a file) or, if None, the model's own reply.

    The reply is to `said`, the last turn, after the turns of `context`. `quick` leaves out slow analyses: attribution
    and the mixing of tokens. `log` receives progress messages.
    """
    return inspect_translation(run, join_turns([*context, said]), target=target, quick=quick, log=log)
