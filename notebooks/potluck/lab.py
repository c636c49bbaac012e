"""Swarms on a virtual clock: `potluck lab run`, and its log as arrays."""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any

import numpy as np

from .program import program

# A model that trains in seconds: 112,132 parameters, 0.45 MB.
MODEL = {"base": "demo", "name": "tiny", "dim": 32, "depth": 2, "heads": 1, "dim_head": 32}


class Run:
    """What a swarm did: its evaluations, what each peer did when, its exchanges, and the totals of each peer."""

    def __init__(self, name: str, entries: list[dict[str, Any]]):
        self.name = name
        by = {kind: [e for e in entries if e["event"] == kind] for kind in ("evaluated", "spent", "exchanged", "ended")}
        for column in ("time", "samples", "bytes", "loss", "utilization"):
            setattr(self, column, np.array([np.nan if e[column] is None else e[column] for e in by["evaluated"]], float))
        self.spent, self.exchanged, self.peers = by["spent"], by["exchanged"], by["ended"][0]["peers"]


def lab(name: str, algorithm: str, **keys: Any) -> Run:
    """Trains a swarm as cmd/lab/README.md describes: lab("DiLoCo", "diloco", outer={"H": 16}, links="adsl")."""
    with tempfile.TemporaryDirectory() as folder:
        model, run = pathlib.Path(folder, "model.json"), pathlib.Path(folder, "run.json")
        model.write_text(json.dumps(MODEL))
        run.write_text(json.dumps({"model": str(model), "algorithm": algorithm, **keys}))
        program("lab", "run", run, "--out", pathlib.Path(folder, "out"), "--threads", 1, "--quiet")
        lines = pathlib.Path(folder, "out", "log.jsonl").read_text().splitlines()
    return Run(name, [json.loads(line) for line in lines])
