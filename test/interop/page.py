"""The page in a real browser: a live run's numbers, the calculator, phone and desk, light and dark.

usage: page.py POTLUCK [SCREENSHOT_FOLDER]
Without selenium or Chromium (Debian: python3-selenium chromium-driver) the browser's part is skipped;
without node, the calculator's comparison with the program's. One long file, since all checks share one browser and one run.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import steps
from browser import axe_on, complaints, open_browser, size, with_selenium
from steps import skip, step, until as wait_for

steps.needs()  # the limit alone: what is missing is skipped part by part
POTLUCK = os.path.abspath(sys.argv[1])
SHOTS = sys.argv[2] if len(sys.argv) > 2 else None
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
RUN = 'a <b>run</b> & "more"'
NAME = "<b>Anna</b> & 'co\""
PATIENCE = steps.PATIENCE
LIFE = 3600  # s of a record, the longest that a node keeps: more than this script takes


class Program:
    """One of ours that serves, until it is left."""

    def __init__(self, *words):  # into files: a pipe that nobody reads fills, and then a trainer stops
        self.output, self.complaints = tempfile.NamedTemporaryFile("a+"), tempfile.NamedTemporaryFile("a+")
        self.process = subprocess.Popen([POTLUCK, *words], stdout=self.output, stderr=self.complaints)

    @staticmethod
    def lines(file):
        with open(file.name) as f:
            return [line for line in f if line.endswith("\n")]

    def line_after(self, start):
        """What follows these words on standard error, once there."""
        found = wait_for(lambda: [line[len(start):].strip() for line in self.lines(self.complaints) if line.startswith(start)])
        return (found or [None])[0]

    def event(self, name):
        found = wait_for(lambda: [e for e in map(json.loads, self.lines(self.output)) if e["event"] == name])
        if not found:
            raise RuntimeError(f"no event {name}: {self.lines(self.complaints)[-3:]}")
        return found[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)


def put(entry, key, value):
    subprocess.run([POTLUCK, "dht", "put", RUN + key, json.dumps(value), "--join", entry, "--owner", "--expires", str(LIFE)],
                   check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)


def metrics(step_, rate, samples, loss, mini_steps):
    return {"step": step_, "samples_per_second": rate, "samples_accumulated": samples, "loss": loss,
            "mini_steps": mini_steps}


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def calculator():
    if not shutil.which("node"):
        skip("the script's calculator against the program's", "node is missing")
        return
    done = subprocess.run(["node", os.path.join(ROOT, "test", "page", "calc.js"), POTLUCK,
                           os.path.join(ROOT, "test", "golden", "calculator")], capture_output=True, text=True, timeout=10 * PATIENCE)
    step("the script's calculator equals the program's, " + done.stdout.strip().split("\n")[-1],
         done.returncode == 0, done.stdout[:300] + done.stderr[-300:])


# --- the browser ---------------------------------------------------------------------------------

def shoot(browser, name, whole=False, clip=None):
    if not SHOTS:
        return
    import base64
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole, **({"clip": dict(clip, scale=1)} if clip else {})})
    with open(os.path.join(SHOTS, name + ".png"), "wb") as f:
        f.write(base64.b64decode(shot["data"]))


def text(browser, id_):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", id_)


CONTRAST = """
function lum(c) { return c.map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; })
    .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0); }
function rgb(t) { const m = t.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); }
const bad = [];
for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (!e.offsetParent && !(e instanceof SVGElement)) continue;
    if (e.matches(':disabled, .skip')) continue;
    let back = null;
    for (let p = e; p && !back; p = p.parentElement) back = rgb(getComputedStyle(p).backgroundColor);
    const style = getComputedStyle(e), fore = rgb(e instanceof SVGElement ? style.fill : style.color);
    if (!back || !fore) continue;
    const a = lum(fore), b = lum(back), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(e.tagName + ' ' + e.textContent.trim().slice(0, 30) + ' ' + ratio.toFixed(2));
}
return bad;
"""

NAMES = """
const bad = [];
for (const e of document.querySelectorAll('input, select, button, progress'))
    if (!(e.labels && e.labels.length) && !e.textContent.trim() && !e.getAttribute('aria-label')) bad.push(e.outerHTML.slice(0, 80));
