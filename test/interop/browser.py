"""A headless Chromium for tests of pages.

    with_selenium()                      goes on with a Python that has it, if there is one
    browser, why = open_browser()        None and the reason where something is missing
    size(browser, width, height); complaints(browser)
    axe_on(browser, what, (width, scheme), ...)
"""
import os
import shutil
import sys

import axe
from steps import retried, skip, step


def with_selenium():
    try:  # Debian's python3-selenium belongs to Debian's Python, which need not be the first one
        import selenium  # noqa: F401
    except ImportError:
        if os.path.exists("/usr/bin/python3") and os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3") \
                and not os.environ.get("BROWSER_AGAIN"):
            os.environ["BROWSER_AGAIN"] = "1"
            os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)


def open_browser():
    try:
        from selenium import webdriver
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None, "selenium is missing"
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not browser:
        return None, "chromium or chromedriver is missing"
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-prefers-reduced-motion"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for left in (2, 1, 0):  # a busy machine starts it too late for its driver
        try:
            return webdriver.Chrome(service=Service(driver), options=options), None
        except WebDriverException as e:
            if not left:
                raise
            print(f"once more, for the browser did not start: {str(e).splitlines()[0][:200]}", flush=True)
            retried("start of the browser", str(e))


def size(browser, width, height):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})


def complaints(browser):
    return [e for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]


def axe_on(browser, what, *views):
    """axe-core at each (width, scheme) of the page that is open."""
    script, why = axe.script()
    if not script:
        skip("axe-core on " + what, why)
        return
    found = []
    for width, scheme in views:
        size(browser, width, 900)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        found += ["%d %s %s" % (width, scheme, fault) for fault in axe.faults(browser, script)]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    size(browser, 1280, 900)
    step("axe-core finds nothing on %s, %s" % (what, ", ".join("%d %s" % v for v in views)), not found, found)
