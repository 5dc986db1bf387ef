"""The answers of the server: the page, the fixes, pictures by number, and verdicts.

No path of a request reaches the file system: the files of the page are in a fixed list, and images
have numbers.
"""

import re
from importlib.resources import files

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from boxmend.errors import BoxmendError, UsageError
from boxmend.web.review.columns import columns_json, least_size, places_json
from boxmend.web.review.cuts import Cutter, NoPictureError
from boxmend.web.review.session import Posted, ReviewSession
from boxmend.web.thumbnails import Window

OWN_FILES = (
    *("review.css", "rows.js", "words.js", "captions.js", "wire.js", "handles.js", "stage.js"),
    *("classes.js", "patterns.js", "controls.js", "review.js"),
)
REPORT_FILES = ("page.css", "theme.js")  # shared with the report page
TYPES = {"css": "text/css", "js": "text/javascript", "html": "text/html"}
MAX_BYTES = 8 * 2**20  # of verdicts in one request; a pattern of 50,000 fixes is smaller
MAX_IMAGES = 120  # in one request
MAX_SIDE_PIXELS = 1600  # of a picture
CUT = re.compile(r"cut-(\d{1,9})-(\d{1,6})-(\d{1,6})-(\d{1,6})-(\d{1,6})-(\d{1,4})\.jpg")
PLACES = re.compile(r"places-(\d{1,9}(?:-\d{1,9})*)")
NEWS = re.compile(r"news-(\d{1,9})")
CACHE_HEADERS = {"cache-control": "private, max-age=86400"}  # each server has a new address


def make_app(session: ReviewSession) -> Starlette:
    """Return the app that answers about one session; wrap it with `guarding.guard`."""
    pages = Pages(session)
    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/fixes", pages.fixes),
            Route("/doubtful", pages.doubtful),
            Route("/probabilities", pages.probabilities),
            Route("/verdicts", pages.verdicts, methods=["POST"]),
            Route("/{name}", pages.by_name),
        ],
        exception_handlers={BoxmendError: _answer_error},
    )


class Pages:
    """The answers of the server; the fixed ones are prepared once."""

    def __init__(self, session: ReviewSession) -> None:
        self._session = session
        self._cutter = Cutter(session.dataset.images)
        name = session.run_path.resolve().name
        self._fixes = columns_json(name, session.dataset, session.fixes)
        self._static = {name: _static("boxmend.web.review", name) for name in OWN_FILES}
        self._static |= {name: _static("boxmend.web.report", name) for name in REPORT_FILES}
        self._index = _static("boxmend.web.review", "index.html")

    async def index(self, request: Request) -> Response:
        """Answer with the page."""
        return Response(self._index, media_type=TYPES["html"])

    async def fixes(self, request: Request) -> Response:
        """Answer with all fixes in columns."""
        return Response(self._fixes, media_type="application/json")

    def doubtful(self, request: Request) -> Response:
        """Answer with the fixes that are most useful to decide on now."""
        return JSONResponse(self._session.doubtful())

    def probabilities(self, request: Request) -> Response:
        """Answer with the probabilities that the fixes are right, as the verdicts adjust them."""
        return JSONResponse(self._session.probabilities())

    async def verdicts(self, request: Request) -> Response:
        """Write verdicts to the file, then answer with the state after them."""
        if request.headers.get("content-type", "").split(";")[0] != "application/json":
            return PlainTextResponse("expected JSON", 415)
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > MAX_BYTES:
                    return PlainTextResponse("too many verdicts in one request", 413)
            posted = msgspec.json.decode(body, type=Posted)
        except (msgspec.MsgspecError, ClientDisconnect, RecursionError) as error:
            return PlainTextResponse(f"invalid verdicts: {error}", 400)
        return await run_in_threadpool(self._decide, posted)

    def _decide(self, posted: Posted) -> Response:
        self._session.decide(posted.verdicts)
        return JSONResponse(self._session.news(posted.seen))

    async def by_name(self, request: Request) -> Response:
        """Answer with a file of the page, a picture, places of images, or news."""
        name = request.path_params["name"]
        if name in self._static:
            return Response(self._static[name], media_type=TYPES[name.rpartition(".")[2]])
        for pattern, answer in ((CUT, self._cut), (PLACES, self._places), (NEWS, self._news)):
            match = pattern.fullmatch(name)
            if match:
                numbers = [int(digits) for part in match.groups() for digits in part.split("-")]
                return await run_in_threadpool(answer, numbers)
        return PlainTextResponse("no such page", 404)

    def _cut(self, numbers: list[int]) -> Response:
        row, x1, y1, x2, y2, side = numbers
        if row >= len(self._session.dataset.images) or not 1 <= side <= MAX_SIDE_PIXELS:
            return PlainTextResponse("no such picture", 404)
        window: Window = x1, y1, x2, y2
        try:
            return Response(self._cutter.cut(row, window, side), 200, CACHE_HEADERS, "image/jpeg")
        except NoPictureError as error:
            return PlainTextResponse(str(error), 404)

    def _places(self, numbers: list[int]) -> Response:
        dataset = self._session.dataset
        if len(numbers) > MAX_IMAGES or max(numbers) >= len(dataset.images):
            return PlainTextResponse("no such images", 404)
        places = []
        for row in numbers:
            place = self._cutter.place(row)
            boxes = dataset.boxes[dataset.image_rows == row]
            width, height = least_size(boxes, place.size)
            places.append({"width": width, "height": height, "problem": place.problem})
        return Response(places_json(dataset, numbers, places), media_type="application/json")

    def _news(self, numbers: list[int]) -> Response:
        return JSONResponse(self._session.news(numbers[0]))


def _static(package: str, name: str) -> bytes:
    return (files(package) / "static" / name).read_bytes()


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer with the message of an error; the page does not repeat a request of status 400."""
    return PlainTextResponse(str(error), 400 if isinstance(error, UsageError) else 500)
