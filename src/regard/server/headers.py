"""Headers that every answer carries, whoever made it, unless it has its own."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.page import POLICY

HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),  # answers hold what a user wrote
]


class SafeHeaders:
    """Adds them."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with headers."""

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                there = {name.lower() for name, _ in own}
                message["headers"] = own + [header for header in HEADERS if header[0] not in there]
            await send(message)

        await self.app(scope, receive, dressed)
