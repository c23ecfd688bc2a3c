"""Requests that no well-meaning client sends, and some that they do: made from a seed, sent over plain sockets."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

PATIENCE = 60.0
"""Seconds to wait for an answer, on a busy machine."""
NASTY = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\x00", "\x1b[2J", "\r\n\r\nHTTP/1.1 200 OK", "\u202e",
    "\ufeff", "\ufffe", "\U0010ffff", "e\u0301" * 300, "ﷺ" * 50, "𝕬" * 50, "'; DROP TABLE runs; --", "{{7*7}}", "%s%n",
    "../../etc/passwd", "a" * 3000, " " * 5000, "\n" * 2000, "\t", "", ".", "? ! . " * 300, "▁", "<unk>", "</s>",
    "\u2028\u2029", "\u200b" * 100, "0" * 400, "🏳️‍🌈" * 40, "ا" * 400, "漢" * 400,
    "null", "NaN", "\x7f\x80\x9f", "&#0;", "]]>",
]  # fmt: skip
ROUTES: dict[str, dict[str, Any]] = {
    "/translate": {"q": "I am here.", "source": "en", "target": "it", "format": "text", "alternatives": 1},
    "/detect": {"q": "I am here."},
    "/v1/translate": {"q": "I am here.", "nbest": 2, "align": True, "scores": True, "search": {"beam_size": 2}},
    "/v1/inspect": {
        "text": "I am here.",
        "target": "sono qui",
        "disabled_heads": [["decoder.0.cross", 0]],
        "skip_slow": True,
    },
    "/v1/classify": {"q": "I am here.", "explain": True},
    "/v1/tag": {"q": "I am here.", "explain": True},
    "/v1/chat": {"turns": ["I am here."], "search": {"sample": False}, "max_tokens": 5},
    "/v1/retrieve": {"turns": "I am here."},
    "/v1/chat/completions": {"model": "en-it", "messages": [{"role": "user", "content": "I am here."}]},
}
FILES = [".txt", ".html", ".md", ".srt", ".po", ".exe", "", ".html/../../x"]
PATHS = [
    "/", "//", "/..", "/%2e%2e/%2e%2e/etc/passwd", "/page/../../app.py", "/page/common/theme.css%00", "/%ff%fe",
    "/v1", "/v1/", "/translate/", "/docs?x=<script>", "/" + "a" * 3000, "/languages?" + "a=b&" * 500, "*", "http://evil.example/",
    "/download_file/../../x", "/metrics", "/openapi.json", "/page/%00",
]  # fmt: skip
Ending = Literal["read", "half-close", "leave", "stall"]


@dataclass(frozen=True)
class Attack:
    """What is sent, piece by piece, and what the client does then."""

    kind: str
    pieces: tuple[bytes, ...] = field(repr=False)
    ending: Ending = "read"
    answered: bool = True
    """Whether a server must answer at all."""


def attacks(seed: int, count: int) -> Iterator[Attack]:
    """As many as asked for, the same for the same seed."""
    dice = random.Random(seed)
    makers = [_wrong_types, _nasty_texts, _broken_json, _sizes, _files, _broken_http, _rude, _paths, _forms]
    for number in range(count):
        yield makers[number % len(makers)](dice)


def send(port: int, attack: Attack) -> int | None:
    """The status of the answer; None where there was none."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as wire:
        wire.settimeout(PATIENCE)
        try:
            for piece in attack.pieces:
                wire.sendall(piece)
            if attack.ending == "leave":
                return None
            if attack.ending == "half-close":
                wire.shutdown(socket.SHUT_WR)
            return _status(_read(wire))
        except (ConnectionError, BrokenPipeError):
            return _status(_rest(wire))


def _read(wire: socket.socket) -> bytes:
    """The answer, to its end: every request asks for the connection to be closed."""
    answer = b""
    while part := wire.recv(65536):
        answer = (answer + part)[:65536]
    return answer


