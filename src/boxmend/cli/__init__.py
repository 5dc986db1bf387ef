"""The command line: parse, call the library once, print. Exit codes are decided here alone."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import NoReturn

from cyclopts import App, CycloptsError

import boxmend
from boxmend.cli.last_resort import explain
from boxmend.cli.output import library_notes
from boxmend.data.files.limits import check_environment
from boxmend.errors import BoxmendError, ExitStatus

COMMANDS = {
    "check": "Find what is wrong with a dataset, and repair what can be.",
    "convert": "Write a dataset in another format, or only a part of it in its own.",
    "diff": "Show which annotations differ between two datasets, in what and by how much.",
    "folds": "Split a dataset so that any trainer predicts on images that it has not seen.",
    "noise": "Make a noisy copy of a dataset, with the truth beside it.",
    "train": "Train a detector on a noisy dataset, and record what became of every annotation.",
    "audit": "Find wrong annotations by any detector, with fixes and how sure they are.",
    "review": "Decide on fixes on a page in your browser: accept, reject, change.",
    "apply": "Write the dataset of a run, mended, with every change listed.",
    "revert": "Take back what `apply` changed, byte for byte.",
    "export": "Hand doubtful annotations to Label Studio, CVAT, FiftyOne or others.",
    "import": "Read verdicts back from Label Studio or CVAT.",
    "report": "Show what a run found and changed, on one page that opens in any browser.",
    "predict": "Find objects in images by the model of a run.",
    "evaluate": "Score detections of a run or of any detector, and the mending of a run.",
    "bench": "Measure speed, run comparisons of methods under noise, and show their tables.",
    "synth": "Draw the embedded dataset.",
    "demo": "Draw a dataset, spoil it, train on it, mend it and report: five minutes.",
    "info": "Show versions, devices and formats.",
}

MODULES = {"import": "import_verdicts"}  # where a command's name is a word of Python


def command_line(chosen: str = "") -> App:
    """The commands, each imported when it is called; the chosen one speaks for itself in full."""
    app = App(
        name="boxmend",
        help="Train object detectors on annotations that nobody vouches for, and get the "
        "annotations back, mended: COCO, VOC and YOLO, without losing a byte.",
        help_epilogue="DATA is PATH or PATH:SPLIT: a COCO .json or a folder with "
        "instances_*.json, a VOC folder, or a YOLO data.yaml. Exit status: 0 success, 1 errors "
        "found by `check` or differences by `diff`, 2 wrong usage, 3 failure.",
        version=lambda: f"boxmend {boxmend.__version__}",
        help_format="plaintext",
        help_formatter="default" if sys.stdout.isatty() else "plain",
        result_action="return_value",
        suppress_keyboard_interrupt=False,  # `run` ends with a message and its own exit status
    )
    for name, summary in COMMANDS.items():
        own_words = None if name == chosen else summary
        app.command(f"boxmend.cli.{MODULES.get(name, name)}:app", name=name, help=own_words)
    return app


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    if isinstance(sys.stdout, TextIOWrapper):  # paths need not be text; in JSON it is valid, too
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(tokens: Sequence[str]) -> int:
    """Run one command and return its exit status; no exception but SystemExit leaves it."""
    try:
        check_environment()
        app = command_line(chosen=tokens[0] if tokens else "")
        with library_notes():
            status = app(list(tokens), exit_on_error=False, print_error=True)
        sys.stdout.flush()
        return int(status or ExitStatus.FINE)
    except CycloptsError:
        return ExitStatus.USAGE  # cyclopts has said what is wrong
    except BoxmendError as error:
        print(f"boxmend: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:  # `boxmend check ... | head`
        sys.stdout = None  # nothing is left to flush it into
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
