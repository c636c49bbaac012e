#!/usr/bin/env python3
"""files.py - tokenizers, checkpoints and shards against the Python packages that do the same, one
thread, processor time of either side, the best of a few rounds in turn.

    files.py BUILD [TOKENIZERS]     the folder of potluck and libpotluck.so; that of the goldens'
                                    vocabularies
"""
import ctypes
import gzip
import json
import mmap
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
build = sys.argv[1]
words = sys.argv[2] if len(sys.argv) > 2 else "test/golden/tokenizer"
ROUNDS = 3


def own(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def child(*arguments, stdin=None):
    """Processor time of the program, start and printing included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([os.path.join(build, "potluck"), *arguments], stdin=stdin, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def turns(what, ours, theirs, by, note=""):
    a, b = [], []
    for _ in range(ROUNDS):
        a.append(ours())
        b.append(theirs())
    print("%-34s %9.3f s  %9.3f s %-24s %6.1fx  %s" % (what, min(a), min(b), by, min(b) / min(a), note), flush=True)


def lines(n):
    pick = ["a photo of a", "red", "Fox", "über", "schöne", "лиса", "в лесу", "画", "夕日", "🦊", "don't", "2024,", "the", "of"]
    r = random.Random(1)
    return [" ".join(r.choice(pick) for _ in range(r.randint(3, 20))) for _ in range(n)]


def clip_tokenizer(path, folder):
    """The peer's tokenizer from the merge list as it was published: ids are the order of its
    symbols."""
    from transformers import CLIPTokenizerFast
    from transformers.models.clip.tokenization_clip import bytes_to_unicode
    with gzip.open(path, "rt", encoding="utf-8") as f:
        merges = f.read().split("\n")[1:49152 - 256 - 2 + 1]
    letters = list(bytes_to_unicode().values())
    symbols = letters + [c + "</w>" for c in letters] + ["".join(m.split()) for m in merges]
    symbols += ["<|startoftext|>", "<|endoftext|>"]
    vocab, list_ = os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")
    with open(vocab, "w") as f:
        json.dump({s: i for i, s in enumerate(symbols)}, f)
    with open(list_, "w") as f:
        f.write("\n".join(["#version: 0.2"] + merges) + "\n")
    return CLIPTokenizerFast(vocab, list_).backend_tokenizer


def tokenizers(folder):
    try:
        from tokenizers import Tokenizer, __version__
        from transformers import GPT2TokenizerFast
    except ImportError as e:
        return print("tokenizers: %s" % e)
    text = lines(60000)
    path = os.path.join(folder, "lines")
    with open(path, "w") as f:
        f.write("\n".join(text) + "\n")
    size = "%.1f MB" % (os.path.getsize(path) / 1e6)

    def ours(model):
        with open(path) as f:
            return child("tokenize", "--model", model, stdin=f)
    gpt2 = os.path.join(words, "gpt2_bpe")
    their = GPT2TokenizerFast(os.path.join(gpt2, "vocab.json"), os.path.join(gpt2, "merges.txt")).backend_tokenizer
    turns("GPT-2's BPE, " + size, lambda: ours(gpt2), lambda: own(lambda: their.encode_batch(text)),
          "tokenizers " + __version__)
    clip = os.path.join(words, "bpe_simple_vocab_16e6.txt.gz")
    their = clip_tokenizer(clip, folder)
    turns("CLIP's BPE, " + size, lambda: ours(clip), lambda: own(lambda: their.encode_batch(text)),
          "tokenizers " + __version__)
    for name in ("t5_2k", "t5_8k"):
        t5 = os.path.join(words, name)
        if os.path.exists(os.path.join(t5, "tokenizer.json")):
            their = Tokenizer.from_file(os.path.join(t5, "tokenizer.json"))
            turns("T5's unigram (%s), %s" % (name, size), lambda: ours(os.path.join(t5, "spiece.model")),
                  lambda: own(lambda: their.encode_batch(text)), "tokenizers " + __version__)


def checkpoint(folder):
    try:
        import torch
    except ImportError as e:
        return print("checkpoint: %s" % e)
    path = os.path.join(folder, "big.pt")
    torch.save({"layer.%d.weight" % i: torch.randn(1024, 1024) for i in range(125)}, path)
    lib = ctypes.CDLL(os.path.join(build, "libpotluck.so"))

    def ours():
        f = ctypes.c_void_p()
        assert lib.pl_weights_open(ctypes.byref(f), path.encode(), None) == 0
        lib.st_close(f)

    def touch():  # what using the weights costs on top: every page of a mapped file
        with open(path, "rb") as f:
            m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
            sum(m[::mmap.PAGESIZE])
    by = "torch.load " + torch.__version__.split("+")[0]
    turns("a checkpoint of 524 MB, opened", lambda: own(ours), lambda: own(lambda: torch.load(path)), by)
    turns("the same, every page looked at", lambda: own(ours) + own(touch), lambda: own(lambda: torch.load(path)), by)
    os.unlink(path)


class Row(ctypes.Structure):
    _fields_ = [("caption", ctypes.c_void_p), ("caption_bytes", ctypes.c_size_t), ("nsfw", ctypes.c_void_p),
                ("nsfw_bytes", ctypes.c_size_t), ("width", ctypes.c_double), ("height", ctypes.c_double),
                ("code", ctypes.c_void_p), ("code_bytes", ctypes.c_size_t), ("key", ctypes.c_char_p)]


def shards(folder):
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as e:
        return print("shards: %s" % e)
    lib = ctypes.CDLL(os.path.join(build, "libpotluck.so"))
    r = random.Random(1)
    rows = 20000
    table = pa.table({"caption": lines(rows), "NSFW": ["UNLIKELY"] * rows,
                      "original_width": pa.array([256] * rows, pa.int64()),
                      "original_height": pa.array([256] * rows, pa.int64()),
                      "code": [bytes(b for _ in range(1024) for b in r.randrange(8192).to_bytes(2, "little")) for _ in range(rows)]})
    path = os.path.join(folder, "shard.parquet")
    for codec in ("brotli", "snappy"):
        pq.write_table(table, path, compression=codec, row_group_size=8192)

        def ours():
            shard, row, n = ctypes.c_void_p(), Row(), 0
            assert lib.shard_open(ctypes.byref(shard), path.encode(), None) == 0
            step, to = lib.shard_next, ctypes.byref(row)
            while step(shard, to, None) == 0:
                n += 1
            lib.shard_close(shard)
            assert n == rows
        turns("a shard of %d rows, %.1f MB, %s" % (rows, os.path.getsize(path) / 1e6, codec), lambda: own(ours),
              lambda: own(lambda: pq.read_table(path, use_threads=False)), "pyarrow " + pa.__version__)


with tempfile.TemporaryDirectory() as place:
    print("%-34s %11s  %11s" % ("", "ours", "theirs"))
    tokenizers(place)
    shards(place)
    checkpoint(place)
