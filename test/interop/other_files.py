#!/usr/bin/env python3
"""other_files.py - safetensors, transformers, Pillow, pyarrow and datasets against potluck: each
reads our files and we read its files."""
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import steps
from steps import step

potluck = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
CODEC = os.path.join(ROOT, "data", "demo", "codec.safetensors")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs the net
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
steps.needs("torch", "safetensors.torch", "transformers", "PIL.Image", "pyarrow.parquet", "datasets")
import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch as st
import torch
import transformers as tf
from PIL import Image
from safetensors import safe_open


def run(*arguments, text=None):
    return subprocess.run([potluck, *arguments], input=text, capture_output=True, text=True, timeout=steps.PATIENCE)


def same(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and torch.equal(a[k], b[k]) for k in b)


def safetensors_files(folder):
    torch.manual_seed(1)
    state = {"größe.重み": torch.randn(3, 4), "half": torch.randn(7).half(), "brain": torch.randn(2, 2).bfloat16(),
             "ids": torch.arange(5), "flags": torch.tensor([True, False]), "empty": torch.zeros(0, 3),
             "scalar": torch.tensor(2.5)}
    theirs, ours = os.path.join(folder, "theirs.safetensors"), os.path.join(folder, "ours.safetensors")
    zipped = os.path.join(folder, "zip.pt")
    st.save_file(state, theirs, metadata={"made": "here, größe"})
    step("convert reads what safetensors writes", run("convert", theirs, zipped).returncode == 0)
    step("the same tensors by torch.load", same(torch.load(zipped), state))
    step("convert writes safetensors", run("convert", zipped, ours).returncode == 0)
    step("the same tensors by safetensors", same(st.load_file(ours), state))

    # A tensor beyond 2 GiB of a sparse file: by them and by us.
    far = 3 << 30
    header = json.dumps({"near": {"dtype": "U8", "shape": [far], "data_offsets": [0, far]},
                         "far": {"dtype": "BF16", "shape": [4], "data_offsets": [far, far + 8]}}).encode()
    sparse = os.path.join(folder, "sparse.safetensors")
    tail = torch.tensor([1, 2, 3, 4]).bfloat16()
    with open(sparse, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.seek(far, 1)
        f.write(tail.view(torch.int16).numpy().tobytes())
    with safe_open(sparse, "pt") as f:
        step("safetensors finds the tensor beyond 2 GiB", torch.equal(f.get_tensor("far"), tail))
    shown = run("show", "--json", sparse)
    step("so do we", shown.returncode == 0 and '"far"' in shown.stdout, shown.stderr)


def random_text(n):
    kinds = ["abc DEF  ghi", "0123 456", "éèüß", "ещё", "中文字", "🦊🌅", "'s 're", "\u00a0\u3000", "!?—…",
             "हिन्दी", "العربيةَُّ", "e\u0301\u0323\u0345", "👨\u200d👩\u200d👧🇩🇪👍🏽☺\ufe0f", "\x01\x0b\x1b\x7f\x85\r",
             "\u200b\u2060\ufeff\u00ad\u202e", "①½Ⅷﬁ㍿Ａ𝔘", "\u2028\u1680\u2009", "\ufffd\uffff\ue000\U0010ffff"]
    return "".join(random.choice(random.choice(kinds)) for _ in range(n)).strip()


def gpt2(folder):
    torch.manual_seed(1)
    config = tf.GPT2Config(vocab_size=211, n_positions=32, n_embd=64, n_layer=2, n_head=4)
    model = tf.GPT2LMHeadModel(config).eval()
    theirs, ours = os.path.join(folder, "gpt2"), os.path.join(folder, "gpt2-ours")
    model.save_pretrained(theirs)
    os.makedirs(ours)
    config.save_pretrained(ours)
    weights = [f for f in ("model.safetensors", "pytorch_model.bin") if os.path.exists(os.path.join(theirs, f))][0]
    result = run("convert", os.path.join(theirs, weights), os.path.join(ours, "pytorch_model.bin"))
    step("convert reads transformers' " + weights, result.returncode == 0, result.stderr)
    if result.returncode == 0:
        x = torch.randint(0, 211, (2, 9))
        with torch.no_grad():
            again = tf.GPT2LMHeadModel.from_pretrained(ours).eval()
            step("transformers computes the same from ours", torch.equal(model(x).logits, again(x).logits))


def gpt2_words():
    """Letters younger than Unicode 14 are left out: releases of tokenizers differ about them."""
    folder = os.path.join(ROOT, "test", "golden", "tokenizer", "gpt2_bpe")
    theirs = tf.GPT2TokenizerFast(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt"))
    lines = [random_text(random.randint(1, 60)) for _ in range(300)]
    lines = [line for line in lines if line] + ["wordy" * 700, "é" * 3000]
    result = run("tokenize", "--model", folder, text="\n".join(lines) + "\n")
    ids = [[int(t) for t in line.split()] for line in result.stdout.split("\n")[:-1]]
    step("tokenize gives transformers' ids", ids == [theirs(line)["input_ids"] for line in lines], result.stderr)


def picture(kind):
    """A file's bytes, its size when upright."""
    size = (random.randint(40, 90), random.randint(40, 90))
    image = Image.effect_noise(size, 60)
    out = io.BytesIO()
    if kind == "grey":
        image.save(out, "JPEG")
    elif kind == "cmyk":
        image.convert("RGB").convert("CMYK").save(out, "JPEG")
    elif kind == "turned":
        exif = Image.Exif()
        exif[0x0112] = 6
        image.convert("RGB").save(out, "JPEG", exif=exif)
        size = size[::-1]
    elif kind == "palette":
        image.convert("RGB").convert("P", palette=Image.ADAPTIVE).save(out, "PNG", transparency=0)
    elif kind == "alpha":
        image.convert("RGBA").save(out, "PNG")
    elif kind == "one bit":
        image.convert("1").save(out, "PNG")
    elif kind == "webp":
        image.convert("RGB").save(out, "WEBP")
    elif kind == "cut":
        image.convert("RGB").save(out, "JPEG")
        out.truncate(200)
    return out.getvalue(), size


def pictures(folder):
    kinds = ["grey", "cmyk", "turned", "palette", "alpha", "one bit", "webp", "cut"]
    made = [picture(kind) for kind in kinds for _ in range(3)]
    captions = ["größe %d 重み %s" % (i, kinds[i // 3]) for i in range(len(made))]
    table = pa.table({
        "jpg": pa.array([m[0] for m in made] + [None], pa.binary()), "caption": captions + ["never came"],
        "key": ["%09d" % i for i in range(len(made) + 1)], "url": ["http://nowhere/%d" % i for i in range(len(made) + 1)],
        "status": ["success"] * len(made) + ["failed_to_download"]})
    path, out = os.path.join(folder, "00000.parquet"), os.path.join(folder, "shards")
    pq.write_table(table, path, row_group_size=10)
    result = run("prepare", "--data", path, "--codec", CODEC, "--out", out, "--rows", "10", "--backend", "ref")
    step("prepare reads Pillow's pictures in pyarrow's table", result.returncode == 0, result.stderr)
    if result.returncode:
        return
    rows = [r for name in sorted(os.listdir(out)) for r in pq.read_table(os.path.join(out, name)).to_pylist()]
    whole = [i for i in range(len(made)) if kinds[i // 3] != "cut"]
    by_caption = {r["caption"]: r for r in rows}
    step("each picture but the cut ones is there once", len(rows) == len(by_caption) and
          {captions[i] for i in whole} <= set(by_caption), result.stderr)
    step("as large as it is upright", all((r["original_width"], r["original_height"]) == made[i][1]
                                           for i in whole for r in [by_caption[captions[i]]]))
    step("each cut one is named or there", 3 == result.stderr.count("left out: ") + len(rows) - len(whole), result.stderr)
    sheet = os.path.join(folder, "sheet.png")
    plain = os.path.join(folder, "plain")
    os.makedirs(plain)
    for i in range(3):
        with open(os.path.join(plain, "%d.jpg" % i), "wb") as f:
            f.write(made[i][0])
    result = run("vqgan", "measure", "--weights", CODEC, "--data", plain, "--sheet", sheet, "--backend", "ref")
    step("vqgan writes a sheet", result.returncode == 0, result.stderr)
    if result.returncode == 0:
        with Image.open(sheet) as image:
            image.load()
            step("Pillow reads it", image.format == "PNG" and image.mode == "RGB" and min(image.size) >= 64)
    datasets.disable_progress_bars()
    read = datasets.load_dataset("parquet", data_files=sorted(os.path.join(out, n) for n in os.listdir(out)),
                                 split="train", streaming=True)
    step("datasets reads our shards", [r["code"] for r in read] == [r["code"] for r in rows])


seed = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 30)
print("SEED=%d" % seed)
random.seed(seed)
with tempfile.TemporaryDirectory() as place:
    safetensors_files(place)
    gpt2(place)
    gpt2_words()
    pictures(place)
sys.exit(steps.closing())
