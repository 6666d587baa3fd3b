"""Routes of the page's files. They hold no secrets, so they need no key: the page asks for one where the service does."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from api.page.assets import INDEX, SECURITY_HEADERS, assets
from api.responses import NOT_MODIFIED, packed, problems
from planner.errors import NotFoundError

router = APIRouter(tags=["page"])
FileName = Annotated[str, Path(description="Name of a file of the page.", max_length=64)]
_TEXT = {"schema": {"type": "string"}}
_INDEX: dict[int | str, dict[str, Any]] = {
    200: {"description": "The page.", "content": {"text/html": _TEXT}},
    304: NOT_MODIFIED,
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": dict.fromkeys(("text/html", "text/css", "text/javascript", "image/svg+xml"), _TEXT),
    },
    304: NOT_MODIFIED,
}


@router.get("/", summary="The page for people", response_class=Response, responses={**_INDEX, **problems(500)})
async def get_index(request: Request) -> Response:
    """Give the page that shows jobs, plans and what would happen if more failed."""
    return _file(request, INDEX)


@router.get(
    "/page/{name}",
    summary="A file of the page",
    response_class=Response,
    responses={**_FILE, **problems(404, 422, 500)},
)
async def get_file(request: Request, name: FileName) -> Response:
    """Give a script, style sheet or picture of the page."""
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    asset = assets().get(name)
    if asset is None:
        raise NotFoundError(f"the page has no file {name[:64]!r}")
    # Asked for anew each time and answered 304, so that a page never mixes files of two versions for long.
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-cache"}
    return packed(request, asset.content, asset.etag, media_type=asset.media_type, headers=headers)
