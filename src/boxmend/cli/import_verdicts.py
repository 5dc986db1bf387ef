"""`boxmend import`: verdicts that people gave in other tools."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json, MovedData
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus
from boxmend.repair.importing.verdicts import Imported, import_verdicts

app = App(name="import", help_format="markdown")


@app.default
def read_back(
    run: Annotated[Path, Parameter(help="Folder of the audited run that was handed over.")],
    file: Annotated[
        Path,
        Parameter(help='JSON from Label Studio, or "CVAT for images 1.1" from CVAT: XML, or zip.'),
    ],
    /,
    *,
    handover: Annotated[
        Path | None,
        Parameter(
            help="Folder that `boxmend export` wrote, or its handover.json, which CVAT's need; "
            "beside FILE by default."
        ),
    ] = None,
    data: MovedData = (),
    json: Json = False,
) -> int:
    """Read verdicts back from what people did with fixes in Label Studio or CVAT.

    A suggestion that was kept is accepted, one that was changed back is rejected, one that was
    changed otherwise is accepted with that. A deleted box accepts its removal, or rejects that it
    was missing. To import a file again changes nothing.
    """
    imported = import_verdicts(run, file, handover, data=data or None)
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
            "no fix; these changes were not taken over"
        )
    if imported.num_unreadable:
        say(
            f"{imported.num_unreadable:,} boxes are turned, lie beside the image, or have a label "
            "that the dataset does not have, and say nothing"
        )
    say(
        f"{len(imported.verdicts):,} verdicts added; `boxmend apply {quote(str(run))}` goes by them"
    )
