"""Figures in the texts against their sources: the program, stored measurements, the code. A figure
that a machine can check is in no text without a check here.

    figures.py [POTLUCK]    ends with "N passed, N failed, N skipped"
"""
import functools
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
POTLUCK = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/potluck")
sys.path.insert(0, str(ROOT / "paper"))
import demo  # noqa: E402
import laboratory  # noqa: E402
import results  # noqa: E402

counts = {"passed": 0, "failed": 0}


def check(what, good, why=""):
    counts["passed" if good else "failed"] += 1
    print(f"{'ok  ' if good else 'FAIL'} {what}{'' if good else ': ' + str(why)}")


def read(path):
    return (ROOT / path).read_text()


def is_rounded(stored, exact):
    """Is the stored figure the exact one, rounded to as many digits as it has?"""
    digits = len(str(stored).partition(".")[2])
    return abs(float(stored) - exact) <= 0.5 * 10.0 ** -digits + 1e-9 * abs(exact)


# --- sources

@functools.lru_cache
def calc(arguments):
    memory = json.loads(subprocess.run([POTLUCK, "calc", *arguments.split(), "--json"], check=True, capture_output=True).stdout)
    memory.update({term["term"]: term["gpu"] + term["ram"] for term in memory["terms"]})
    memory["total"] = memory["gpu_total"] + memory["ram_total"]
    return memory


@functools.lru_cache
def golden(name):
    """How many cases of golden values the program reproduces."""
    area = name.split("/")[0]
    output = subprocess.run([POTLUCK, "conform", "--golden", str(ROOT / "test/golden" / area)], capture_output=True, text=True).stdout
    return sum(line.startswith(f"ok   {name} ") for line in output.split("\n"))


def notebook_errors():
    """The last column of the table that notebook 4 prints, in percent."""
    for cell in json.loads(read("notebooks/4-memory.ipynb"))["cells"]:
        for output in cell.get("outputs", []):
            text = "".join(output.get("text", []))
            if "calculated   error" in text:
                return [-int(e) for e in re.findall(r"MB +(-?\d+) %", text)]
    return []


def security_row():
    row = next(line for line in read("paper/security.md").split("\n") if line.startswith("| the negated gradient, times 10 |"))
    return [cell.strip() for cell in row.split("|")[2:4]]


def exact(figure):
    """A figure computed anew; None: it was measured, and only its text is checked."""
    if "calc" in figure:
        return calc(figure["calc"])[figure["key"]] / figure.get("unit", 1)
    if "ratio" in figure:
        above, below, key = figure["ratio"]
        return calc(above)[key] / calc(below)[key]
    if "less" in figure:
        small, large, key = figure["less"]
        return 100 - 100 * calc(small)[key] / calc(large)[key]
    if "golden" in figure:
        return golden(figure["golden"])
    if "formula" in figure:
        return eval(figure["formula"], {"__builtins__": {}})  # our own file
    if "notebook" in figure:
        return {"least": min, "most": max}[figure["notebook"]](notebook_errors())
    if "demo" in figure:
        run, key = figure["demo"]
        return json.loads(read("paper/demo.json"))["runs"][run][key]
    if "security" in figure:
        return float(security_row()[figure["security"]])
    return None


# --- paper/results.md: tables from stored files

def result_rows():
    names = {"paper", "statement", "here", "figures", "command"}
    for row in results.stored()["rows"]:
        what = f"results.json, {row['statement'][:40]}"
        for name, figure in row["figures"].items():
            value = exact(figure)
            if value is not None:
                check(f"{what}: {name}", is_rounded(figure["value"], value), f"{figure['value']} here, {value} computed")
        places = {"machine", "date", "commit"} & set(row)
        measured = any(exact(figure) is None for figure in row["figures"].values())
        check(f"{what}: where it was measured", names <= set(row) and len(places) == (3 if measured or places else 0), places)


def result_tables():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "results.md")
        shutil.copy(ROOT / "paper/results.md", copy)
        subprocess.run([sys.executable, ROOT / "paper/results.py", copy], check=True)
        subprocess.run([sys.executable, ROOT / "test/line_coverage.py", "table", ROOT / "paper/coverage.json", copy], check=True)
        same, made = ([line for line in text.split("\n") if line.startswith(("| ", "By "))]
                      for text in (read("paper/results.md"), copy.read_text()))
        differs = next((f"{a!r} here, {b!r} made" for a, b in zip(same, made) if a != b), "")
        check("results.md is what results.json and coverage.json make", same == made, differs or "another length")
        copy = shutil.copy(ROOT / "paper/speed.md", folder)
        subprocess.run([sys.executable, ROOT / "paper/speed.py", copy], check=True)
        check("speed.md's tables are what speed.json makes", read("paper/speed.md") == pathlib.Path(copy).read_text())
    for folder, r in json.loads(read("test/mutate/rates.json")).items():
        row = f"| `{folder}` | {r['changes']} | {r['killed']} | {100 * r['killed'] / max(1, r['changes']):.0f} |"
        check(f"results.md has the stored rate of mutants in {folder}", row in read("paper/results.md"), row)


