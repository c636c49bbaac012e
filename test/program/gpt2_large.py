"""gpt2_large.py FOLDER [full] - what the paper's tutorial downloads, in its layout:
FOLDER/gpt2-large as the hub publishes it (all its names, with the attention's buffers) and
FOLDER/c4/en, two shards of C4's form. Weights are random. Small: two narrow blocks. full: the
published shapes, 774,030,080 parameters in 3.2 GB and 50,257 ids, whose merges are those of the
words in the licences that Debian ships, and so is the text; it takes the memory that the real files
take (paper/memory.md)."""
import array
import glob
import gzip
import json
import os
import random
import struct
import sys

root, full = sys.argv[1], sys.argv[2:] == ["full"]
WIDTH, HEADS, BLOCKS, POSITIONS = (1280, 20, 36, 1024) if full else (24, 3, 2, 48)
SMALL_VOCABULARY = "test/golden/tokenizer/gpt2_bpe"
NOISE = 1 << 20  # numbers drawn once; every tensor takes them from somewhere else

model, c4 = os.path.join(root, "gpt2-large"), os.path.join(root, "c4", "en")
os.makedirs(model)
os.makedirs(c4)
rng = random.Random(1)


def licences():
    paragraphs = []
    for path in sorted(glob.glob("/usr/share/common-licenses/*")):
        with open(path, encoding="utf-8", errors="replace") as f:
            paragraphs += [p for p in f.read().split("\n\n") if len(p) > 80]
    return paragraphs


def merges_of(words, count):
    """Each word from its left end, one letter more at a time; then letters with whatever there
    is."""
    seen, merges = set(), []

    def add(left, right):
        if left + right not in seen and len(merges) < count:
            seen.add(left + right)
            merges.append((left, right))
    for word in words:
        for n in range(1, len(word)):
            add(word[:n], word[n])
    letters = "etaoinshrdlcumwfgypbvk"
    for left in sorted(seen):
        for right in letters:
            add(left, right)
    return merges


def vocabulary():
    """vocab.json and merges.txt; how many ids there are."""
    if not full:
        texts = [open(os.path.join(SMALL_VOCABULARY, name), encoding="utf-8").read() for name in ("vocab.json", "merges.txt")]
    else:
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [b for b in range(256) if b not in printable]
        letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
        words = sorted({w for p in licences() for w in p.split() if w.isascii() and w.isalpha()})
        merges = merges_of(["\u0120" + w for w in words] + words, 50257 - 256 - 1)
        ids = letters + [a + b for a, b in merges] + ["<|endoftext|>"]
        texts = [json.dumps({word: i for i, word in enumerate(ids)}),
                 "#version: 0.2\n" + "".join("%s %s\n" % pair for pair in merges)]
    for name, text in zip(("vocab.json", "merges.txt"), texts):
        with open(os.path.join(model, name), "w", encoding="utf-8") as f:
            f.write(text)
    return len(json.loads(texts[0]))


ids = vocabulary()
with open(os.path.join(model, "config.json"), "w") as f:
    json.dump({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
               "bos_token_id": ids - 1, "embd_pdrop": 0.1, "eos_token_id": ids - 1, "initializer_range": 0.02,
               "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": POSITIONS, "n_embd": WIDTH, "n_head": HEADS,
               "n_layer": BLOCKS, "n_positions": POSITIONS, "resid_pdrop": 0.1, "summary_activation": None,
               "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
               "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
               "vocab_size": ids}, f, indent=2)

shapes = {"wte.weight": [ids, WIDTH], "wpe.weight": [POSITIONS, WIDTH], "ln_f.weight": [WIDTH], "ln_f.bias": [WIDTH]}
for i in range(BLOCKS):
    for name, shape in (("ln_1.weight", [WIDTH]), ("ln_1.bias", [WIDTH]), ("attn.bias", [1, 1, POSITIONS, POSITIONS]),
                        ("attn.c_attn.weight", [WIDTH, 3 * WIDTH]), ("attn.c_attn.bias", [3 * WIDTH]),
                        ("attn.c_proj.weight", [WIDTH, WIDTH]), ("attn.c_proj.bias", [WIDTH]), ("ln_2.weight", [WIDTH]),
                        ("ln_2.bias", [WIDTH]), ("mlp.c_fc.weight", [WIDTH, 4 * WIDTH]), ("mlp.c_fc.bias", [4 * WIDTH]),
                        ("mlp.c_proj.weight", [4 * WIDTH, WIDTH]), ("mlp.c_proj.bias", [WIDTH])):
        shapes["h.%d.%s" % (i, name)] = shape

noise = array.array("f", (rng.gauss(0, 0.02) for _ in range(NOISE))).tobytes()
mask = array.array("f", (float(k % POSITIONS <= k // POSITIONS) for k in range(POSITIONS * POSITIONS))).tobytes()


def tensor(f, name, n):
    if name.endswith(".attn.bias"):  # the mask, which is no parameter
        f.write(mask)
    elif name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
        f.write(array.array("f", [1.0] * n).tobytes())
    else:
        left = 4 * n
        while left:
            start = 4 * rng.randrange(NOISE)
            some = noise[start:start + left]
            f.write(some)
            left -= len(some)


header, at, sizes = {"__metadata__": {"format": "pt"}}, 0, {}
for name, shape in shapes.items():
    n = 1
    for s in shape:
        n *= s
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * n]}
    sizes[name] = n
    at += 4 * n
text = json.dumps(header).encode()
with open(os.path.join(model, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for name, n in sizes.items():
        tensor(f, name, n)

if full:
    documents = licences()
else:
    words = "the a garden – café river walks 7 days, slowly".split(" ")
    documents = [" ".join(rng.choice(words) for _ in range(40)) + ".\nAnd more." for _ in range(120)]
for shard in range(2):
    with gzip.open(os.path.join(c4, "c4-train.%05d-of-01024.json.gz" % shard), "wt", encoding="utf-8") as f:
        for i, document in enumerate(documents[shard::2]):
            f.write(json.dumps({"text": document, "timestamp": "2019-04-25T12:57:54Z", "url": "https://example.org/%d" % i},
                               ensure_ascii=bool(i % 2)) + "\n")
