"""A server that only pretends: the real page, and answers that are known beforehand, so that tests know what to expect.

A translation is the text in capitals, word for word, and in doubt (probability 0.2) about words that begin with an x.
The text decides what goes wrong: "busy" is refused the first time, "again" is told to repeat itself.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from regard.registry import TASKS
from regard.server.page import has_view, page_routes
from regard.text.words import words
from tests.surface.test_inspect_page import inspected, side

Json = dict[str, Any]
SURE, UNSURE = 0.95, 0.2
LIMIT = 2000


def model(id: str, task: str, source: str = "", target: str = "", **more: Any) -> Json:
    return {
        "id": id, "object": "model", "created": 0, "owned_by": "regard", "task": task, "source": source,
        "target": target, "arch": "toy", "parameters": 1234567, **more,
    }  # fmt: skip


EXAMPLES = ["the cat sleeps", "where is the station?"]
MODELS = {
    "en-it": model("en-it", "translate", "en", "it", examples=EXAMPLES),
    "it-en": model("it-en", "translate", "it", "en"),
    "talker": model("talker", "chat", "en", "en"),
    "topics": model("topics", "classify", "en"),
    "shapes": model("shapes", "classify", facts={"picture_height": 8, "picture_width": 8}),
    "chunker": model("chunker", "tag", "en"),
    "painter": model("painter", "caption", facts={"languages": ["en", "it"], "nbest": 2}),
}


def translation(text: str, nbest: int = 1) -> Json:
    """The text in capitals; further ones have the last word once more, and again."""
    found = [word.text for word in words(text)]
    written = [word.upper() for word in found]
    probabilities = [UNSURE if word.startswith("x") else SURE for word in found]

    def answer(more: int) -> Json:
        return {
            "source": text,
            "text": " ".join([text.upper(), *written[-1:] * more]),
            "score": -0.1 - more,
            "tokens": [f"▁{word}" for word in written + written[-1:] * more],
            "log_probs": [math.log(one) for one in probabilities + [0.5] * more] + [-0.01],
            "log_prob": -1.0 - more,
            "finished": True,
            "flags": ["loops"] if "again" in found else [],
            "alternatives": [answer(other) for other in range(1, nbest)] if more == 0 else [],
            "alignment": {
                "source": found,
                "target": written + written[-1:] * more,
                "links": [[place, place] for place in range(len(found))],
            },
        }

    return answer(0)


def inspection(text: str, off: list[Any], quick: bool) -> Json:
    """The inspection of the inspector's own test; each head that is off changes a word."""
    data = inspected(title=text)
    if off:
        target = side(("Fac", "cio"), "una", "doccia", ".")
        data |= {"target": target, "translation": data["translation"] | {"text": target["text"], "log_prob": -3.5}}
    if quick:
        del data["attribution"], data["mixing"]
    return data


def verdict(text: str) -> Json:
    parts = [part for part in text.split(". ") if part]
    sentences = [
        {
            "text": part,
            "weight": (place + 1) / sum(range(1, len(parts) + 1)),
            "words": [{"text": word, "weight": len(word) / len(part)} for word in part.split()],
        }
        for place, part in enumerate(parts)
    ]
    return {
        "text": text, "label": "weather", "labels": ["weather"], "truncated_tokens": 0, "probability": 0.7,
        "probabilities": {"sport": 0.3, "weather": 0.7}, "sentences": sentences,
    }  # fmt: skip


def tagged(text: str) -> Json:
    """The first word is a span; each word mattered most to itself, and half as much to the next one."""
    found = text.split()
    count = len(found)
    span = {"type": "X", "text": found[0], "start": 0, "end": len(found[0]), "first": 0, "last": 1, "probability": 0.8}
    return {
        "text": text, "tokens": found, "tags": ["B-X"] + ["O"] * (count - 1), "probabilities": [0.8] * count,
        "spans": [span], "top_labels": [{"B-X": 0.8, "O": 0.2}] + [{"O": 0.8, "B-X": 0.2}] * (count - 1),
        "influence": [[{0: 2.0, 1: 1.0}.get(row - column, 0.0) for column in range(count)] for row in range(count)],
    }  # fmt: skip


def captioned(body: Json) -> Json:
    """Two stars, in the language of the request; the second word attends to the last of 2 x 2 patches."""
    found = {"en": ("two", "stars"), "it": ("due", "stelle")}[body["language"]]
    maps = [[[0.7, 0.1], [0.1, 0.1]], [[0.0, 0.1], [0.1, 0.8]]]
    return {
        "text": " ".join(found), "score": -0.5, "language": body["language"], "tokens": [*found],
        "alternatives": [{"text": f"three {found[1]}", "score": -1.5}] * (body["nbest"] - 1),
        "words": [
            {"text": word, "start": start, "end": start + len(word), "probability": 0.75}
            for word, start in zip(found, (0, len(found[0]) + 1), strict=True)
        ],
        "maps": maps, "picture": body["pictures"],
    }  # fmt: skip


