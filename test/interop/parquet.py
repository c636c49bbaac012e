#!/usr/bin/env python3
"""Parquet between potluck and pyarrow, both ways.

    parquet.py [POTLUCK]     compare: reads what pyarrow writes through `potluck show --json`, and
                             with pyarrow (and datasets, if there) what `potluck prepare` writes
    parquet.py --make        writes test/interop/pyarrow/*.parquet anew, which
                             test/unit/data/parquet/parquet.c reads

"""
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

import steps
from steps import step

HERE = os.path.dirname(os.path.abspath(__file__))

steps.needs("pyarrow.parquet")  # not "pyarrow": a folder here has that name
import pyarrow as pa
import pyarrow.parquet as pq


# --- files with a known content: row r's values follow from r, test/unit/data/parquet/parquet.c knows how

def known_table(rows):
    return pa.table({
        "number": pa.array([r * r for r in range(rows)], pa.int64()),
        "caption": pa.array([None if r % 7 == 3 else "caption %d" % (r % 10) for r in range(rows)]),
        "nested": pa.array([[r, r] for r in range(rows)]),
        "code": pa.array([bytes((r * k) % 256 for k in range(8)) for r in range(rows)], pa.binary()),
        "flag": pa.array([None if r % 5 == 1 else r % 3 == 0 for r in range(rows)]),
        "quarter": pa.array([r / 4 for r in range(rows)], pa.float32()),
    })


KNOWN = {
    "v1_plain_none": dict(compression="none", use_dictionary=False, data_page_version="1.0"),
    "v1_dictionary_snappy": dict(compression="snappy", use_dictionary=True, data_page_version="1.0"),
    "v1_plain_brotli": dict(compression="brotli", use_dictionary=False, data_page_version="1.0",
                            write_page_checksum=True),
    "v2_plain_gzip": dict(compression="gzip", use_dictionary=False, data_page_version="2.0"),
    "v2_dictionary_brotli": dict(compression="brotli", use_dictionary=True, data_page_version="2.0"),
    "v2_dictionary_zstd": dict(compression="zstd", use_dictionary=True, data_page_version="2.0",
                               write_page_checksum=True),
}


def make():
    os.makedirs(os.path.join(HERE, "pyarrow"), exist_ok=True)
    for name, options in KNOWN.items():
        pq.write_table(known_table(200), os.path.join(HERE, "pyarrow", name + ".parquet"),
                       row_group_size=70, store_schema=False, write_statistics=name[1] == "1", **options)


# --- pyarrow writes, we read

def random_table(n):
    pick = random.choice
    return pa.table({
        "caption": pa.array([None if random.random() < .1 else "caption \u00e9 %d %s" % (i % 37, "x" * random.randint(0, 50))
                             for i in range(n)], pa.string()),
        "code": pa.array([random.randbytes(32) for _ in range(n)], pa.binary()),
        "NSFW": pa.array([pick(["UNLIKELY", "UNSURE", "NSFW", None]) for _ in range(n)], pa.string()),
        "i32": pa.array([random.randint(-2**31, 2**31 - 1) for _ in range(n)], pa.int32()),
        "i64": pa.array([None if random.random() < .5 else random.randint(-2**63, 2**63 - 1) for _ in range(n)], pa.int64()),
        "f": pa.array([random.gauss(0, 1) for _ in range(n)], pa.float32()),
        "d": pa.array([random.gauss(0, 1) for _ in range(n)], pa.float64()),
        "b": pa.array([None if random.random() < .2 else random.random() < .5 for _ in range(n)], pa.bool_()),
        "fixed": pa.array([random.randbytes(5) for _ in range(n)], pa.binary(5)),
        "nulls": pa.array([None] * n, pa.string()),
        "list": pa.array([[1, 2]] * n, pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1}] * n, pa.struct([("a", pa.int64())])),
    })


def expected(table):
    for row in table.drop(["list", "struct"]).to_pylist():
        yield {k: v.hex() if isinstance(v, bytes) else v for k, v in row.items()}


def shown(potluck, path):
    r = subprocess.run([potluck, "show", "--json", path], capture_output=True, timeout=steps.PATIENCE)
    if r.returncode:
        raise ValueError(r.stderr.decode().strip())
    return [json.loads(line) for line in r.stdout.decode().splitlines()]


def compare_reading(potluck, folder):
    path = os.path.join(folder, "theirs.parquet")
    for n in (0, 1, 7, 1000):
        table = random_table(n)
        want = list(expected(table))
        for codec, dictionary, version, group, page in itertools.product(
                ["none", "snappy", "gzip", "brotli", "zstd"], [True, False, ["NSFW"]], ["1.0", "2.0"],
                [None, 300], [None, 2000]):
            what = "read rows %d %s dictionary %s version %s group %s page %s" % (
                n, codec, dictionary, version, group, page)
            pq.write_table(table, path, compression=codec, use_dictionary=dictionary,
                           data_page_version=version, row_group_size=group, data_page_size=page,
                           write_page_checksum=random.random() < .5)
            try:
                step(what, shown(potluck, path) == want, "values differ")
            except ValueError as e:
                step(what, False, str(e))


# --- we write, pyarrow reads

def compare_writing(path):
    table = pq.read_table(path, page_checksum_verification=True)
    names = set(table.column_names)
    step(path + ": columns", {"caption", "NSFW", "original_width", "original_height", "code"} <= names, names)
    step(path + ": codec", pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "BROTLI")
    rows = table.to_pylist()
    step(path + ": rows", len(rows) > 0 and all(isinstance(r["caption"], str) and len(r["code"]) % 2 == 0 for r in rows))
    try:
        import datasets
        from datasets import load_dataset
        datasets.disable_progress_bars()
        ds = load_dataset("parquet", data_files=path, split="train", streaming=True)
        step(path + ": the same by datasets", [r["code"] for r in ds] == [r["code"] for r in rows])
    except ImportError:
        steps.skip("datasets", "not installed")


def main():
    if sys.argv[1:] == ["--make"]:
        return make()
    potluck = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("POTLUCK", "build/potluck")
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        compare_reading(potluck, folder)
    demo = os.path.join(HERE, "..", "..", "data", "demo")
    for name in sorted(os.listdir(demo)):
        if name.endswith(".parquet"):
            compare_writing(os.path.join(demo, name))
    return steps.closing()


if __name__ == "__main__":
    sys.exit(main())
