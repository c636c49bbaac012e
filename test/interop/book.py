"""The book of `make book`: every link leads somewhere, listings are the sources', golden values come out of the figures'
WebAssembly (in node and in Chromium), the figures answer, and the page draws what `potluck generate` does.

usage: book.py POTLUCK [SCREENSHOT_FOLDER]      POTLUCK's folder is the build folder
Without pandoc, or without clang, lld and wasi-libc, all is skipped; without node or Chromium their parts are.
"""
import base64
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

import steps
from browser import axe_on, complaints, open_browser, size, with_selenium
from steps import skip, step, until as wait_for

POTLUCK = os.path.abspath(sys.argv[1])
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.dirname(os.path.abspath(sys.argv[1]))
SHOTS = sys.argv[2] if len(sys.argv) > 2 else None
BOOK = os.path.join(BUILD, "book")
WASM = os.path.join(BUILD, "wasm", "ref.wasm")
CLANG = os.environ.get("CLANG", "clang")


def make(*words):
    """Of make's own variables only ours: this may run within a make of the whole."""
    kept = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(["make", "-s", "BUILD=" + BUILD, "CLANG=" + CLANG, *words], cwd=ROOT, env=kept, capture_output=True, text=True,
                          timeout=5 * steps.PATIENCE)


def lacking():
    if not shutil.which("pandoc"):
        return "pandoc is missing"
    for place in ("/usr/include/wasm32-wasi", "/usr/bin/wasm-ld"):
        if not os.path.exists(place):
            return "wasi-libc or lld is missing"
    probe = subprocess.run([*CLANG.split(), "--target=wasm32-wasi", "-mexec-model=reactor", "-x", "c", "-", "-o", os.devnull], input="",
                           capture_output=True, text=True)
    return f"{CLANG} cannot link for wasm32-wasi (libclang-rt-dev-wasm32)" if probe.returncode else None


# --- the pages -----------------------------------------------------------------------------------

class Page(html.parser.HTMLParser):
    """A page's links, the names that links can lead to, what it loads, and its listings."""

    def __init__(self, path):
        super().__init__()
        self.links, self.names, self.loads, self.listings = [], set(), [], []
        self.terms = self.inside = 0
        with open(path, encoding="utf-8") as f:
            self.feed(f.read())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.names.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
            self.terms += "term" in (found.get("class") or "").split()
        if tag in ("script", "img", "iframe", "source") and "src" in found or tag == "link":
            self.loads.append(found.get("src") or found["href"])
        if tag == "pre" and "c" in (found.get("class") or "").split():
            self.inside = 1
            self.listings.append("")

    def handle_endtag(self, tag):
        if tag == "pre":
            self.inside = 0

    def handle_data(self, data):
        if self.inside:
            self.listings[-1] += data


def pages():
    found = {}
    for folder, folders, names in os.walk(BOOK):
        folders[:] = [f for f in folders if f != "api"]  # Doxygen's
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(folder, name)
                found[os.path.relpath(path, BOOK)] = Page(path)
    return found


