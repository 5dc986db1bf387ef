"""`boxmend import`: read the verdicts of people from annotation tools."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json, MovedData
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus
from boxmend.repair.importing.verdicts import Imported, import_verdicts

app = App(name="import")


@app.default
def read_back(
    run: Annotated[Path, Parameter(help="Folder of the audited run that was exported.")],
    file: Annotated[
        Path,
        Parameter(
            help='JSON of Label Studio, or XML or zip of CVAT in the format "CVAT for images 1.1".'
        ),
    ],
    /,
    *,
    export: Annotated[
        Path | None,
        Parameter(
            help="Folder that `boxmend export` wrote, or its export.json. Files of CVAT need it; "
            "by default boxmend looks for it next to FILE."
        ),
    ] = None,
    data: MovedData = (),
    json: Json = False,
) -> int:
    """Import verdicts on the fixes of an audit from Label Studio or CVAT.

    A fix that people left as proposed is accepted; one that they changed back is rejected; one
    that they changed further is accepted with their change. Deleting a box accepts a proposed
    removal and rejects a proposed addition. Importing a file twice changes nothing.

    Example: boxmend import audit export.json
    """
    imported = import_verdicts(run, file, export, data=data or None)
    if json:
        print_json(imported.to_json())
    else:
        _print(imported, run)
    return ExitStatus.FINE


def _print(imported: Imported, run: Path) -> None:
    facts = imported.to_json()
    print_table(("what", "is"), [(key.replace("_", " "), value) for key, value in facts.items()])
    if imported.num_beyond:
        say(
            f"{imported.num_beyond:,} boxes were drawn, changed or deleted for which the audit has "
            "no fix; these changes were ignored"
        )
    if imported.num_unreadable:
        say(
            f"{imported.num_unreadable:,} boxes were ignored: they are rotated, lie outside the "
            "image, or have a label that the dataset does not have"
        )
    say(f"{len(imported.verdicts):,} verdicts added; `boxmend apply {quote(str(run))}` uses them")