# --- single figures in other texts

def operations():
    """Entries of a backend's table that compute: those of the two lists in ref/backend.h."""
    found = []
    for path in ("ref/backend.h",):
        for name in ("FIRST", "LATER"):
            text = re.search(r"#define PL_OPERATIONS_" + name + r"\(X\)(.*?[^\\])\n", read(path), re.S)[1]
            found += re.findall(r"X\((\w+),", text)
    return found


def sizes():
    run, shared = calc("run"), calc("run --shared-groups 64")
    parameters, without = f"{run['parameters']:,}", f"{shared['parameters']:,}"
    check("guide.md: parameters of the run's model", parameters in read("paper/guide.md") and without in read("paper/guide.md"), parameters)
    page = read("net/http/www/index.html")
    swarm = calc("run --compression-bits 8")
    check("page: memory of the run's model", f"plan for {swarm['total'] / 2**30:.1f} GiB" in page, f"{swarm['total'] / 2**30:.3f} GiB")
    for bits in ("8", "32"):
        megabytes = f"{calc('run --compression-bits ' + bits)['allreduce_bytes'] / 1e6:.1f} MB"
        check(f"page: a round's bytes in {bits} bits", megabytes in page, megabytes)
    check("page: up and down", f"some {round(swarm['allreduce_bytes'] / 1e6, -1):.0f} MB up" in page, swarm["allreduce_bytes"])
    check("porting.md: operations of a backend's table", f"a table of {len(operations())} operations" in read("paper/porting.md"), len(operations()))
    found = re.search(r"(\w+) files, under ([\d,]+) lines", read("README.md"))
    tour = re.findall(r"^\d+\. \[([a-z_/0-9]+\.[ch])\]", read("README.md"), re.M)
    lines = sum(len(read(path).split("\n")) - 1 for path in tour)
    check("README: the tour's length", found and len(tour) == 10 and found[1] == "Ten" and lines < int(found[2].replace(",", "")), (tour, lines))
    alignment = re.search(r"`alloc` returns zeroed memory, aligned to (\d+) bytes", read("paper/porting.md"))
    check("porting.md: the skeleton's alignment", alignment and f"aligned_alloc({alignment[1]}," in read("test/skeleton/device.c"), alignment)


def says(path, *sentences):
    """Each stands in the text, however its lines are broken."""
    text = " ".join(read(path).split())
    for sentence in sentences:
        check(f"{path} says '{sentence}'", sentence in text, "it does not")


def constant(path, name):
    return re.search(rf'^#define {name} "?([\d.]+)', read(path), re.M)[1]


