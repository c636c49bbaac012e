"""scenarios.py - the commands that inject.py plays, and what each needs in its folder."""
import json
import os
import shutil
import subprocess

LIMIT = 60  # s: each takes a tenth of a second; a command that hangs is a fault
program = None  # the path of the program: inject.py names it


class Scenario:
    """A command in a folder of its own. `prepare` makes what it needs there. `more`: the same with its earlier outputs kept.
    `reads`: what stands in its standard input. `drawn`: patterns of files that hold random numbers or times; what it prints does, too.
    `judges`: it reports what fails among its results."""

    def __init__(self, name, arguments, prepare=None, more=None, reads="", drawn=(), judges=False):
        self.name, self.arguments, self.prepare, self.more = name, arguments, prepare, more or []
        self.reads, self.drawn, self.judges = reads, set(drawn), judges


def run(arguments, environment=None, **others):
    return subprocess.run([program, *arguments], env={**os.environ, **(environment or {})}, check=not others,
                          timeout=LIMIT, **{"stdin": subprocess.DEVNULL, **others})


def train(*more):
    return ["train", "--config", "test/program/tiny.json", "--data", "data/demo/emoji-00001.parquet", "--limit", "8",
            "--target-batch", "4", "--batch", "4", "--save-every", "1", "--evaluate-every", "0", "--backend", "fast",
            "--threads", "1", "--quiet", *more]


def one_checkpoint(folder):
    """A training that has stopped after its first step."""
    run(train("--steps", "1", "--keep", "0", "--out", folder + "/out"))


def model(folder):
    run(train("--steps", "1", "--out", folder + "/model"))


def converted(folder):
    model(folder)
    run(["convert", folder + "/model/checkpoint-000001.safetensors", folder + "/old.pt"])
    shutil.copy(folder + "/old.pt", folder + "/new.pt")
    shutil.copy("test/golden/quant/codebooks.safetensors" if os.path.exists("test/golden/quant/codebooks.safetensors")
                else folder + "/model/checkpoint-000001.safetensors", folder + "/new.safetensors")


def pictures(folder):
    os.mkdir(folder + "/pictures")
    for name in ("gray", "rgba"):
        shutil.copy(f"test/golden/clip/images/{name}.png", folder + "/pictures")
        with open(f"{folder}/pictures/{name}.txt", "w") as f:
            f.write(f"a {name} picture\n")


def encoded(folder):
    pictures(folder)
    run(["vqgan", "encode", "--weights", CODEC, "--data", folder + "/pictures", "--out", folder + "/codes.safetensors", *BACKEND])


def laboratory(folder):
    with open(folder + "/lab.yaml", "w") as f:
        f.write("name: l\nmodel: test/program/tiny.json\npeers: 2\nsteps: 2\nbatch: 1\npairs: 4\nheld_out: 1\nevaluate: 2\n"
                "links: [adsl, fibre]\nsample_ms: [10, 30]\nalgorithm: diloco\nouter: { H: 1 }\n")


def text(folder):
    with open(folder + "/text.jsonl", "w") as f:
        for i in range(40):
            f.write(json.dumps({"text": f"red green blue {i * i} apples and pears, likes and sees a yellow dog"}) + "\n")


def allowlist(folder):
    with open(folder + "/allow", "w") as f:
        f.write("# users\nann " + "0f" * 32 + "\n")


FOLDER = "FOLDER"  # stands for the scenario's folder in its arguments
CODEC = "data/demo/codec.safetensors"
BACKEND = ["--backend", "fast", "--threads", "1"]
SCENARIOS = [
    Scenario("train", train("--steps", "2", "--keep", "1", "--out", FOLDER + "/out"), None,
             train("--steps", "2", "--keep", "0", "--out", FOLDER + "/out")),
    Scenario("resume", train("--steps", "2", "--keep", "1", "--resume", "--out", FOLDER + "/out"), one_checkpoint,
             train("--steps", "2", "--keep", "0", "--resume", "--out", FOLDER + "/out")),
    Scenario("generate", ["generate", "--model", FOLDER + "/model", "--n", "1", "--quiet", "--out", FOLDER + "/drawn",
                          *BACKEND, "red apple"], model),
    Scenario("prepare", ["prepare", "--data", FOLDER + "/pictures", "--codec", CODEC, "--out", FOLDER + "/shards",
                         *BACKEND], pictures),
    Scenario("vqgan", ["vqgan", "train", "--data", FOLDER + "/pictures", "--out", FOLDER + "/codec.safetensors", "--steps",
                       "1", "--batch", "1", "--sheet", FOLDER + "/sheet.png", *BACKEND], pictures),
    Scenario("encode", ["vqgan", "encode", "--weights", CODEC, "--data", FOLDER + "/pictures", "--out",
                        FOLDER + "/codes.safetensors", *BACKEND], pictures),
    Scenario("decode", ["vqgan", "decode", "--weights", CODEC, "--codes", FOLDER + "/codes.safetensors", "--out",
                        FOLDER + "/decoded", *BACKEND], encoded),
    Scenario("new-run", ["new-run", "--run", "emoji", "--config", "test/program/tiny.json", "--steps", "100", "--target-batch",
                         "16", "--out", FOLDER + "/run.json"]),
    Scenario("lab", ["lab", "run", FOLDER + "/lab.yaml", "--out", FOLDER + "/out", "--stop", "3", "--quiet", *BACKEND], laboratory),
    Scenario("finetune", ["finetune", "--data", FOLDER + "/text.jsonl", "--length", "16", "--batch", "2", "--held-out", "2",
                          "--steps", "2", "--save-every", "1", "--evaluate-every", "0", "--quiet", "--out",
                          FOLDER + "/out", *BACKEND], text,
             ["finetune", "--data", FOLDER + "/text.jsonl", "--length", "16", "--batch", "2", "--held-out", "2",
              "--steps", "2", "--save-every", "1", "--evaluate-every", "0", "--keep", "0", "--quiet", "--out",
              FOLDER + "/out", *BACKEND]),
    Scenario("convert", ["convert", FOLDER + "/model/checkpoint-000001.safetensors", FOLDER + "/new.pt"], converted),
    Scenario("convert-back", ["convert", FOLDER + "/old.pt", FOLDER + "/new.safetensors"], converted),
    Scenario("show-table", ["show", "--rows", "2", "test/interop/pyarrow/v2_dictionary_zstd.parquet"]),
    Scenario("show-tensors", ["show", "test/golden/clip/resample.safetensors"]),
    Scenario("show-torch", ["show", "test/golden/vqgan/container_mixed_legacy.pt"]),
    Scenario("show-tokenizer", ["show", "data/demo/t5_2k.model", "--caption", "grinning face"]),
    Scenario("tokenize", ["tokenize", "--model", "data/demo/t5_2k.model", "--max", "8"],
             reads="grinning face\n\na\u0301 \u2126 red apple, one two three four five six seven\n"),
    Scenario("tokenize-back", ["tokenize", "--model", "data/demo/t5_2k.model", "--decode"], reads="3 17 300 1\n5\n"),
    Scenario("invite", ["authority", "--invite", "ben", "--allow", FOLDER + "/allow"], allowlist, drawn=["allow"]),
    Scenario("conform", ["conform", "--quick", "--filter", "layer_norm", *BACKEND], judges=True),
    Scenario("calc", ["calc", "run"]),
    Scenario("bench", ["bench", "--only", "attention", "--size", "demo", "--steps", "1", "--json", FOLDER + "/rows.json", *BACKEND],
             drawn=["rows.json"]),
]