def _rest(wire: socket.socket) -> bytes:
    """What the server had said before it closed the door."""
    try:
        return _read(wire)
    except OSError:
        return b""


def _status(answer: bytes) -> int | None:
    head = answer.split(b" ", 2)
    return int(head[1]) if len(head) > 1 and head[1].isdigit() else None


def request(
    path: str, body: bytes = b"", kind: str = "application/json", method: str = "POST", extra: str = ""
) -> bytes:
    """A whole request, as a client would write it."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode("latin-1") + body


def _any_value(dice: random.Random, depth: int = 0) -> Any:
    """Some JSON."""
    plain = [None, True, -1, 0, 2**63, 10**400, 1.5, 1e308, "", "en", "it", dice.choice(NASTY), [], {}]
    if depth < 3 and dice.random() < 0.4:
        inner = [_any_value(dice, depth + 1) for _ in range(dice.randrange(4))]
        return inner if dice.random() < 0.5 else {dice.choice(NASTY)[:20]: value for value in inner}
    return dice.choice(plain)


def _wrong_types(dice: random.Random) -> Attack:
    path, fields = dice.choice(list(ROUTES.items()))
    changed = dict(fields)
    for _ in range(dice.randint(1, 3)):
        changed[dice.choice([*fields, "q", "model", "stream", "search", "n"])] = _any_value(dice)
    body: Any = changed if dice.random() < 0.9 else _any_value(dice)
    return Attack("wrong types", (request(path, json.dumps(body).encode()),))


def _nasty_texts(dice: random.Random) -> Attack:
    path, fields = dice.choice(list(ROUTES.items()))
    text = "".join(dice.choices(NASTY, k=dice.randint(1, 4)))[:1200]
    changed = {
        name: text if name in ("q", "text", "target") and dice.random() < 0.8 else fields[name] for name in fields
    }
    if path == "/translate":
        changed |= {"source": dice.choice(["en", "auto"]), "target": "it", "format": dice.choice(["text", "html"])}
    if "messages" in fields:
        changed |= {"messages": [{"role": "user", "content": text}], "stream": dice.random() < 0.5}
    return Attack("nasty texts", (request(path, json.dumps(changed).encode()),))


def _broken_json(dice: random.Random) -> Attack:
    whole = json.dumps(ROUTES["/translate"]).encode()
    body = dice.choice(
        [
            whole[: dice.randrange(len(whole))],
            b"[" * dice.choice([10, 2000, 200_000]),
            b'{"a":' * dice.choice([10, 2000, 50_000]),
            whole.replace(b"here", dice.randbytes(8)),
            b'{"q": "\\ud800", "source": "en", "target": "it"}',
            b'{"q": "\xed\xa0\x80", "source": "en", "target": "it"}',
            b'{"q": 1' + b"0" * 10_000 + b"}",
            whole.decode().encode("utf-16"),
            dice.randbytes(dice.randrange(2000)),
            b'{"q": NaN, "q": Infinity}',
        ]
    )
    return Attack("broken JSON", (request(dice.choice(list(ROUTES)), body),))


def _sizes(dice: random.Random) -> Attack:
    path = dice.choice(list(ROUTES))
    match dice.randrange(4):
        case 0:  # a text above the limit
            body = json.dumps(ROUTES[path] | {"q": "a b " * 10_000, "text": "a " * 5000}).encode()
            return Attack("long text", (request(path, body),))
        case 1:  # too many texts
            return Attack("many texts", (request(path, json.dumps({"q": ["a"] * 20_000}).encode()),))
        case 2:  # a length that nobody has room for
            head = request(path).replace(b"Content-Length: 0", b"Content-Length: 99999999999")
            return Attack("huge length", (head, b"a" * 1000))
        case _:  # chunks without end
            head = request(path).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            chunks = [b"8000\r\n" + b"a" * 0x8000 + b"\r\n"] * 40
            return Attack("endless chunks", (head, *chunks), answered=False)  # it may be cut off while it sends


def _files(dice: random.Random) -> Attack:
    content = dice.choice(
        [
            b"<div>" * 5000 + b"I am here." + b"</p>" * 500,
            b"<b><i>" * 300 + b"one two" + b"</b></i>" * 300,
            b"<p title='a" * 200,
            b"<!--" * 100 + b"<![CDATA[" * 100,
            b"1\n00:00:01,000 --> 00:00:02,000\nI am here.\n\n" * 20,
            b"1\n99:99:99,999 --> \nx\n\n\n-->",
            b'msgid "I am here."\nmsgstr ""\n' * 20,
            b'msgid "\nmsgstr\n\\x',
            b"# *a* **b** `c` [d](e)\n" * 20,
            b"*_`[" * 2000,
            b"> " * 3000,
            dice.randbytes(3000),
            bytes(2000),
            b"",
        ]
    )
    name = f"a{dice.choice(FILES)}".encode()
    fields = {b"source": dice.choice([b"en", b"auto", b"\xff"]), b"target": b"it"}
    body = b"".join(b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % item for item in fields.items())
    body += b'--x\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n--x--\r\n' % (
        name,
        content,
    )
    if dice.random() < 0.2:
        body = body[: dice.randrange(len(body))]
    path = dice.choice(["/translate_file", "/v1/documents", "/translate"])
    return Attack("files", (request(path, body, "multipart/form-data; boundary=x"),))


def _broken_http(dice: random.Random) -> Attack:
    whole = request("/translate", json.dumps(ROUTES["/translate"]).encode())
    broken = dice.choice(
        [
            dice.randbytes(200),
            b"GET\r\n\r\n",
            whole.replace(b"HTTP/1.1", b"HTTP/9.9"),
            whole.replace(b"Host: localhost", b"Host: evil.example"),
            whole.replace(b"Host: localhost\r\n", b""),
            whole.replace(b"Content-Length: ", b"Content-Length: -"),
            whole.replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nContent-Length: "),
            whole.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"a" * 50_000 + b"\r\n\r\n", 1),
            whole.replace(b"Connection", b"Bad Header\x00"),
            request("/translate").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"zz\r\n",
            whole.replace(b"POST", b"M\xffETHOD"),
        ]
    )
    return Attack("broken HTTP", (broken,), "half-close", answered=False)


def _rude(dice: random.Random) -> Attack:
    whole = request("/v1/translate", json.dumps(ROUTES["/v1/translate"]).encode())
    cut = dice.randrange(1, len(whole))
    match dice.randrange(5):
        case 0:
            return Attack("leaves", (whole,), "leave", answered=False)
        case 1:
            return Attack("leaves early", (whole[:cut],), "leave", answered=False)
        case 2:
            return Attack("half-closes", (whole,), "half-close", answered=False)
        case 3:
            return Attack("half-closes early", (whole[:cut],), "half-close", answered=False)
        case _:  # the body never comes
            return Attack("stalls", (whole[: whole.index(b"\r\n\r\n") + 8],), "stall")


def _paths(dice: random.Random) -> Attack:
    method = dice.choice(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"])
    path = dice.choice([*PATHS, *ROUTES, "/languages", "/health"])
    return Attack("paths", (request(path, method=method),), answered=path.startswith("/"))


def _forms(dice: random.Random) -> Attack:
    body = dice.choice(
        [
            b"q=I+am+here.&source=en&target=it",
            b"q=%ff%fe%00&source=en&target=it",
            b"q=" + b"%41" * 1000 + b"&source=auto&target=it&alternatives=1",
            b"&".join(b"q=a" for _ in range(2000)),
            b"=&" * 5000,
            b"q[]=a&q[0]=b",
            dice.randbytes(500),
            b"alternatives=99999999999999999999&q=a&source=en&target=it",
        ]
    )
    kind = dice.choice(["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", "a" * 500, "\x80"])
    return Attack("forms", (request(dice.choice(["/translate", "/detect"]), body, kind),))
