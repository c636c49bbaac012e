"""Writes the first table of results.md from results.json: `python3 paper/results.py`. A row of the
JSON says what was measured by which command, on which machine, when, and at which commit; `here`
names its figures in braces. Rows without a machine are exact: test/figures.py computes them anew.

    results.py [DOCUMENT]    replaces the table of DOCUMENT (paper/results.md)
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEAD = ["| paper | its statement | here | command | measured |", "| --- | --- | --- | --- | --- |"]


def stored():
    return json.loads((HERE / "results.json").read_text())


def figures(row):
    """A row's figures by name."""
    return {name: f["value"] for name, f in row["figures"].items()}


def table():
    lines = list(HEAD)
    for row in stored()["rows"]:
        where = f"{row['machine']}, {row['date']}, {row['commit']}" if "machine" in row else "exact"
        here = row["here"].format(**figures(row))
        lines.append(f"| {row['paper']} | {row['statement']} | {here} | {row['command']} | {where} |")
    return lines


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results.md"
    lines = path.read_text().split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("| paper |"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    lines[start:end] = table()
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
