"""The command line: parse the arguments, call the library, print, and set the exit status."""

import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import NoReturn

from cyclopts import App, CycloptsError, Group

import boxmend
from boxmend.cli.help_layout import HelpLayout
from boxmend.cli.last_resort import explain
from boxmend.cli.output import library_notes
from boxmend.data.files.limits import check_environment
from boxmend.errors import BoxmendError, ExitStatus

GROUPS = {
    "Audit and repair": {
        "check": "Validate files, images, boxes and ids; repair what can be repaired.",
        "audit": "Find annotation errors with a detector's predictions; propose fixes.",
        "review": "Accept, reject or change fixes on a local page in your browser.",
        "apply": "Write the dataset with the fixes of an audit or training run.",
        "revert": "Undo what `apply` changed, byte for byte.",
        "report": "Write one page with everything that an audit or run found.",
        "export": "Export doubtful annotations to Label Studio, CVAT or FiftyOne.",
        "import": "Import verdicts from Label Studio or CVAT.",
    },
    "Train": {
        "train": "Train a detector that judges and corrects its annotations.",
        "predict": "Detect objects in images with the model of a run.",
        "evaluate": "Score detections, or the mending of a run against the truth.",
        "bench": "Compare methods and error finders, and measure speed.",
    },
    "Data": {
        "convert": "Write a dataset in another format: COCO, VOC or YOLO.",
        "diff": "Show which annotations of two datasets differ, and by how much.",
        "noise": "Add known noise to a copy of a dataset, with the truth next to it.",
        "folds": "Split a dataset into folds for out-of-fold predictions.",
        "synth": "Draw the embedded dataset.",
        "quickstart": "Audit and repair a drawn dataset, step by step: half a minute.",
        "demo": "Draw a dataset, add noise, train, mend and report: five minutes.",
        "info": "Show versions, devices and formats.",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
MODULES = {"import": "import_verdicts"}  # commands whose names are Python keywords

DESCRIPTION = """\
Find and repair annotation errors in object-detection datasets (COCO, VOC and YOLO), and train
detectors on noisy annotations.

Check a dataset, audit it with the predictions of any detector, and apply the fixes:

  boxmend check data.yaml
  boxmend audit data.yaml --predictions predictions.json --out audit
  boxmend apply audit --precision 0.95 --out mended

`boxmend quickstart` shows these steps on a drawn dataset, without PyTorch.
`boxmend COMMAND --help` explains a command and shows an example."""
EXIT_STATUS = """\
Exit status: 0 success; 1 `check` found errors, or `diff` found differences;
2 wrong usage; 3 failure."""


def command_line(chosen: str = "") -> App:
    """Return the app with all commands; a command's module is imported when it is called.

    The chosen command explains itself by its own docstring, the others by their summaries.
    """
    app = App(
        name="boxmend",
        help=DESCRIPTION,
        help_epilogue=EXIT_STATUS,
        version=lambda: f"boxmend {boxmend.__version__}",
        help_format="plaintext",
        help_formatter=HelpLayout(),
        result_action="return_value",
        suppress_keyboard_interrupt=False,  # `run` prints a message and sets the exit status
    )
    for rank, (title, commands) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=rank)
        for name, summary in commands.items():
            app.command(
                f"boxmend.cli.{MODULES.get(name, name)}:app",
                name=name,
                help=_help_of_command(name) if name == chosen else summary,
                group=group,
                sort_key=tuple(COMMANDS).index(name),
            )
    options = Group("Options", sort_key=len(GROUPS))
    for flag in ("--help", "--version"):
        app[flag].group = (options,)
    return app


def _help_of_command(name: str) -> str | None:
    """Return the full help of a command.

    The app of a command keeps the summary that an earlier command line of this process set.
    """
    module = import_module(f"boxmend.cli.{MODULES.get(name, name)}")
    function = module.app.default_command
    text: str | None = module.HELP if function is None else function.__doc__
    return text


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    if isinstance(sys.stdout, TextIOWrapper):  # paths may hold bytes that are not text
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(tokens: Sequence[str]) -> int:
    """Run one command and return its exit status; only SystemExit can leave this function."""
    try:
        check_environment()
        app = command_line(chosen=tokens[0] if tokens else "")
        with library_notes():
            status = app(list(tokens), exit_on_error=False, print_error=True)
        sys.stdout.flush()
        return int(status or ExitStatus.FINE)
    except CycloptsError:
        return ExitStatus.USAGE  # cyclopts has printed the message
    except BoxmendError as error:
        print(f"boxmend: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:  # `boxmend check ... | head`
        sys.stdout = None  # Python must not flush it at exit
        return ExitStatus.FINE
    except KeyboardInterrupt:
        print("boxmend: interrupted", file=sys.stderr)
        return ExitStatus.FAILURE
    except MemoryError:
        print("boxmend: out of memory", file=sys.stderr)
        return ExitStatus.FAILURE
    except OSError as error:
        print(f"boxmend: {error}", file=sys.stderr)
        return ExitStatus.FAILURE
    except Exception as error:
        explain(error, tokens)
        return ExitStatus.FAILURE
