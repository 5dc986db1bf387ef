"""Make the pictures of docs/start.md from the folder of a quickstart; needs Chromium.

boxmend quickstart --out quickstart
python tools/start_pictures.py quickstart
"""

import sys
import threading
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from boxmend.auditing.audit import AuditSettings
from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.images.drawing import GREEN, RED, WHITE, Outline, Panel, draw_sheet
from boxmend.repair.audit_results import audit
from boxmend.web.review.serving import Server, open_session

OUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "start"
CHROMIUM = "/usr/bin/chromium"
NUM_SCENES = 4
SHOWN_KINDS = (Kind.WRONG_LABEL, Kind.MISSING)
DESKTOP: ViewportSize = {"width": 1180, "height": 720}
JPEG_QUALITY = 82


def main(quickstart: Path) -> None:
    """Make all pictures."""
    OUT.mkdir(parents=True, exist_ok=True)
    noisy, mended = (load(quickstart / name / "data.yaml") for name in ("data", "mended"))
    images = choose_images(noisy, mended)
    draw(noisy, mended, images, RED, "check")
    draw(mended, noisy, images, GREEN, "apply")
    draw_fixes(noisy, quickstart)
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=DESKTOP)
        page.goto((quickstart / "audit" / "report.html").resolve().as_uri())
        save_screenshot(page, "report")
        server = Server(open_session(quickstart / "audit"))
        threading.Thread(target=server.run, daemon=True).start()
        page.goto(server.address)
        page.wait_for_timeout(1500)  # until the picture is loaded
        save_screenshot(page, "review")
        server.stop()
        browser.close()


def choose_images(noisy: Dataset, mended: Dataset) -> list[int]:
    """Return the first images in which several annotations changed."""
    changed = [
        image
        for image in range(len(noisy.images))
        if len(changed_rows(noisy, mended, image)) + len(changed_rows(mended, noisy, image)) > 3
    ]
    return changed[:NUM_SCENES]


def changed_rows(dataset: Dataset, other: Dataset, image: int) -> list[int]:
    """Return the annotations of an image that the other dataset has not."""
    there = {
        (int(other.labels[row]), *other.boxes[row].round(1))
        for row in np.flatnonzero(other.image_rows == image)
    }
    return [
        row
        for row in np.flatnonzero(dataset.image_rows == image).tolist()
        if (int(dataset.labels[row]), *dataset.boxes[row].round(1)) not in there
    ]


def draw(
    dataset: Dataset, other: Dataset, images: list[int], color: tuple[int, int, int], name: str
) -> None:
    """Draw annotations in white, and those that the other dataset has not in a colour."""
    panels = []
    for image in images:
        changed = changed_rows(dataset, other, image)
        outlines = [
            Outline(
                tuple(dataset.boxes[row]),
                color if row in changed else WHITE,
                dataset.label_names[dataset.labels[row]],
            )
            for row in np.flatnonzero(dataset.image_rows == image).tolist()
        ]
        panels.append(Panel(Path(dataset.images.paths[image]), outlines))
    save(draw_sheet(panels, columns=NUM_SCENES, side=240), name)


def draw_fixes(noisy: Dataset, quickstart: Path) -> None:
    """Draw the first fix of some kinds, before and after."""
    result = audit(noisy, quickstart / "predictions.json", AuditSettings(unseen=True))
    fixes = [result.fixes.filter(kind=kind.words)[0]["fix"] for kind in SHOWN_KINDS]
    pictures = [result.show(fix, side=240) for fix in fixes]
    sheet = Image.new("RGB", (sum(p.width for p in pictures), pictures[0].height))
    left = 0
    for picture in pictures:
        sheet.paste(picture, (left, 0))
        left += picture.width
    save(sheet, "audit")


def save_screenshot(page: Page, name: str) -> None:
    """Save what the browser shows."""
    path = OUT / f"{name}.png"
    page.screenshot(path=path)
    with Image.open(path) as picture:
        save(picture.convert("RGB"), name)
    path.unlink()


def save(picture: Image.Image, name: str) -> None:
    """Save a picture of the page."""
    picture.save(OUT / f"{name}.jpg", quality=JPEG_QUALITY, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
