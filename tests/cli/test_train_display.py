"""The progress of a training, on a terminal and elsewhere."""

import io
import sys
from typing import Any

import pytest
from rich.console import Console

from boxmend.cli.display import display
from boxmend.training.progress import describe_noise, format_line, panel, rows

LINE: dict[str, Any] = {
    "step": 1250,
    "epoch": 3,
    "loss": 1.5,
    "rpn_objectness": 0.25,
    "norm": 3.25,
    "relabelled": 0.2,
    "unsure": 0.05,
    "matched": 0.75,
    "images_per_second": 1482.4,
    "seconds_left": 3725.2,
}


def text_of(renderable: Any, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_the_panel_tells_where_how_good_how_fast_and_what_is_flagged() -> None:
    noise = {"label_noise": 0.31, "box_noise": 0.4, "keep": 0.375, "threshold": 2.5}
    text = text_of(panel({"epochs": 12, "steps": 5000} | LINE | noise))
    for part in (
        "epoch 4 of 12",
        "step 1,250 of 5,000 · 1,482 images/s · 1:02:05 left",
        "loss 1.500 · rpn objectness 0.250",
        "flagged 25.0% (20.0% relabelled) · matched 75.0% · threshold 2.500",
        "label noise 31.0% · box noise 40.0% · raw box kept 37.5%",
    ):
        assert part in text


def test_the_bar_is_a_quarter_full() -> None:
    lines = text_of(panel({"epochs": 12, "steps": 5000} | LINE)).splitlines()
    bar = [mark for mark in lines[1] if mark in "━╸╺ "]
    full = bar.count("━") + bar.count("╸")
    assert full  # without colours the empty part is blank
    wide = text_of(panel({"epochs": 12, "steps": 5000} | LINE | {"step": 5000})).splitlines()[1]
    assert full == pytest.approx(wide.count("━") / 4, abs=1)


def test_a_panel_can_be_drawn_before_anything_is_known() -> None:
    text = text_of(panel({"epochs": 2, "first_step": 7, "steps": 10}))
    assert "epoch 1 of 2" in text
    assert "step 7 of 10" in text
    assert rows({"epochs": 2}) == []


def test_what_is_not_known_is_left_out() -> None:
    nan = float("nan")
    assert rows({"loss": nan, "threshold": nan, "label_noise": None}) == []
    assert rows({"val_voc_ap50_area": 0.5, "best_step": 3}) == [
        ("val", [("voc ap50 area", "0.500")])
    ]


def test_a_line_is_put_into_words() -> None:
    assert format_line(LINE) == (
        "epoch 4, step 1,250 · loss 1.5 · rpn objectness 0.25 · norm 3.25 · relabelled 0.2 · "
        "unsure 0.05 · matched 0.75 · 1,482 images/s · 1:02:05 left"
    )
    assert (
        format_line({"step": 3, "epoch": 0, "label_noise": 0.3})
        == "epoch 1, step 3 · label noise 0.3"
    )


def test_elsewhere_it_is_one_line_after_another(capsys: pytest.CaptureFixture[str]) -> None:
    with display(12, quiet=False) as show:
        for line in (
            {"plan": {"steps": 10}},
            {"note": "a.jpg cannot be read"},
            {"step": 2, "epoch": 0, "loss": 1.0},
            {"step": 2, "epoch": 0, "images_per_second": 3.0, "seconds_left": 1.0, "epoch_ends": 0},
            {"summary": {"steps": 10}},
        ):
            show(line)
    printed = capsys.readouterr()
    assert printed.err == "a.jpg cannot be read\nepoch 1, step 2 · loss 1\n"
    assert not printed.out


def test_who_wants_json_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with display(12, quiet=True) as show:
        show({"step": 2, "epoch": 0, "loss": 1.0})
    assert capsys.readouterr().err == ""


def test_on_a_terminal_it_stays_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with display(2, quiet=False) as show:
        show({"plan": {"first_step": 0, "steps": 10}})
        show({"note": "[b]a.jpg[/b] cannot be read"})
        show({"step": 5, "epoch": 1, "loss": 1.0})
        show({"summary": {"steps": 10}})
    text = terminal.getvalue()
    assert "epoch 2 of 2" in text
    assert "[b]a.jpg[/b] cannot be read" in text  # names are users' text, never markup
    assert "\x1b[" in text


def test_noise_rows_have_rates_and_confusions() -> None:
    noise = {
        "label_noise": 0.386,
        "label_noise_low": 0.31,
        "label_noise_high": 0.45,
        "box_noise": 0.4,
        "confusions": [{"called": "van", "truly": "truck", "share": 0.4, "annotations": 1234}],
    }
    assert list(describe_noise(noise)) == [
        ("label noise", "38.6% (31% to 45%)"),
        ("box noise", "40.0%"),
        ("called van", "40% are truck (1,234 annotations)"),
    ]
    assert list(describe_noise({})) == []
