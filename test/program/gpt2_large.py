"""gpt2_large.py FOLDER - what the paper's tutorial downloads, in its layout and small: FOLDER/gpt2-large as the hub
publishes it (all its names, with the attention's buffers, random weights of two narrow blocks) and FOLDER/c4/en, two
shards of C4's form."""
import array
import gzip
import json
import os
import random
import shutil
import struct
import sys

WIDTH, HEADS, BLOCKS, POSITIONS = 24, 3, 2, 48
VOCABULARY = "test/golden/tokenizer/gpt2_bpe"

root = sys.argv[1]
model, c4 = os.path.join(root, "gpt2-large"), os.path.join(root, "c4", "en")
os.makedirs(model)
os.makedirs(c4)
chance = random.Random(1)
ids = len(json.load(open(VOCABULARY + "/vocab.json")))
for name in ("vocab.json", "merges.txt"):
    shutil.copy(os.path.join(VOCABULARY, name), model)
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
header, data = {"__metadata__": {"format": "pt"}}, b""
for name, shape in shapes.items():
    n = 1
    for s in shape:
        n *= s
    if name.endswith("attn.bias"):  # the mask, which is no parameter
        values = [float(k % POSITIONS <= k // POSITIONS) for k in range(n)]
    else:
        values = [1.0 if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else chance.gauss(0, 0.02) for _ in range(n)]
    raw = array.array("f", values).tobytes()
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
with open(os.path.join(model, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)

words = "the a garden – café river walks 7 days, slowly".split(" ")
for shard in range(2):
    with gzip.open(os.path.join(c4, "c4-train.%05d-of-01024.json.gz" % shard), "wt", encoding="utf-8") as f:
        for i in range(60):
            said = " ".join(chance.choice(words) for _ in range(40)) + ".\nAnd more."
            f.write(json.dumps({"text": said, "timestamp": "2019-04-25T12:57:54Z", "url": "https://example.org/%d" % i},
                               ensure_ascii=bool(i % 2)) + "\n")
