#!/usr/bin/env python3
"""Draws paper/figures/page.png from the page that `make demo` leaves, in a headless Chromium.

    page_picture.py FOLDER [PICTURE]

FOLDER is a run's (out/demo). The left part shows the page's top on a desk, the right part its pictures on a phone. What the page shows is
compared with the run's log first: a page that is not that of the whole run is refused."""

import base64
import io
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "test" / "interop"))
import browser as chromium  # noqa: E402

DESK, PHONE = (1140, 1060), (390, 1060)  # pixels of the pages
SCALE = 0.7  # of the picture
GAP = 20
LOSS_DIGITS = 4  # that the page shows


def shown(browser, name):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def check(browser, folder):
    """The steps and the held-out loss on the page are those of the run's log."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    held = [f"{line['held_out']:.{LOSS_DIGITS}g}" for line in lines if "held_out" in line]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    rounds = max(event["epoch"] for event in events if event.get("event") == "epoch" and event["peer"] == 1)
    # The last held-out loss is measured after a trainer's last report.
    for name, wanted in (("t-step", [f"{rounds:,} of {rounds:,}"]), ("t-held", held[-2:])):
        if shown(browser, name) not in wanted:
            sys.exit(f"{folder}: the page says {shown(browser, name)} where the run's log has {' or '.join(wanted)}")


def shoot(browser, view, scheme, element):
    """What is seen of the page from this element on."""
    from PIL import Image

    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": view[0], "height": view[1], "deviceScaleFactor": SCALE, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.execute_script("if (arguments[0]) document.getElementById(arguments[0]).scrollIntoView(); else scrollTo(0, 0)", element)
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"])))


def main(folder, picture=HERE / "figures" / "page.png"):
    from PIL import Image

    folder = Path(folder).resolve()
    chromium.with_selenium()
    browser, why = chromium.open_browser()
    if not browser:
        sys.exit(f"no picture: {why}")
    try:
        browser.get((folder / "page" / "index.html").as_uri())
        check(browser, folder)
        parts = [shoot(browser, DESK, "light", None), shoot(browser, PHONE, "dark", "drawn")]
    finally:
        browser.quit()
    desk, phone = parts
    whole = Image.new("RGB", (desk.width + GAP + phone.width, desk.height), "white")
    whole.paste(desk, (0, 0))
    whole.paste(phone, (desk.width + GAP, 0))
    whole.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