def labeled(body: Json) -> Json:
    """A star; the attention is on the last of 2 x 2 patches."""
    weights = [[0.1, 0.1], [0.1, 0.7]]
    return {
        "picture": "", "label": "star", "probability": 0.75, "probabilities": {"circle": 0.25, "star": 0.75},
        "labels": ["star"], "patches": {"attention": weights, "rollout": weights}, "pixels": body["pictures"],
    }  # fmt: skip


def refusal(status: int, message: str, **headers: str) -> Response:
    return JSONResponse(
        {"error": {"message": message}}, status, {name.replace("_", "-"): headers[name] for name in headers}
    )


class Pretender:
    """What the server was asked, and how it answers."""

    def __init__(self, served: tuple[str, ...], key: str = ""):
        self.reset(served, key)

    def reset(self, served: tuple[str, ...], key: str = "") -> None:
        """Be as new."""
        self.served, self.key = served, key
        self.asked: list[tuple[str, Json]] = []
        self.refused = 0

    def app(self) -> FastAPI:
        app = FastAPI()
        app.include_router(page_routes())
        app.add_api_route("/frontend/settings", self.settings)
        app.add_api_route("/v1/models", self.models)
        app.add_api_route("/v1/tasks", self.tasks)
        for name in ("translate", "inspect", "classify", "tag", "caption", "count", "chat/completions"):
            app.add_api_route(f"/v1/{name}", self.answer, methods=["POST"])
        return app

    async def settings(self) -> Json:
        return {"charLimit": LIMIT, "apiKeys": bool(self.key), "keyRequired": bool(self.key)}

    async def models(self) -> Json:
        return {"object": "list", "data": [MODELS[name] for name in self.served]}

    async def tasks(self) -> Json:
        tasks = dict.fromkeys(one["task"] for one in MODELS.values())
        return {
            "data": [
                {
                    "name": task,
                    "help": f"does {task}",
                    "view": task in TASKS and has_view(task),
                    "chat": task in ("chat", "retrieve"),
                    "inspect": task == "translate",
                    "models": [name for name in self.served if MODELS[name]["task"] == task],
                }
                for task in tasks
            ]
        }

    async def answer(self, request: Request) -> Response:
        route, body = request.url.path.removeprefix("/v1/"), await request.json()
        self.asked.append((route, body))
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return refusal(401, "this server asks for an API key")
        if "busy" in str(body) and not self.refused:
            self.refused += 1
            return refusal(429, "too many requests are waiting", Retry_After="1")
        if route == "chat/completions":
            return StreamingResponse(self.talk(body), media_type="text/event-stream")
        if route == "inspect" and ["decoder.9.cross", 1] in body["disabled_heads"]:
            return refusal(400, 'the model has no attention layer named "decoder.9.cross"')
        if route == "inspect":
            return JSONResponse(inspection(body["text"], body["disabled_heads"], body["skip_slow"]))
        if route == "classify" and "pictures" in body:
            return JSONResponse({"model": "shapes", "results": [labeled(body)]})
        if route == "classify":
            return JSONResponse({"model": "topics", "results": [verdict(body["q"])]})
        if route == "count":
            return JSONResponse({"model": "counter", "results": [{"text": body["q"], "words": body["q"].split()}]})
        if route == "caption" and not body["pictures"].startswith("data:image/png;base64,iVBOR"):
            return refusal(400, "pictures: not a picture in a known format (PNG); convert it")
        if route == "caption":
            return JSONResponse({"model": "painter", "results": [captioned(body)]})
        if route == "tag":
            return JSONResponse({"model": "chunker", "results": [tagged(body["q"])]})
        found = [translation(text, body["nbest"]) for text in body["q"]]
        return JSONResponse({"model": body["model"], "results": found})

    async def talk(self, body: Json) -> Any:
        said = body["messages"][-1]["content"]
        for piece in ("You said: ", said, f" ({len(body['messages'])})"):
            delta = JSONResponse({"choices": [{"index": 0, "delta": {"content": piece}}]}).body
            yield b"data: " + bytes(delta) + b"\n\n"
        yield b"data: [DONE]\n\n"


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The address of an app that is served by a thread for as long as the block runs."""
    config = uvicorn.Config(app, port=0, log_level="critical", ws="none", loop="asyncio", http="h11")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            threading.Event().wait(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