def demonstration():
    """README's paragraph, demo.md and its log: runs as stored, options as in the program, sizes as in the data."""
    stored, held = json.loads(read("paper/demo.json")), len(re.findall(r"^[^#\n]", read("data/demo/holdout.txt"), re.M))
    swarm, second, turns = stored["runs"]["swarm"], stored["runs"]["swarm, second try"], stored["speed"]
    pairs, among = f"{demo.PAIRS['swarm']:,}", demo.REFERENCES["swarm"]
    shards = sorted((ROOT / "data/demo").glob("emoji-*.parquet"))
    emoji = sum(int(re.search(r"Parquet, (\d+) rows", subprocess.run([POTLUCK, "show", s, "--rows", "0"], capture_output=True, text=True).stdout)[1])
                for s in shards)
    inner, noise = constant("cmd/demo/demo.c", "INNER_STEPS"), f"{100 * float(constant('cmd/demo/demo.c', 'TOKEN_NOISE')):g} %"
    check("demo.py: the pairs are all emoji but the held-out ones and two that are too short", demo.PAIRS["swarm"] == emoji - held - 2, emoji)
    for page in "paper/demo.md", "paper/log/demo.md":
        check(f"{page}: its tables are what demo.json makes", demo.written(read(page), stored) == read(page), "run paper/demo.py write")
    says("README.md", f"train one model on {pairs} emoji and their names", f"After {demo.minutes(swarm['train_seconds'])[:-4]} minutes on",
         f"given {swarm['drawn']} of its captions", f"{swarm['nearest_own']} of the {swarm['drawn']} drawings were closer to their own picture than "
         f"to any of {among - 1:,} others", f"Of {held} combinations that it had never seen", f"drew the right subject for {swarm['held_out_same_subject']} "
         f"and the right image for {swarm['held_out_nearest_own']}.")
    shares = {k: " and ".join(f"{100 * t[k]['samples_per_second'] / t['alone']['samples_per_second']:.0f}" for t in turns) for k in ("swarm", "gradients")}
    steps = {k: f"{int(constant('cmd/demo/demo.c', k + '_STEPS')):,}" for k in ("FULL", "QUICK", "GRADIENTS")}
    says("paper/demo.md", f"{emoji:,} emoji", f"| {pairs}, and {held} held out |", f"{swarm['rounds']} rounds; between two of them each trainer makes {inner} "
         f"local steps of {constant('cmd/demo/demo.c', 'LOCAL_BATCH')} samples", f"{steps['FULL']} steps of 16", f"{steps['QUICK']} steps of 16",
         f"{steps['GRADIENTS']} steps of 16 or more", f"{calc('demo')['parameters']:,} parameters", f"in place of {noise} of the image's",
         f"{noise} of the tokens", f"took {100 * swarm['averaging_share']:.0f} % of the first trainer's time",
         f"at {shares['swarm']} % of one process's rate, with `gradients` at {shares['gradients']} %", f"the first of the {held} unseen combinations")
    says("paper/log/demo.md", f"{second['samples']:,} samples ({second['steps']:,} steps, {demo.minutes(second['train_seconds'])[:-4]} minutes, "
         f"{second['samples_per_second']:.0f} samples/s): {second['loss_image']:.4f} nats, {second['nearest_own']} of {second['drawn']} captions, "
         f"{second['held_out_nearest_own']} and {second['held_out_same_subject']} of {held} unseen combinations", f"{stored['pair']['loss']:.1f} nats",
         f"With {inner} local steps they exchange {inner} times less often")
    shipped = stored["noise"][-1]
    check("the log's last row of noise is the swarm that is shown", all(is_rounded(shipped[k], swarm[k]) for k in shipped if k in swarm), shipped)
    check("and its noise is the demo's", f"{100 * shipped['noise']:g} %" == noise, noise)
    return emoji, shards


def first_pages(emoji, shards):
    """The run's page, and the book's first pages."""
    (text, side), (_, small) = (map(int, re.search(rf'"{n}",\s*\.T = (\d+),\s*\.F = (\d+)', read("ref/model/dalle_config.c")).groups())
                                for n in ("run", "demo"))
    run, codes, pixels = calc("run"), side * side, 256 * 256 * 3
    cards = 14 + 4 * 5  # 14 of one speed and four that are five times as fast
    says("net/http/www/index.html", f"{run['parameters']:,} parameters after tying what would have been {run['without_sharing']:,}",
         f"<td>{run['without_sharing'] / run['parameters']:.2f} ×</td>", f"need about {4096 / 0.105 / cards / 60:.0f} minutes",
         f"{pixels:,} bytes of pixels, or {codes * 13 // 8:,} bytes of codes: {pixels * 8 / codes / 13:.0f} times less", f"is {codes:,} codes of 13 bits",
         f"{emoji:,} pictures of 64 × 64 pixels with their names, {emoji * 64 * 64 * 3 / 1e6:.0f} MB of pixels",
         f"in shards of {sum(s.stat().st_size for s in shards) / 1e3:.0f} kB altogether")
    trainers = json.loads(read("test/golden/protocol/training_trace.json"))
    count = {2: "two", 3: "three"}[len(trainers["peers"])]
    release = re.search(r"^hivemind==([\d.]+)", read("test/interop/requirements.txt"), re.M)[1]
    says("paper/book/README.md", f"one replays the messages of {count} real hivemind trainers")
    says("paper/book/10-swarms.md", f"a recording of {count} hivemind {release} trainers")
    says("paper/book/01-masks.md", f"a sequence has {text + 1} text positions and {side} × {side} image tokens")
    says("paper/book/04-pictures.md", f"from the demo's model by the same functions: {small * small} image tokens")