for (const e of document.querySelectorAll('[role=img], [role=region], nav'))
    if (!e.getAttribute('aria-label')) bad.push(e.outerHTML.slice(0, 80));
let last = 0;
for (const e of document.querySelectorAll('h1, h2, h3')) {
    const level = Number(e.tagName[1]);
    if (level > last + 1) bad.push('heading ' + e.textContent);
    last = level;
}
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
if (new Set(ids).size !== ids.length) bad.push('an id twice');
for (const e of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(e.getAttribute('href').slice(1))) bad.push('a link to nowhere ' + e.href);
if (!document.documentElement.lang || !document.title || !document.querySelector('main')) bad.push('lang, title or main');
return bad;
"""


# Bigger than a fingertip needs (WCAG 2.2, 2.5.8): 24 pixels each way, but for links within text.
TARGETS = """
return [...document.querySelectorAll('button, select, input:not([type=range]), nav a, summary')].filter(e => e.offsetParent).map(e => {
    const boxes = [e, ...(e.labels || [])].map(x => x.getBoundingClientRect());
    return [e.outerHTML.slice(0, 60), Math.max(...boxes.map(b => b.width)), Math.max(...boxes.map(b => b.height))];
}).filter(([, w, h]) => w < 24 || h < 24);
"""


def accessibility(browser):
    """What a screen reader is given: Chromium's own tree."""
    browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = [n for n in browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"] if not n.get("ignored")]
    role = lambda n: n["role"]["value"]
    name = lambda n: (n.get("name") or {}).get("value", "").strip()
    acting = ("button", "link", "combobox", "slider", "checkbox", "radio", "spinbutton", "progressbar", "image", "img", "region", "table",
              "navigation", "heading", "columnheader", "rowheader")
    nameless = [role(n) for n in nodes if role(n) in acting and not name(n)
                and role(n) not in ("table", "columnheader")]  # a table may take its name from its region
    step("the accessibility tree: everything that acts or stands for something has a name", not nameless, nameless)
    roles = [role(n) for n in nodes]
    step("and there are its landmarks", [roles.count(r) for r in ("banner", "navigation", "main", "contentinfo")] == [1, 1, 1, 1],
         {r: roles.count(r) for r in set(roles)})
    step("and values of sliders", all((n.get("value") or {}).get("value") is not None for n in nodes if role(n) == "slider"))
    small = browser.execute_script(TARGETS)
    step("what is to be touched is large enough", not small, small)


def keyboard(browser):
    """Tab reaches everything that acts, and one sees where one is."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    want = browser.execute_script("""
        const radios = new Set();
        return [...document.querySelectorAll('a[href], button, select, input, [tabindex="0"]')].filter(e => {
            if (e.disabled || !(e.offsetParent || e.matches('.skip'))) return false;
            if (e.type !== 'radio') return true;
            if (radios.has(e.name)) return false;
            return radios.add(e.name);
        }).length""")
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0); window.reached = new Set(); window.unseen = []")
    for _ in range(want + 5):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        browser.execute_script("""
            const e = document.activeElement, s = getComputedStyle(e);
            if (e === document.body) return;
            window.reached.add(e);
            if (parseFloat(s.outlineWidth) < 2 || s.outlineStyle === 'none') window.unseen.push(e.outerHTML.slice(0, 60));""")
    got = browser.execute_script("return window.reached.size")
    step("Tab reaches everything that acts", got >= want, (got, want))
    unseen = browser.execute_script("return window.unseen")
    step("and the focus is seen", not unseen, unseen)


CARDS = """
return [...document.querySelectorAll("#cards li")].map(li => [li.querySelector("p").textContent,
    ...[...li.querySelectorAll("image")].map(e => e.getAttribute("href")), ...[...li.querySelectorAll("svg")].map(e => e.getAttribute("viewBox"))]);
"""


def samples(browser):
    """Cards with the real picture and the drawn one; the slider and the time-lapse change what is drawn."""
    from selenium.webdriver.common.keys import Keys
    card = lambda caption, step_, window: [caption, "samples/real.png", "samples/%d.png" % step_, window, window]
    both = lambda step_: [card("a <b>cat", step_, "4 4 64 64"), card("a dog", step_, "72 4 64 64")]
    shown = lambda: browser.execute_script(CARDS)
    step("each caption with its real picture and the newest drawn one", wait_for(lambda: shown() == both(9)) and
         text(browser, "drawn-name") == "9: 3 of 4 nearest to their own picture", (shown(), text(browser, "drawn-name")))
    sizes = browser.execute_script("return [...document.querySelectorAll('#cards svg')].map(e => e.getBoundingClientRect())"
                                   ".map(b => Math.abs(b.width - b.height) < 1 && b.width > 40)")
    step("as squares that can be seen", sizes == [True] * 4, sizes)
    slider = browser.find_element("id", "drawn-step")
    slider.send_keys(Keys.HOME)
    step("the slider goes back to the first step", shown() == both(5), shown())
    slider.send_keys(Keys.END)
    button = browser.find_element("id", "drawn-play")
    button.click()
    first = [shown() == both(5), button.text]
    step("the time-lapse begins with the first step and ends with the last",
         first == [True, "Pause"] and wait_for(lambda: shown() == both(9) and button.text == "Play"), (first, shown(), button.text))


def check_page(browser, url, entry):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select
    size(browser, 1280, 900)
    browser.get(url)
    shown = lambda: (text(browser, "t-loss"), text(browser, "t-peers"), text(browser, "t-step")) == ("3", "1", "7 of 100")
    wait_for(lambda: shown() and browser.execute_script("return document.querySelectorAll('#board tr').length") == 1)
    state = json.loads(fetch(url + "api/state.json"))
    step("the swarm's loss, peers and step are on the page", shown(),
         [text(browser, i) for i in ("t-loss", "t-peers", "t-step")] + [state])
    step("a run's name is text, not markup", RUN in text(browser, "run-line") and
         not browser.find_elements(By.CSS_SELECTOR, "#run-line b"), text(browser, "run-line"))
    labels = browser.execute_script("""
        const box = document.createElement("div");
        document.body.append(box);
        const counts = [[5.605, 5.698], [0.101, 0.199], [3, 7.9], [-1, 1e6]].map((values) => {
            potluckCharts.lines(box, [0, 1], [{ name: "x", values }]);
            return [...box.querySelectorAll("text[text-anchor=end]")].length;
        });
        box.remove();
        return counts;""")
    step("an axis has two figures at least, whatever its scale", min(labels) >= 2 and max(labels) <= 7, labels)
    clock = browser.execute_script("""
        const box = document.createElement("div");
        document.body.append(box);
        const words = [330, 5000, 1e6].map((span) => {
            potluckCharts.lines(box, [1.7e9, 1.7e9 + span], [{ name: "x", values: [1, 2] }]);
            return [...box.querySelectorAll("text[text-anchor=middle]")].map(e => e.textContent);
        });
        potluckCharts.lines(box, [0, 300], [{ name: "x", values: [1, 2] }]);
        const svg = box.querySelector("svg"), inside = [...box.querySelectorAll("text")].every(e => { const b = e.getBBox(); return b.x >= 0 && b.x + b.width <= svg.viewBox.baseVal.width; });
        box.remove();
        return [inside, words];""")
    inside, clock = clock
    step("a mark at the very end of a chart is not cut", inside)
    step("the marks of time are whole minutes, quarters, days", all(2 <= len(w) <= 8 for w in clock) and all(t.endswith(":00") for t in clock[0])
         and all(t[-2:] in ("00", "15", "30", "45") for t in clock[1]) and len(set(clock[2])) == len(clock[2]), clock)
    years = browser.execute_script("""
        const box = document.createElement("div");
        document.body.append(box);
        potluckCharts.lines(box, [1.7e9], [{ name: "x", values: [1] }]);
        const words = [...box.querySelectorAll("text")].map(e => e.textContent).filter(t => /-/.test(t));
        box.remove();
        return words;""")
    step("a single moment is drawn in minutes, not in decades", not years, years)
    moment = browser.execute_script("""
        const box = document.createElement("div");
        document.body.append(box);
        potluckCharts.lines(box, [1.7e9], [{ name: "x", values: [1], zero: true }, { name: "y", values: [2] }]);
        const drawn = ["circle", "polygon"].map(e => box.querySelectorAll(e).length);
        potluckCharts.lines(box, [1.7e9, 1.7e9 + 10], [{ name: "x", values: [1, 2], zero: true }]);
        drawn.push(...["circle", "polygon"].map(e => box.querySelectorAll(e).length));
        box.remove();
        return drawn;""")
    step("as a point, not as a mountain; two are a line", moment == [2, 0, 0, 1], moment)
    put(entry, "_metrics", metrics(8, 4.0, 50, 20.0, 20))
    step("a new record comes by itself", wait_for(lambda: text(browser, "t-peers") == "2" and text(browser, "t-loss") == "2"
         and browser.execute_script("return document.querySelectorAll('#board tr').length") == 2), text(browser, "run-line"))
    step("history is drawn", wait_for(lambda: browser.execute_script(
        "return document.querySelectorAll('#chart-loss path').length") == 2))
    step("so is the share of captions drawn nearest to their own picture", wait_for(lambda: browser.execute_script(
        "return document.querySelectorAll('#chart-nearest path').length") == 1) and "at step 9 3 of 4" in browser.execute_script(
            "return document.getElementById('chart-nearest').getAttribute('aria-label')"))
    samples(browser)
    offered = wait_for(lambda: browser.execute_script("""
        const command = [...document.querySelectorAll("#join pre")].map(e => e.textContent.trim().split("\\n").pop()).find(t => / join /.test(t));
        const path = document.querySelector("#qr path"), code = potluckQR.matrix(command.replace("build/", ""));
        return path && path.getBoundingClientRect().width > 100 && path.getAttribute("d") === potluckQR.path(code) && command;"""))
    step("the command that joins, with the live address, and as a QR code", offered and offered.endswith(entry), offered)
    step("and that others cannot use an address of this machine", "works on this machine alone" in text(browser, "join-scope"), text(browser, "join-scope"))
    where = browser.execute_script("return arguments[0].map(a => (potluckPeers.scope(a).match(/this machine|local network/) || ['anywhere'])[0])",
                                   [f"/{a}/tcp/1/p2p/x" for a in ("ip6/::1", "dns4/localhost", "ip4/10.1.2.3", "ip4/192.168.0.7", "ip4/172.31.0.1",
                                                                  "ip4/172.32.0.1", "ip4/100.64.0.1", "ip6/fd00::1", "ip6/fe80::1", "ip4/203.0.113.7",
                                                                  "ip6/2001:db8::1", "dns4/run.example.org")])
    step("nor those of a private network", where == ["this machine"] * 2 + ["local network"] * 3 + ["anywhere"] + ["local network"] * 3
         + ["anywhere"] * 3, where)
    shoot(browser, "desk-light")
    axe_on(browser, "the page", (1280, "light"), (1280, "dark"), (320, "light"), (320, "dark"))

    wrong = []
    for model, changes, words in (("run", {}, []), ("gpt2-l", {"optimizer": "8-bit"}, ["--optimizer", "8-bit"]),
                                  ("t5-11b", {"layers": "stored", "precision": "full"}, ["--layers", "stored", "--precision", "full"]),
                                  ("demo", {"layers": "checkpoint"}, ["--layers", "checkpoint"])):
        Select(browser.find_element(By.NAME, "model")).select_by_value(model)
        for name in changes:
            Select(browser.find_element(By.NAME, name)).select_by_value(changes[name])
        want = json.loads(subprocess.check_output([POTLUCK, "calc", model, "--json", *words], timeout=PATIENCE))["gpu_total"]
        got = browser.execute_script("return Number(document.getElementById('calc-out').dataset.total)")
        if got != want:
            wrong.append((model, got, want))
    step("the form's calculator equals potluck calc", not wrong, wrong)
    browser.execute_script("document.querySelector('[name=mode][value=original]').click()")
    Select(browser.find_element(By.NAME, "model")).select_by_value("gpt2-l")
    Select(browser.find_element(By.NAME, "optimizer")).select_by_value("8-bit")
    step("the original's example shows 7.48", "7.48 GiB" in text(browser, "calc-out"), text(browser, "calc-out")[:200])

    before = text(browser, "fig-security")
    slider = browser.find_element(By.CSS_SELECTOR, "#fig-security [data-in=byzantine]")
    slider.send_keys(Keys.ARROW_RIGHT)
    step("a figure answers the keyboard", text(browser, "fig-security") != before)
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    step("the first stop of the keyboard skips to the content",
         browser.execute_script("return document.activeElement.className") in ("skip", "") and
         browser.execute_script("return document.querySelector('a').className") == "skip")
    names = browser.execute_script(NAMES)
    step("everything has a name, headings are in order", not names, names)
    light = browser.execute_script(CONTRAST)
    theme = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.execute_script("document.getElementById('theme').click()")
    dark = browser.execute_script(CONTRAST)
    step("contrast of text is 4.5 and more, light and dark", not light and not dark and theme !=
         browser.execute_script("return getComputedStyle(document.body).backgroundColor"), (light, dark))
    shoot(browser, "desk-dark")
    for width in (1280, 768, 320):
        size(browser, width, 800)
        over = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        step("nothing hangs over at %d pixels" % width, over <= 0, over)
    shoot(browser, "phone-dark", True)
    accessibility(browser)
    size(browser, 768, 800)
    browser.execute_script("document.documentElement.style.fontSize = '200%'")
    over = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    step("nor with letters twice as large", over <= 0, over)
    browser.execute_script("document.documentElement.style.fontSize = ''")
    browser.execute_script("document.getElementById('theme').click()")
    size(browser, 1280, 900)
    shoot(browser, "whole", True)
    keyboard(browser)
    step("the console is silent", not complaints(browser), complaints(browser))

    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(url)
    words = browser.find_element(By.TAG_NAME, "main").text
    step("readable without JavaScript", "not connected" not in words and "Five challenges" in words and "238.8 MB" in words and "4–32" in words, words[:300])
    shoot(browser, "no-script")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def dead_links(browser, folder):
    """Of what is seen: links to this copy's own files that are not there."""
    links = browser.execute_script("return [...document.querySelectorAll('a[href], img[src], image')].filter(e => e.getClientRects().length)"
                                   ".map(e => e.getAttribute('href') || e.getAttribute('src'))")
    return [l for l in links if ":" not in l and not l.startswith("#") and not os.path.isfile(os.path.join(folder, l))], links


def alone(browser):
    """A training without a swarm: its log is the source, and its own pace says when it ends."""
    folder, copy = tempfile.mkdtemp(), tempfile.mkdtemp()

    def log(first, last):
        with open(os.path.join(folder, "log.jsonl"), "a") as f:
            for i in range(first, last):
                f.write(json.dumps({"step": i + 1, "samples": 16, "loss": 5 - 0.01 * i, "samples_per_second": 8.0}) + "\n")
    log(0, 40)
    with Program("dash", "--folder", folder, "--port", "0", "--every", "0.5", "--total-steps", "100", "--export", copy, "--json") as dash:
        url = dash.event("serving")["url"]
        browser.get(url)
        wait_for(lambda: text(browser, "t-step") == "40 of 100" and text(browser, "t-eta") == "40 of 100; the schedule ends in 2 min")
        shown = browser.execute_script("return [...document.querySelectorAll('progress, .phases')].map(e => e.offsetParent !== null)")
        cells = wait_for(lambda: browser.execute_script("return [...document.querySelectorAll('#peers td')].map(e => e.textContent)"))
        step("a training on this machine: its state, its steps of the schedule, and when that ends",
             "training" in cells and shown == [False, True] and text(browser, "t-eta") == "40 of 100; the schedule ends in 2 min"
             and browser.execute_script("return document.querySelector('progress').value") == 0.4, (cells, shown, text(browser, "t-eta")))
        state = json.loads(fetch(url + "api/state.json"))
        step("its samples a second are those of the log", abs(state["throughput"] - 8) < 0.5, state["throughput"])
        board = json.loads(fetch(url + "api/board.json"))[0]
        step("they count for this machine, with the time that they took", (board["samples"], board["seconds"]) == (640, 80), board)
        step("no share of averaging is shown", browser.execute_script("return document.getElementById('t-share-box').hidden"))
        shoot(browser, "alone")
        log(40, 50)  # whether or not it is read again before the end
    browser.get("file://" + os.path.join(copy, "index.html"))
    step("what came last is in its exported copy", wait_for(lambda: text(browser, "t-step") == "50 of 100"), text(browser, "t-step"))
    dead, links = dead_links(browser, copy)
    step("which leads nowhere that is not there", not dead and "api/history.json" in links, dead)
    shutil.rmtree(folder)
    shutil.rmtree(copy)


def killed(browser):
    """A training that was killed five minutes ago, and one that has made its last step: known by the age of the log."""
    for last, want in ((100, ("Ended: ", "after its last step, 100; ", "ended")), (40, ("Silent: ", "at step 40; ", "silent"))):
        folder = tempfile.mkdtemp()
        log = os.path.join(folder, "log.jsonl")
        with open(log, "w") as f:
            for i in range(last):
                f.write(json.dumps({"step": i + 1, "samples": 16, "loss": 5 - 0.01 * i, "samples_per_second": 8.0}) + "\n")
        past = os.stat(log).st_mtime - 300
        os.utime(log, (past, past))
        with Program("dash", "--folder", folder, "--port", "0", "--every", "0.5", "--total-steps", "100", "--json") as dash:
            browser.get(dash.event("serving")["url"])
            line = lambda: text(browser, "run-line")
            step(f"a log whose last line, of step {last} of 100, is five minutes old: {want[2]}, with its age", wait_for(
                lambda: line().startswith(want[0]) and want[1] + "the last line of its log is from 5 min ago" in line()), line())
            cells = wait_for(lambda: browser.execute_script("return [...document.querySelectorAll('#peers td')].map(e => e.textContent)"))
            figures = [text(browser, i) for i in ("t-peers", "t-rate-name", "t-rate", "t-eta")]
            step("no peer is active, nothing is promised, and the rate is what was made", want[2] in cells and
                 figures == ["0", "Samples a second, mean of the run", "8", f"{last} of 100"], (cells, figures))
        shutil.rmtree(folder)


def export(browser, folder):
    browser.get("file://" + os.path.join(folder, "index.html"))
    wait_for(lambda: text(browser, "t-step") == "8 of 100" and "As it ended" in text(browser, "run-line"))
    step("the exported page shows the run without a server",
         text(browser, "t-step") == "8 of 100" and "As it ended" in text(browser, "run-line") and browser.execute_script(
             "return document.querySelectorAll('#chart-loss path').length") == 2 and not complaints(browser),
         (text(browser, "run-line"), complaints(browser)))
    dead, links = dead_links(browser, folder)
    step("its pictures, checkpoints and feeds are in the same folder", not dead and "api/board.json" in links and "samples/9.png" in links
         and "checkpoints/checkpoint-000009.safetensors" in links, (dead, links))
    axe_on(browser, "the exported page", (320, "dark"))
    report = os.path.join(folder, "conform.html")
    subprocess.run([POTLUCK, "conform", "--quick", "--backend", "ref", "--filter", "scale", "--report", report], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE)
    browser.get("file://" + report)
    axe_on(browser, "conform's report", (320, "light"), (1280, "dark"))


def seen(url):
    """The state, once there is a peer in it."""
    try:
        state = json.loads(fetch(url + "api/state.json"))
    except urllib.error.HTTPError:  # before the first poll
        return None
    return state if state["peers"] else None


def drawn(folder):
    """What a training leaves of its pictures: at step 5 one of four nearest to its own, at step 9 three."""
    for at, own in ((5, 1), (9, 3)):
        place = os.path.join(folder, "samples", "%06d" % at)
        os.makedirs(place)
        shutil.copy(os.path.join(ROOT, "paper", "figures", "drawn.png"), os.path.join(place, "sheet.png"))
        with open(os.path.join(folder, "checkpoint-%06d.safetensors" % at), "wb") as f:
            f.write(b"weights")
        shutil.copy(os.path.join(place, "sheet.png"), os.path.join(place, "real.png"))
        pictures = {"pictures": [{"caption": "a <b>cat"}, {"caption": "a dog"}], "sheet": {"columns": 16, "side": 64, "gap": 4, "pictures": 2}}
        for name, value in (("nearest", {"own": own, "of": 4, "among": 99}), ("pictures", pictures)):
            with open(os.path.join(place, name + ".json"), "w") as f:
                json.dump(value, f)


def live():
    folder, training = tempfile.mkdtemp(), tempfile.mkdtemp()
    drawn(training)
    with Program("peer", "--listen", "/ip4/127.0.0.1/tcp/0", "--run", RUN, "--json") as bootstrap:
        entry = bootstrap.event("listening")["multiaddr"]
        put(entry, "_metrics", metrics(7, 2.0, 100, 60.0, 20))
        with Program("dash", "--join", entry, "--run", RUN, "--port", "0", "--every", "1", "--total-steps", "100",
                     "--export", folder, "--folder", training, "--json") as dash:
            url = dash.event("serving")["url"]
            state = wait_for(lambda: seen(url))
            step("feeds say what the peer has signed", state and (state["loss"], state["step"], state["samples_per_second"]) == (3.0, 7, 2.0), state)
            board = json.loads(fetch(url + "api/board.json"))
            step("its samples are on the board", [b["samples"] for b in board] == [100], board)
            step("Prometheus reads the same", "} 3\n" in fetch(url + "metrics"), fetch(url + "metrics"))
            browser, why = open_browser()
            if browser:
                try:
                    check_page(browser, url, entry)
                except Exception:
                    browser.quit()
                    raise
        if browser:
            export(browser, folder)
            alone(browser)
            killed(browser)
            browser.quit()
        else:
            skip("the page in a browser", why)
    shutil.rmtree(folder)
    shutil.rmtree(training)


def training():
    """A real swarm of two: what is on the page is what its peers have signed, and what they log."""
    folder = tempfile.mkdtemp()
    words = ["--config", os.path.join(ROOT, "test", "program", "tiny.json"), "--limit", "128", "--run", "walk", "--target-batch", "8",
             "--batch", "2", "--steps", "100000", "--matchmaking-time", "2", "--threads", "1", "--slow", "0.2", "--json",
             "--listen", "/ip4/127.0.0.1/tcp/0"]
    without = ["--exclude", os.path.join(ROOT, "data", "demo", "holdout.txt"), "--evaluate-every", "1"]
    with Program("train", *words, *without, "--name", NAME, "--dash", "--out", folder + "/a") as first:
        entry = first.event("listening")["multiaddr"]
        url = first.event("serving")["url"]
        with Program("train", *words, "--data-seed", "2", "--client-mode", "--join", entry, "--out", folder + "/b") as second:
            def ready():
                state = seen(url)
                return state if state and state["peers"] == 2 and state["rounds"]["good"] >= 2 and state["held_out"] else None
            state = wait_for(ready)
            step("a training's page: both peers, good rounds, held-out loss", state, seen(url))
            if not state:
                return
            step("what was sent was received, in fewer bytes than 32 bits take",
                 state["rounds"]["sent"] > 0 and 1 < state["rounds"]["compression"] < 4.1, state["rounds"])

            def reported():
                peers = {p["state"]: p for p in json.loads(fetch(url + "api/peers.json"))}
                return {k: (p["reachability"], p["version"].split(" ")[0] if k == "client" else "") for k, p in peers.items()}
            both = {"reachable": ("direct", ""), "client": ("none", "potluck")}
            step("a peer that can be called, and one that cannot", wait_for(lambda: reported() == both), reported())

            def held():
                with open(folder + "/a/log.jsonl") as log:
                    whole = [json.loads(line) for line in log if line.endswith("\n")]
                return [line["held_out"] for line in whole if "held_out" in line]
            step("the held-out loss is one that the trainer has logged",
                 wait_for(lambda: any(abs(h - state["held_out"]) < 1e-9 for h in held())), (state, held()))
            browser, why = open_browser()
            if not browser:
                skip("its page in a browser", why)
                return
            try:
                size(browser, 1280, 900)
                browser.get(url)

                def same():
                    now, sent = seen(url), text(browser, "t-rounds")
                    return now and sent == format(now["rounds"]["good"], ",") and text(browser, "t-held") != "–"
                step("the page's rounds are the feed's", wait_for(same), (text(browser, "t-rounds"), seen(url)))
                step("the challenges speak of this run", wait_for(lambda: "peers have sent" in text(browser, "live-communication")
                     and "slowest of 2" in text(browser, "live-devices")), text(browser, "live-communication"))
                cells = browser.execute_script("return [...document.querySelectorAll('#peers td')].map(e => e.textContent)")
                step("the table says who is reached how", "direct" in cells and "client" in cells and any(c.startswith("potluck") for c in cells), cells)
                named = lambda: browser.execute_script(
                    "return ['peers', 'board', 'chart-world', 'chart-timeline'].map(id => document.getElementById(id))"
                    ".map(e => [e.textContent.includes(arguments[0]), !!e.querySelector('b')])", NAME)
                step("the name that a peer has chosen is text, in the tables, on the map and in the timeline",
                     wait_for(lambda: named() == [[True, False]] * 4), named())
                colours = lambda: browser.execute_script(
                    "return [...document.querySelectorAll('#chart-timeline path')].filter(e => e.getAttribute('d')).map(e => e.className.baseVal)")
                step("each peer's time goes to computing, waiting and averaging",
                     wait_for(lambda: all(colours().count(f"fill-{k}") == 2 for k in (0, 2, 3))), colours())
                label = browser.execute_script("return document.getElementById('chart-timeline').getAttribute('aria-label')")
                step("with its shares in words", re.search(r"computing [1-9]\d* %, waiting for a group \d+ %, averaging \d+ %", label), label)
                step("and stands before its key", any(c.startswith(NAME + " · 12D3…") for c in cells), cells)
                step("the health of the swarm", [text(browser, i) for i in ("h-direct", "h-client", "h-failed")] == ["1 of 2", "1", "0 %"],
                     [text(browser, i) for i in ("h-direct", "h-relayed", "h-client", "h-late", "h-failed")])
                rates = [r for r in json.loads(fetch(url + "api/history.json"))["samples_per_second"] if r]
                step("the curve of samples a second is by wall clock, not the sum of what peers could compute",
                     wait_for(lambda: seen(url)["throughput"]) and all(r < 0.8 * seen(url)["samples_per_second"] for r in rates), (rates, seen(url)))
                size(browser, 390, 844)
                outside = browser.execute_script("""
                    return [...document.querySelectorAll('nav a, #peers td, #health dd, #calc-out tbody :is(th, td)')].filter(e => {
                        const b = e.getBoundingClientRect();
                        return !b.width || b.left < 0 || b.right > 390;
                    }).map(e => e.textContent)""")
                step("on a phone all links, all of a peer's figures and the calculator's table are within the screen", not outside, outside)
                step("and the console is silent", not complaints(browser), complaints(browser))
                shoot(browser, "training", True)
                axe_on(browser, "a training's page", (320, "light"), (1280, "dark"))
                second.process.kill()
                step("a peer that was killed is behind the others, not joining them", wait_for(lambda: "behind" in browser.execute_script(
                    "return [...document.querySelectorAll('#peers td')].map(e => e.textContent)")))
            finally:
                browser.quit()
    shutil.rmtree(folder)


def main():
    with_selenium()
    calculator()
    for part in live, training:
        for last in steps.attempts():
            with steps.scenario(part.__name__, lambda: None, last):
                part()
    sys.exit(steps.closing())


main()
