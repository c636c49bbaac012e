"""axe-core, Deque's accessibility checks, for tests of pages alone: from PyPI into build/, never into the repository.

script() -> its source, or None and why not; faults(browser, source) -> what it finds on the page that is open.
"""
import functools
import glob
import os
import subprocess
import sys
import zipfile

PACKAGE = "axe-core-python==0.1.0"  # axe-core 4.4.3
PATIENCE = 60  # s


@functools.cache
def script():
    folder = os.path.join(os.environ.get("BUILD", "build"), "axe")
    if not glob.glob(folder + "/*.whl"):
        os.makedirs(folder, exist_ok=True)
        words = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-input", "--no-deps",
                 "--only-binary", ":all:", "--timeout", "10", "--retries", "1", "--dest", folder, PACKAGE]
        try:
            subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE)
        except (OSError, subprocess.SubprocessError):
            return None, "pip could not fetch " + PACKAGE
    try:
        with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
            name = next(n for n in wheel.namelist() if n.endswith("/axe.min.js"))
            return wheel.read(name).decode(), None
    except (IndexError, StopIteration, zipfile.BadZipFile):
        return None, folder + " holds no axe-core"


def faults(browser, source):
    """Every rule that has one: WCAG 2.0 and 2.1, A and AA, and what axe calls good practice."""
    browser.set_script_timeout(PATIENCE)
    found = browser.execute_async_script("""
        const [source, done] = arguments;
        if (!window.axe) (0, eval)(source);
        axe.run({ resultTypes: ["violations"] }).then((r) => done({ violations: r.violations.map((v) =>
            v.id + ": " + v.nodes.map((n) => n.html.slice(0, 90)).join(" | ")), passed: r.passes.length }),
            (e) => done({ violations: [String(e)], passed: 0 }));""", source)
    return found["violations"] if found["passed"] else found["violations"] or ["no rule was tried"]