def check_pages():
    book = pages()
    chapters = sorted(p for p in book if re.match(r"\d\d-", p))
    step("a page for each chapter", len(chapters) == len([n for n in os.listdir(os.path.join(ROOT, "paper", "book")) if re.match(r"\d\d-.*\.md$", n)]) >= 10)
    lost = []
    for name, page in book.items():
        for link in page.links + page.loads:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if not os.path.isfile(os.path.join(BOOK, target)) or anchor and target in book and anchor not in book[target].names:
                lost.append(f"{name}: {link}")
    step("every link leads to a page, and to a name on it", not lost, lost[:20])
    foreign = [f"{name}: {l}" for name, page in book.items() for l in page.loads if re.match(r"[a-z]+:", l) and not l.startswith("data:")]
    step("no page loads anything from elsewhere", not foreign, foreign)

    if shutil.which("doxygen"):
        api = [l for c in chapters for l in book[c].links if l.startswith("api/")]
        step("listings lead into the API reference", len(api) >= 10, api)
    else:
        skip("links into the API reference", "doxygen is missing")
    sources = {}
    for name in book:
        if name.startswith("source/"):
            with open(os.path.join(ROOT, name[7:-5]), encoding="utf-8", errors="replace") as f:
                sources[name] = f.read()
    listings = [(c, l.strip("\n")) for c in chapters for l in book[c].listings]
    wrong = [(c, l[:60]) for c, l in listings if not any(l in text for text in sources.values())]
    step("each listing is in its source as it is, " + str(len(listings)), len(listings) >= 20 and not wrong, wrong)
    with open(os.path.join(ROOT, "paper", "glossary.md"), encoding="utf-8") as f:
        rows = len(re.findall(r"^\| .* \| `", f.read(), re.M))
    named = [n for n in book["paper-glossary.html"].names if n.startswith("term-")]
    step("every row of the glossary can be linked to", len(named) == rows, (len(named), rows))
    terms = [book[c].terms for c in chapters]
    step("each chapter links its terms to the glossary", min(terms) >= 1 and sum(terms) > 50, terms)


def check_stale():
    """A name that a source lacks ends the build."""
    chapter = os.path.join(BUILD, "book.stale.md")
    with open(chapter, "w", encoding="utf-8") as f:
        f.write("# Stale\n\n```{.code file=ref/mask.c function=pl_mask_nothing}\n```\n")
    done = subprocess.run(["pandoc", "--lua-filter", "paper/book/filter.lua", "--metadata", "out=" + BOOK, "--metadata", "notes=" + BUILD,
                           "--metadata", "source=" + chapter, "--metadata", "chapters=", "--metadata", "papers=", chapter],
                          cwd=ROOT, capture_output=True, text=True, timeout=steps.PATIENCE)
    os.remove(chapter)
    step("a listing of a function that is gone ends the build", done.returncode != 0 and "ref/mask.c has no function pl_mask_nothing" in done.stderr,
         (done.returncode, done.stderr[:300]))


# --- golden values through the WebAssembly ---------------------------------------------------------

def golden_in_node():
    if not shutil.which("node"):
        skip("golden values in node's WebAssembly", "node is missing")
        return
    done = subprocess.run(["node", "test/page/golden.js", WASM, "test/golden"], cwd=ROOT, capture_output=True, text=True, timeout=steps.PATIENCE)
    last = done.stdout.strip().split("\n")[-1]
    step("golden values in node's WebAssembly: " + last, done.returncode == 0 and int(last.split()[0]) > 200,
         [l for l in done.stdout.split("\n") if l.startswith("FAIL")][:5] + [done.stderr[-300:]])


def golden_in(browser):
    with open(os.path.join(ROOT, "test", "page", "golden.js"), encoding="utf-8") as f:
        script = f.read()
    browser.get("file://" + os.path.join(BOOK, "01-masks.html"))
    browser.execute_script("const script = document.createElement('script'); script.textContent = arguments[0]; document.body.append(script);"
                           "window.goldenFiles = {};", script)
    for name in browser.execute_script("return GOLDEN_FILES"):
        with open(os.path.join(ROOT, "test", "golden", name + ".safetensors"), "rb") as f:
            browser.execute_script("goldenFiles[arguments[0]] = Uint8Array.from(atob(arguments[1]), (c) => c.charCodeAt(0))",
                                   name, base64.b64encode(f.read()).decode())
    browser.set_script_timeout(steps.PATIENCE)
    cases = browser.execute_async_script("""
        const done = arguments[0];
        figure.ref.then((ref) => potluckGolden(ref, goldenFiles)).then((c) => done(c.map(({ name, error, good }) => [name, String(error), good])),
            (e) => done([[String(e), "", false]]));""")
    bad = [c for c in cases if not c[2]]
    step(f"golden values in Chromium's WebAssembly, {len(cases)}", not bad and len(cases) > 200, bad[:5])


