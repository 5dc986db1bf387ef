"""`boxmend revert`: a mended dataset as it was before."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, say
from boxmend.errors import ExitStatus
from boxmend.repair.apply import revert as revert_folder

app = App(name="revert", help_format="markdown")


@app.default
def revert(
    folder: Annotated[Path, Parameter(help="Folder that `boxmend apply` wrote.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Restore the annotation files of a mended dataset, byte for byte, in place.

    What was applied with --to stays in that format, without the mending. Nothing is touched where
    a file was edited since. changes.csv and patch.json are removed.
    """
    files = revert_folder(folder)
    if json:
        print_json({"out": str(folder), "files": files})
        return ExitStatus.FINE
    print(f"{folder}: {len(files):,} files restored")
    say("changes.csv and patch.json were removed")
    return ExitStatus.FINE
