"""axe-core, Deque's accessibility checks, for tests of pages alone: from PyPI (files.txt), never into the repository.

script() -> its source, or None and why not; faults(browser, source) -> what it finds on the page that is open.
"""
import functools
import importlib.util
import os

from steps import SLOW

PATIENCE = 60 * SLOW  # s


@functools.cache
def script():
    found = importlib.util.find_spec("axe_core_python")
    path = found and os.path.join(os.path.dirname(found.origin), "axe.min.js")
    if not path or not os.path.exists(path):
        return None, "axe-core-python is missing (make interop)"
    with open(path, encoding="utf-8") as file:
        return file.read(), None


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
