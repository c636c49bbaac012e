"""line_coverage.py - which part of ref/, data/ and net/ the suites ran, by folder.

    line_coverage.py store EXPORT JSON WHAT   sums llvm-cov's export up by folder; WHAT: the suites that were played
    line_coverage.py table JSON MARKDOWN      replaces the table below the document's heading "coverage"
    line_coverage.py reached EXPORT           sums up the files in which anything ran, as a row of a table
    line_coverage.py left EXPORT [N]          the N files with the most lines and branches that did not run"""
import datetime
import json
import os
import subprocess
import sys

FOLDERS = ("ref", "data", "net")
HEADING = "## coverage"
AIM = {"lines": 90, "branches": 80}


def files(export):
    """Path, and (run, all) of lines and of branches, of each source file of the folders."""
    here = os.getcwd() + "/"
    with open(export) as f:
        found = json.load(f)["data"][0]["files"]
    for entry in found:
        path = entry["filename"].removeprefix(here)
        if path.split("/")[0] in FOLDERS and path.endswith(".c"):
            yield path, {what: (entry["summary"][what]["covered"], entry["summary"][what]["count"]) for what in AIM}


def store(export, target, what):
    folders = {}
    for path, counts in files(export):
        for folder in {path.split("/")[0], os.path.dirname(path)}:
            sums = folders.setdefault(folder, {key: [0, 0] for key in AIM})
            for key, (run, all_) in counts.items():
                sums[key][0] += run
                sums[key][1] += all_
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
    head = {"date": datetime.date.today().isoformat(), "commit": commit, "suites": what}
    with open(target, "w") as f:
        f.write("{\n" + "".join(f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()) + ' "folders": {\n')
        f.write(",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(folders.items())) + "\n }\n}\n")


def percent(run, all_):
    return f"{100 * run / all_:.1f}" if all_ else "–"


def table(source, document):
    with open(source) as f:
        stored = json.load(f)
    rows = [HEADING, "", f"By {stored['suites']}; {stored['date']}, commit {stored['commit']}; `make coverage` measures it again.", "", "| folder | lines % | branches % |", "| --- | --- | --- |"]
    order = {folder: i for i, folder in enumerate(FOLDERS)}
    for folder, sums in sorted(stored["folders"].items(), key=lambda item: (order[item[0].split("/")[0]], item[0])):
        name = f"**{folder}**" if folder in FOLDERS else folder
        rows.append(f"| {name} | {percent(*sums['lines'])} | {percent(*sums['branches'])} |")
    with open(document) as f:
        lines = f.read().split("\n")
    if HEADING in lines:
        start = lines.index(HEADING)
        section = next((i for i in range(start + 1, len(lines)) if lines[i].startswith("## ")), len(lines))
        end = max(i for i in range(start, section) if lines[i].startswith("|")) + 1
        lines[start:end] = rows
    else:
        lines += rows + [""]
    with open(document, "w") as f:
        f.write("\n".join(lines))


def left(export, count=30):
    found = sorted(((c["lines"][1] - c["lines"][0], c["branches"][1] - c["branches"][0], path) for path, c in files(export)),
                   reverse=True)
    for lines, branches, path in found[:int(count)]:
        print(f"{lines:5} lines  {branches:5} branches  {path}")


def reached(export):
    ran = [counts for _, counts in files(export) if counts["lines"][0]]
    sums = {key: [sum(c[key][i] for c in ran) for i in (0, 1)] for key in AIM}
    print(f"| {len(ran)} | {percent(*sums['lines'])} | {percent(*sums['branches'])} |")


{"store": store, "reached": reached, "table": table, "left": left}[sys.argv[1]](*sys.argv[2:])