# --- figures ---------------------------------------------------------------------------------------

# Every control is moved, sliders to the end that is farther: sentence or drawing has to change.
MOVE = """
const box = arguments[0], still = [];
const state = () => box.querySelector('.words').textContent + [...box.querySelectorAll('svg')].map((s) => s.innerHTML).join();
for (const control of box.querySelectorAll('input, select, button')) {
    const before = state();
    if (control.tagName === 'BUTTON') control.click();
    else {
        if (control.tagName === 'SELECT') control.selectedIndex = (control.selectedIndex + 1) % control.options.length;
        else control.value = Number(control.value) - Number(control.min) < Number(control.max) - Number(control.value) ? control.max : control.min;
        control.dispatchEvent(new Event(control.tagName === 'SELECT' ? 'change' : 'input', { bubbles: true }));
    }
    if (state() === before) still.push(control.outerHTML);
}
return still;
"""


def check_figures(browser):
    from selenium.webdriver.common.by import By
    size(browser, 1280, 900)
    for chapter in sorted(n for n in os.listdir(BOOK) if re.match(r"\d\d-.*\.html$", n)):
        browser.get("file://" + os.path.join(BOOK, chapter))
        for box in browser.find_elements(By.CSS_SELECTOR, ".play"):
            name = box.get_attribute("id")
            step(f"{name} starts", wait_for(lambda: box.get_attribute("data-ready")), complaints(browser))
            still = browser.execute_script(MOVE, box) if name != "figure-draw" else []  # whose controls wait for "Draw"
            step(f"{name}: every control changes it", not still, still)
            if SHOTS:
                box.screenshot(os.path.join(SHOTS, name + ".png"))
        over = []
        for width in (1280, 360):
            size(browser, width, 900)
            if browser.execute_script("return document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                over.append(width)
        step(f"{chapter}: nothing hangs over, the console is silent", not over and not complaints(browser), (over, complaints(browser)))
        axe_on(browser, chapter, (1280, "light"), (320, "dark"))


def check_what_figures_show(browser):
    """Facts that a reader would check with the chapter's text."""
    def words(figure):
        return browser.execute_script("return document.querySelector('#figure-' + arguments[0] + ' .words').textContent", figure)

    def opened(chapter, figure):
        browser.get("file://" + os.path.join(BOOK, chapter + ".html"))
        wait_for(lambda: browser.execute_script("return document.getElementById('figure-' + arguments[0]).dataset.ready", figure))

    opened("01-masks", "masks")
    browser.execute_script("const s = document.querySelector('#figure-masks input'); s.value = 64; s.dispatchEvent(new Event('input'))")
    step("the last layer's mask is the window", "Layer 64 of 64: window" in words("masks"), words("masks"))
    opened("03-blocks", "reversible")
    browser.execute_script("document.querySelectorAll('#figure-reversible button')[2].click()")
    error = re.search(r"at most ([\d.]+e[+-]\d+)", words("reversible"))
    step("16 blocks forth and back: rounding is left, and no more", error and 0 < float(error.group(1)) < 1e-5, words("reversible"))
    opened("07-averaging", "allreduce")
    for _ in range(4):
        browser.execute_script("document.querySelectorAll('#figure-allreduce button')[1].click()")
    step("the steps come to pl_average_group's bits", "the bits that pl_average_group gives" in words("allreduce"), words("allreduce"))
    opened("10-swarms", "matchmaking")
    for _ in range(3):
        browser.execute_script("document.querySelectorAll('#figure-matchmaking button')[1].click()")
    step("a recorded group begins", "peer 1 leads, and begins the all-reduce. The group's order is 0, 1" in words("matchmaking"), words("matchmaking"))
    opened("09-byzantine", "clip")
    before = words("clip")
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    peer = browser.find_element(By.CSS_SELECTOR, "#figure-clip circle.drag")
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", peer)
    ActionChains(browser).drag_and_drop_by_offset(peer, 60, -40).perform()
    far = lambda text: [float(x) for x in re.search(r"mean of all is ([\d.]+) away, the median ([\d.]+), CenteredClip ([\d.]+\d)", text).groups()]
    old, new = far(before), far(words("clip"))
    step("a Byzantine peer is dragged away: the mean follows, CenteredClip does not", new[0] > old[0] + 0.05 and abs(new[2] - old[2]) < 0.05, (old, new))


# --- a model of the page's own: what it tokenizes and samples is what the programs do ----------------

# Of the eight pairs that the test's model learns by heart, and texts that normalization changes.
CAPTIONS = ["luggage", "flag: Wales", "up-left arrow", "farmer: medium skin tone"]
TEXTS = ["", "Two  Words", "\u00dcn\u00efc\u00f6d\u00e9 text", "full \ufb01 width \uff21\uff22\uff23", "\u65e5\u672c flag", "up-left arrow!?"]


def run(*words, **keys):
    return subprocess.run([POTLUCK, *words], cwd=ROOT, capture_output=True, text=True, timeout=steps.PATIENCE, **keys)


def script_of(folder):
    """The page's script with the model of that training; None: it failed."""
    made = subprocess.run([sys.executable, "paper/book/model.py", folder, "data/demo/codec.safetensors", "data/demo/t5_2k.model"],
                          cwd=ROOT, capture_output=True, text=True)
    if made.returncode:
        step("a model for the page", False, made.stderr)
        return None
    with open(folder + "/model.js", "w") as f:
        f.write(made.stdout)
    return folder + "/model.js"


def trained(folder):
    """The script with a model of some seconds' training, and what `potluck generate` draws with it."""
    done = run("train", "--quiet", "--config", "test/program/tiny.json", "--limit", "8", "--steps", "300", "--batch", "8", "--target-batch", "8",
               "--lr", "0.03", "--out", folder, "--save-every", "0", "--evaluate-every", "0", "--threads", "1")
    drawn = run("generate", "--model", folder, "--greedy", "--quiet", "--out", folder + "/pictures", *CAPTIONS)
    if not done.returncode == drawn.returncode == 0:
        step("a model for the page", False, done.stderr + drawn.stderr)
        return None
    if not script_of(folder):
        return None
    with open(folder + "/pictures/pictures.json") as f:
        return json.load(f)["pictures"]


def draw_in_node(folder, pictures):
    if not shutil.which("node"):
        skip("the page's sampler in node", "node is missing")
        return
    with open(os.path.join(ROOT, "data", "demo", "holdout.txt")) as f:
        lines = CAPTIONS + TEXTS + f.read().splitlines()
    with open(folder + "/lines", "w") as f:
        f.write("".join(line + "\n" for line in lines))
    done = subprocess.run(["node", "test/page/sampler.js", WASM, folder + "/model.js", folder + "/lines", str(len(CAPTIONS))], cwd=ROOT,
                          capture_output=True, text=True, timeout=steps.PATIENCE)
    if done.returncode:
        step("the page's sampler in node", False, done.stderr[-500:])
        return
    page = json.loads(done.stdout)
    output = run("tokenize", "--model", "data/demo/t5_2k.model", input="".join(line + "\n" for line in lines))
    want = [[int(i) for i in line.split()] for line in output.stdout.split("\n")[:-1]]
    wrong = [(line, a, b) for line, a, b in zip(lines, page["tokens"], want) if a != b]
    step(f"the page's tokens are those of potluck tokenize, {len(lines)} texts", len(want) == len(lines) and not wrong, wrong[:3])
    codes = [p["codes"] for p in page["drawn"]]
    step("the page samples what potluck generate does", codes == [p["codes"] for p in pictures] and len({tuple(c) for c in codes}) == len(CAPTIONS))


# The pixels of a data URL, and of the first canvas, at the canvas' size.
PIXELS = """
const [url, done] = arguments, canvas = document.querySelector('#figure-draw canvas');
const image = new Image();
image.onload = () => {
    const other = document.createElement('canvas'), context = other.getContext('2d');
    other.width = canvas.width, other.height = canvas.height;
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const [a, b] = [canvas, other].map((c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data);
    done([canvas.dataset.codes, a.reduce((most, v, i) => Math.max(most, Math.abs(v - b[i])), 0)]);
};
image.src = url;
"""


def opened_with(browser, folder):
    """The chapter's figure with that folder's model."""
    from selenium.webdriver.common.by import By
    shutil.copytree(os.path.join(BOOK, "figures"), folder + "/figures")
    for name in ("04-pictures.html", "book.css"):
        shutil.copy(os.path.join(BOOK, name), folder)
    shutil.copy(folder + "/model.js", folder + "/figures/model.js")
    browser.get("file://" + folder + "/04-pictures.html")
    box = browser.find_element(By.ID, "figure-draw")
    wait_for(lambda: box.get_attribute("data-ready"))
    return box


def draw_in(browser, folder, pictures):
    """Typed in, as a reader does."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    box = opened_with(browser, folder)
    browser.execute_script("const s = arguments[0].querySelector('input[type=range]'); s.value = 0; s.dispatchEvent(new Event('input'))", box)
    for caption, picture in list(zip(CAPTIONS, pictures))[:2]:
        field = box.find_element(By.CSS_SELECTOR, "input[type=text]")
        field.clear()
        field.send_keys(caption + Keys.ENTER)
        wait_for(lambda: box.get_attribute("data-drawn") == caption)
        with open(f"{folder}/pictures/{picture['file']}", "rb") as f:
            codes, apart = browser.execute_async_script(PIXELS, "data:image/png;base64," + base64.b64encode(f.read()).decode())
        step(f"typed in Chromium, '{caption}' is the picture of potluck generate", codes == " ".join(map(str, picture["codes"])) and apart <= 1, apart)
    if SHOTS:
        box.screenshot(os.path.join(SHOTS, "figure-draw.png"))


def demo_sized(browser, folder):
    """A model of the demo's size, one step old: its script is below 10 MB, and a picture takes less than 2 s."""
    from selenium.webdriver.common.by import By
    done = run("train", "--quiet", "--config", "demo", "--limit", "8", "--steps", "1", "--batch", "1", "--target-batch", "1", "--out", folder,
               "--save-every", "0", "--evaluate-every", "0")
    script = done.returncode == 0 and script_of(folder)
    if not script:
        step("a model of the demo's size", False, done.stderr)
        return
    step("the script of a model of the demo's size is below 10 MB", 7e6 < os.path.getsize(script) < 10e6, os.path.getsize(script))
    box = opened_with(browser, folder)
    box.find_element(By.TAG_NAME, "button").click()
    wait_for(lambda: box.get_attribute("data-drawn"))
    seconds = re.search(r"([\d.]+) s each", box.text)
    step("it draws a picture in less than 2 s", seconds and 0 < float(seconds.group(1)) < 2, box.text)


def main():
    with_selenium()
    steps.needs()
    why = lacking()
    if why:
        skip("the book", why)
        sys.exit(steps.closing())
    done = make("book-pages")
    step("make book", done.returncode == 0, done.stderr[-1000:])
    if done.returncode == 0:
        check_pages()
        check_stale()
        golden_in_node()
        folder = tempfile.mkdtemp()
        pictures = trained(folder)
        if pictures:
            draw_in_node(folder, pictures)
        browser, why = open_browser()
        if browser:
            try:
                if pictures:
                    draw_in(browser, folder, pictures)
                with tempfile.TemporaryDirectory() as large:
                    demo_sized(browser, large)
                golden_in(browser)
                check_figures(browser)
                check_what_figures_show(browser)
            finally:
                browser.quit()
        else:
            skip("the figures in a browser", why)
        shutil.rmtree(folder)
    sys.exit(steps.closing())


main()