def laboratory_page():
    """Its tables, and the sentences of "Published claims" that compare rows."""
    stored, page = json.loads(read("paper/laboratory.json")), read("paper/laboratory.md")
    made = laboratory.filled(page, stored)
    differs = next((f"{a!r} here, {b!r} made" for a, b in zip(page.split("\n"), made.split("\n")) if a != b), "")
    check("laboratory.md's tables are those of its stored files", page == made, differs or "another length")
    rows, times = stored["rows"], stored["claims"]["times"]

    def loss(row, longer=False):
        return statistics.mean(rows[row]["longer"] if longer else [curve[-1] for curve in rows[row]["curves"]])

    def above(row, other, longer=False):
        return f"{abs(100 * (loss(row, longer) / loss(other, longer) - 1)):.0f} %"

    def fewer(row):
        return f"{rows['gradients']['bytes'][-1] / rows[row]['bytes'][-1]:.0f} times"

    def sent(row, other, entry):
        """The share of the entries that a message holds, `entry` bytes each: it goes to three others, and the other row's
        float32 values to reducers, 1.5 times."""
        return f"{100 * rows[row]['bytes'][-1] / 3 / (rows[other]['bytes'][-1] / 1.5) * 4 / entry:.0f} %"

    plain, published, small = "DiLoCo, H 16", "DiLoCo, H 16, published", "DiLoCo, H 16, 8 bit"
    intellect, covenant, pairs = times["intellect"], times["covenant"], times["pairs"]
    says("paper/laboratory.md",
         f"H 16 in 8 bits sends {fewer(small)} less and ends {above(small, 'gradients')} above gradients, after four times as many "
         f"steps {above(small, 'gradients', True)}; with the published outer step {above(published, 'gradients')[:-2]} and "
         f"{above(published, 'gradients', True)}; H 40 sends {fewer('DiLoCo, H 40')} less and ends "
         f"{above('DiLoCo, H 40', 'gradients')} above",
         f"in E3M0 as good as DiLoCo in float32, {above('Streaming, H 16, E3M0', 'gradients')} above gradients, "
         f"{fewer('Streaming, H 16, E3M0')} less traffic",
         f"DiLoCo {loss(plain):.3f} in float32, {loss(small):.3f} in 8 bits, {loss('DiLoCo, H 16, E3M0'):.3f} in E3M0",
         f"{intellect['300']['share']:.0f} % over 300 Mbit/s, an exchange takes {intellect['300']['seconds']:.0f} s; "
         f"{intellect['1600']['share']:.0f} % over 1,600 Mbit/s",
         f"{covenant['4300']['seconds']:.0f} s and {covenant['4300']['share']:.1f} % over 4.3 Gbit/s each way; over 1 Gbit/s "
         f"{covenant['1000']['seconds']:.0f} s and {covenant['1000']['share']:.0f} %",
         f"pairs {1000 * pairs['4'][1]:.0f} ms with 4, 16 or 64 peers, the all-reduce {1000 * pairs['4'][0]:.0f}, "
         f"{1000 * pairs['16'][0]:.0f} and {1000 * pairs['64'][0]:.0f} ms",
         f"{above('NoLoCo, H 16', published)} lower loss than DiLoCo with the published momentum, "
         f"{above('NoLoCo, H 16', plain)} higher than with that of the search",
         f"{above('DGC, 1 %', 'gradients')} above gradients at 1 %, {fewer('DGC, 1 %')} fewer bytes",
         f"SparseLoCo sends {sent('SparseLoCo, H 16', plain, 1.75)} of the entries",
         f"so {sent('SparseLoCo, H 16', plain, 1.75)} of the entries are sent. Of most",
         f"DeMo {sent('DeMo, 32 of 32 x 32', 'gradients', 5.5)} of the coefficients",
         f"every peer sends {sent('DeMo, 32 of 32 x 32', 'gradients', 5.5)} of its coefficients",
         f"it converges, {above('delayed Nesterov, H 16', plain)} above DiLoCo",
         f"(delayed, eager) end {above('delayed DiLoCo, H 16', plain)[:-2]} and {above('eager DiLoCo, H 16', plain)} above DiLoCo",
         f"{above('SparseLoCo, H 16', plain)} above DiLoCo's, {above('SparseLoCo, H 16', published)} above that with the published outer step",
         f"inside DiLoCo {above('DiLoCo, H 16, Muon', plain)} lower, after four times as many steps "
         f"{above('DiLoCo, H 16, Muon', small, True)}")


def main():
    result_rows()
    result_tables()
    laboratory_page()
    sizes()
    first_pages(*demonstration())
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return counts["failed"] > 0


sys.exit(main())
