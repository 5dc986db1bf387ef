"""`boxmend review`: a local page on which people accept, reject or change fixes."""

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

MAX_NAME_CHARACTERS = 200

app = App(name="review")


@app.default
def review(
    run: Annotated[Path, Parameter(help="Folder of an audit, or of an audited training run.")],
    /,
    *,
    port: Annotated[int, Parameter(help="Port to listen on; 0 chooses a free one.")] = 0,
    open: Annotated[bool, Parameter(help="Open the page in a browser.")] = True,
    who: Annotated[
        str | None, Parameter(help="Your name, which is stored with every verdict.")
    ] = None,
    data: MovedData = (),
    json: Json = False,
) -> int:
    """Accept or reject fixes in a browser, or choose another class or another box.

    boxmend serves a page to this machine only, at a secret address, and prints it. It adds every
    verdict to RUN/verdicts.jsonl at once; `boxmend apply` uses them. Ctrl-C stops it. With --json
    it prints two lines: the address at the start, the number of verdicts at the end.

    Example: boxmend review audit --who Ada
    """
    if who is not None and not 0 < len(who) <= MAX_NAME_CHARACTERS:
        raise UsageError(f"--who has {len(who)} characters; expected 1 to {MAX_NAME_CHARACTERS}")
    try:
        from boxmend.web.review.serving import Server, open_session
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the review needs {error.name}, which is not installed: pip install 'boxmend[review]'"
        ) from error
    session = open_session(run, list(data) or None, who)
    with sole_writer(session.run_path):
        server = Server(session, port)
        _print_start(session.figures(), run)
        server.run(lambda address: _print_address(address, is_opened=open, as_json=json))
    _print_end(session.figures(), session.num_given, run)
    if json:
        print(json_lines.dumps(session.figures()))
    return ExitStatus.FINE


def _print_address(address: str, *, is_opened: bool, as_json: bool) -> None:
    print(json_lines.dumps({"address": address}) if as_json else address, flush=True)
    if is_opened and not webbrowser.open(address):
        say("no browser could be opened; open the address yourself")


def _print_start(figures: dict[str, object], run: Path) -> None:
    say(f"{run}: {figures['number']:,} fixes, {figures['decided']:,} decided; Ctrl-C stops")


def _print_end(figures: dict[str, object], num_given: int, run: Path) -> None:
    say(
        f"{figures['decided']:,} of {figures['number']:,} fixes are decided: "
        f"{figures['accepted']:,} accepted, {figures['changed']:,} accepted with another class or "
        f"box, {figures['rejected']:,} rejected"
    )
    if num_given:
        apply = f"`boxmend apply {quote(str(run))} --out DIR`"
        say(f"the verdicts are in {run / VERDICTS_FILE}; {apply} uses them")
