"""`boxmend review`: a page on this machine for deciding on the fixes of a run."""

import json as json_lines
import webbrowser
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.auditing.fixes.verdicts import VERDICTS_FILE
from boxmend.cli.options import Json, MovedData
from boxmend.cli.output import say
from boxmend.errors import ExitStatus, UsageError
from boxmend.runs.folder import sole_writer

LONGEST_NAME = 200  # characters

app = App(name="review", help_format="markdown")


@app.default
def review(
    run: Annotated[Path, Parameter(help="Folder of a run with a table of fixes, by `audit`.")],
    /,
    *,
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes any that is free.")] = 0,
    open: Annotated[bool, Parameter(help="Open the page in a browser.")] = True,
    who: Annotated[
        str | None, Parameter(help="Your name, written into every verdict together with the time.")
    ] = None,
    data: MovedData = (),
    json: Json = False,
) -> int:
    """Decide on fixes in a browser: accept, reject, another class, another box.

    Serves a page to this machine alone, at an address that nobody guesses; it is printed. Every
    verdict is added to RUN/verdicts.jsonl at once, and `boxmend apply` goes by it. Ctrl-C ends.
    With --json there are two lines: the address at the beginning, what is decided at the end.
    """
    if who is not None and not 0 < len(who) <= LONGEST_NAME:
        raise UsageError(f"--who has to have 1 to {LONGEST_NAME} characters")
    try:
        from boxmend.web.review.serving import Server, open_session
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the review needs {error.name}, which is not installed: pip install 'boxmend[review]'"
        ) from error
    session = open_session(run, list(data) or None, who)
    with sole_writer(session.run_path):
        server = Server(session, port)
        _introduce(session.figures(), run)
        server.run(lambda address: _ready(address, is_opened=open, as_json=json))
    _sum_up(session.figures(), session.num_given, run)
    if json:
        print(json_lines.dumps(session.figures()))
    return ExitStatus.FINE


def _ready(address: str, *, is_opened: bool, as_json: bool) -> None:
    print(json_lines.dumps({"address": address}) if as_json else address, flush=True)
    if is_opened and not webbrowser.open(address):
        say("no browser could be opened; open the address yourself")


def _introduce(figures: dict[str, object], run: Path) -> None:
    say(f"{figures['number']:,} fixes of {run}, {figures['decided']:,} decided; Ctrl-C ends")


def _sum_up(figures: dict[str, object], num_given: int, run: Path) -> None:
    say(
        f"{figures['decided']:,} of {figures['number']:,} fixes are decided: "
        f"{figures['accepted']:,} accepted, {figures['changed']:,} accepted with another class or "
        f"box, {figures['rejected']:,} rejected"
    )
    if num_given:
        said = quote(str(run))
        say(f"all is in {run / VERDICTS_FILE}; `boxmend apply {said} --out DIR` goes by it")
