"""`boxmend revert`: undo the changes of `boxmend apply`."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, say
from boxmend.errors import ExitStatus
from boxmend.repair.apply import revert as revert_folder

app = App(name="revert")


@app.default
def revert(
    folder: Annotated[Path, Parameter(help="Folder that `boxmend apply` wrote.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Restore the annotation files of a mended dataset in place, byte for byte.

    A dataset that `boxmend apply --to` converted stays in its new format. If a file was edited
    since, boxmend refuses and changes nothing. It removes changes.csv and patch.json.

    Example: boxmend revert mended
    """
    files = revert_folder(folder)
    if json:
        print_json({"out": str(folder), "files": files})
        return ExitStatus.FINE
    print(f"{folder}: {len(files):,} files restored")
    say("changes.csv and patch.json were removed")
    return ExitStatus.FINE
