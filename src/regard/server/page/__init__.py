"""The web page of `regard serve`: its files, which are read once at start-up, and their routes.

The page also imports JavaScript modules of `regard.pages`, so the files of both folders are served under /page/. A task
may have views of its own in a folder `page/`, which is served under /page/<task>/. Its module view.js exports `views`,
a table from the names of views to { title, load }; `load` returns a promise of a function (app, models) that makes the
view. With a function `fits`, only the models for which it returns true can be chosen in the view. The style sheets of a
task are added to the page. A requested address is looked up in a table; it is never used as a path in the file system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from regard import tasks
from regard.registry import TASKS

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY = (
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
"""The Content-Security-Policy header: no inline scripts or styles, and nothing from other hosts."""


class Asset(NamedTuple):
    """One file of the web page: its content, media type and ETag."""

    body: bytes
    media_type: str
    tag: str
    """ETag: a hash of the content."""


def read_assets() -> dict[str, Asset]:
    """All files of the web page by URL path: index.html has the path "/", every other file "/page/NAME"."""
    bodies: dict[str, bytes] = {}
    for path, file in _page_files():
        address = "/" if path == "index.html" else f"/page/{path}"
        assert address not in bodies, f"two files of the page have the path {path}"
        bodies[address] = file.read_bytes()
    of_tasks = (address for address in bodies if address.endswith(".css") and address.split("/")[2] in TASKS)
    links = "\n".join(f'<link rel="stylesheet" href="{address[1:]}">' for address in sorted(of_tasks))
    bodies["/"] = bodies["/"].replace(b"{{styles}}", links.encode())
    return {
        address: Asset(body, _media_type(address if address != "/" else "index.html"), _tag(body))
        for address, body in bodies.items()
    }


def has_view(task: str) -> bool:
    """Whether the task has views of its own for the page."""
    return (folder := tasks.folder(task)) is not None and (folder / "page" / "view.js").is_file()


def _page_files() -> Iterator[tuple[str, Path]]:
    """The files of the page, and their paths below /page/."""
    folders = {Path(str(files(package))): "" for package in ("regard.pages", __name__)}
    folders |= {folder / "page": f"{task}/" for task in TASKS if (folder := tasks.folder(task))}
    for folder, prefix in folders.items():
        for file in filter(Path.is_file, folder.rglob("*")):
            path = prefix + file.relative_to(folder).as_posix()
            if _media_type(path) and path != "skeleton.html":
                yield path, file


def _media_type(path: str) -> str:
    return MEDIA_TYPES.get(path.rpartition(".")[2], "")


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'


def page_routes() -> APIRouter:
    """Routes that serve the files of the web page. They are not part of the API description."""
    router = APIRouter(include_in_schema=False)

    def add(address: str, asset: Asset) -> None:
        # Always revalidate: modules of two versions must not be mixed.
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "ETag": asset.tag}

        async def give(request: Request) -> Response:
            if request.headers.get("If-None-Match") == asset.tag:
                return Response(status_code=304, headers=headers)
            return Response(asset.body, media_type=asset.media_type, headers=headers)

        router.add_api_route(address, give, methods=["GET", "HEAD"])

    for address, asset in read_assets().items():
        add(address, asset)
    return router
