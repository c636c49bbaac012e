"""Writes tables of speed.md from speed.json, which holds what `potluck bench --json` has measured.

    speed.py [DOCUMENT]                        replaces the tables of DOCUMENT (paper/speed.md)
    speed.py add NAME FILE MACHINE COMMAND     stores a bench's FILE under NAME, with today's date and the commit

A table stands below the line `<!-- speed NAME [NAME ...] -->`, and all its lines begin with |. Training steps have a line for each
run. VQGAN and CLIP have one for each precision: the best time of all runs, and PyTorch's. Drawing has one for each run. The line
above a table names the machine, date and commit of its runs.
"""
import datetime
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STORE = HERE / "speed.json"
HEAD = ["| size | operands | ms a sample | GF/s | of them asked for | share of the roof | times ref | PyTorch, ms | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
DRAW_HEAD = ["| size | operands | images at a time | ms an image | bound, ms | bandwidth | without KV cache, ms |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
ATTENTION_HEAD = ["| size | pass | ms | PyTorch, ms | ratio |", "| --- | --- | --- | --- | --- |"]
CODES_HEAD = ["| part | 10⁹ elements/s | times ref | in Python, in the same run | ratio |", "| --- | --- | --- | --- | --- |"]
CODES = 2 ** 20  # elements, in cmd/bench/bench_codes.c


PICTURES_HEAD = ["| part | operands | ms | PyTorch, ms | ratio |", "| --- | --- | --- | --- | --- |"]


def digits(x):
    """Three of them."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def steps(run):
    """The rows of whole training steps."""
    precision = run["precision"]
    for row in run["bench"]["rows"]:
        if row["section"] != "step":
            continue
        reference = row.get("ref_s") or row["ref_scaled_s"]
        peer = row.get("peer_s")
        yield "| " + " | ".join([
            f"{row['size']}, {row['activations']}", precision, digits(1e3 * row["sample_s"]),
            digits(1e-9 * row["flops"] / row["sample_s"]),
            f"{100 * row['flops_asked'] / row['flops']:.0f} %" if "flops_asked" in row else "",
            f"{100 * row['of_roofline']:.0f} %",
            f"{reference / row['sample_s']:.0f}x", digits(1e3 * peer) if peer else "not measured",
            f"{peer / row['sample_s']:.1f}x" if peer else ""]) + " |"


def pictures(runs):
    """The rows of VQGAN and CLIP. The program and PyTorch alternate, so each has quiet moments among several runs."""
    times = {}
    for run in runs:
        for row in run["bench"]["rows"]:
            ours, peer = times.setdefault((row["what"], run["precision"]), ([], []))
            ours.append(row["be_s"])
            peer.append(row["peer_s"])
    for (what, precision), (ours, peer) in times.items():
        yield (f"| {what} | {precision} | {digits(1e3 * min(ours))} | {digits(1e3 * min(peer))} | "
               f"{min(peer) / min(ours):.2f}x |")


def drawing(run):
    """The rows of drawing: the bound is what reading weights and the cache takes at the bandwidth measured in the same run."""
    for row in run["bench"]["rows"]:
        uncached = row.get("uncached_s")
        yield (f"| {row['size']} | {run['precision']} | {row['images']} | {digits(1e3 * row['picture_s'])} | "
               f"{digits(1e3 * row['bound_s'])} | {1e-9 * run['bench']['peak_memory']:.0f} GB/s | "
               f"{digits(1e3 * uncached) if uncached else 'not measured'} |")


def attention(run):
    for row in run["bench"]["rows"]:
        both = "forward and backward" if row["backward"] else "forward"
        yield (f"| {row['size']} | {both} | {1e3 * row['be_s']:.3f} | {1e3 * row['peer_s']:.2f} | "
               f"{row['peer_s'] / row['be_s']:.1f}x |")


def codes(run):
    """Quantization and LAMB; not every part has a package to compare with."""
    for row in run["bench"]["rows"]:
        rate, peer = 1e-9 * CODES / row["be_s"], row.get("peer_s")
        theirs = f"{1e-9 * CODES / peer:.3f} ({row['peer']}) | {peer / row['be_s']:.1f}x" if peer else "not measured |"
        yield f"| {row['what']} | {rate:.2f} | {row['ref_s'] / row['be_s']:.0f}x | {theirs} |"


def source(runs):
    """Machine, date and commit, once each."""
    return "Measured on " + "; ".join(dict.fromkeys(f"{run['machine']}, {run['date']}, commit {run['commit']}" for run in runs)) + ":"


def table(stored, names):
    section = stored[names[0]]["bench"]["rows"][0]["section"]
    for name, head, rows in (("draw", DRAW_HEAD, drawing), ("attention", ATTENTION_HEAD, attention), ("codes", CODES_HEAD, codes)):
        if section == name:
            return head + [line for run in names for line in rows(stored[run])]
    if section == "pictures":
        return PICTURES_HEAD + list(pictures(stored[name] for name in names))
    lines = list(HEAD)
    for name in names:
        lines += steps(stored[name])
    run = stored[names[0]]
    peaks = run["bench"]["peak_float32"], run["bench"].get("peak_bf16", 0)
    lines.append(f"| | | | | | roof: {1e-9 * peaks[0]:.0f} GF/s in float32, {1e-9 * peaks[1]:,.0f} in bfloat16 | | | |")
    return lines


def write(path):
    stored = json.loads(STORE.read_text())
    lines = path.read_text().split("\n")
    for i in [i for i, line in enumerate(lines) if line.startswith("<!-- speed ")][::-1]:
        names = re.fullmatch(r"<!-- speed ([\w ]+) -->", lines[i])[1].split()
        start = next(k for k in range(i, len(lines)) if lines[k].startswith("|"))
        lines[i + 1:start] = ["", source([stored[name] for name in names]), ""]
        start = i + 4
        end = next(k for k in range(start, len(lines)) if not lines[k].startswith("|"))
        lines[start:end] = table(stored, names)
    path.write_text("\n".join(lines))


def add(name, bench, machine, command):
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=HERE, check=True, capture_output=True, text=True).stdout
    precision = (re.search(r"--precision (\w+)", command) or [None, "float32"])[1]
    stored[name] = {"machine": machine, "date": str(datetime.date.today()), "commit": commit.strip(), "command": command,
                    "precision": precision, "bench": json.loads(pathlib.Path(bench).read_text())}
    STORE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def main():
    if sys.argv[1:2] == ["add"]:
        add(*sys.argv[2:])
    else:
        write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "speed.md")


if __name__ == "__main__":
    main()
