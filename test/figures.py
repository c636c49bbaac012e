"""Figures in the texts against their sources: the program, stored measurements, the code. A figure
that a machine can check is in no text without a check here.

    figures.py [POTLUCK]    ends with "N passed, N failed, N skipped"
"""
import functools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
POTLUCK = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/potluck")
sys.path.insert(0, str(ROOT / "paper"))
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


def main():
    result_rows()
    result_tables()
    sizes()
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return counts["failed"] > 0


sys.exit(main())
