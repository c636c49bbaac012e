"""The Python peers of `potluck bench`: the same work by torch with dalle-pytorch, hivemind and
bitsandbytes, where they are installed. Prints one JSON object a line: {"what", "seconds", "by"}, in
seconds of one step, picture or call, or {"missing"} with a sentence. Times are the best of a
few."""

import argparse
import json
import os
import time

import blas
import original

blas.best_kernels()

SIZES = {  # as in ref/model/dalle_config.c: width, heads, blocks, text, grid, vocabularies
    "demo": (128, 2, 4, 16, 8, 2100, 256),
    "small": (256, 4, 9, 32, 16, 2100, 1024),
    "middle": (512, 8, 17, 64, 16, 8192, 8192),
    "run": (1024, 16, 64, 256, 32, 32100, 8192),
}


def say(**fields):
    print(json.dumps(fields), flush=True)


DEVICE = os.environ.get("PEER_DEVICE", "cpu")  # cuda: steps, drawing and attention on a GPU


def finished():
    if DEVICE != "cpu":
        import torch
        torch.cuda.synchronize()


clock = time.perf_counter  # with one thread: the processor's time, as potluck bench counts it


def best(call, at_least=3, seconds=2.0):
    times, begin = [], time.perf_counter()
    while len(times) < at_least or time.perf_counter() - begin < seconds:
        start = clock()
        call()
        finished()
        times.append(clock() - start)
        if time.perf_counter() - begin > 30:  # a slow machine, or the run's size
            break
    return min(times)


def model(size, inference):
    width, heads, blocks, text, grid, words, codes = SIZES[size]
    return original.dalle(width, heads, 64, blocks, text, grid, words, codes, inference).to(DEVICE)


def step(torch, size, samples, bf16):
    _, _, _, text, grid, words, codes = SIZES[size]
    torch.manual_seed(1)
    m = model(size, False)
    t = torch.randint(2, words, (samples, text)).to(DEVICE)
    c = torch.randint(0, codes, (samples, grid * grid)).to(DEVICE)

    def once():
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=bf16):
            loss = m(t, c, return_loss=True)
        loss.backward()

    return best(once, at_least=1 if size == "run" else 3)


def draw(torch, size, pictures, cached):
    _, _, _, text, _, words, _ = SIZES[size]
    m = model(size, True)
    t = torch.randint(2, words, (pictures, text)).to(DEVICE)
    return best(lambda: m.generate_images(t, use_cache=cached), at_least=1, seconds=0)


def attention(torch, size, backward):
    from dalle_pytorch.attention import SparseAxialCausalAttention
    _, heads, _, text, grid, _, _ = SIZES[size]
    layer = SparseAxialCausalAttention(64, text + grid * grid, image_size=grid, axis=0, heads=heads)
    layer = layer.to(DEVICE)
    layer.to_qkv = layer.to_out = torch.nn.Identity()  # attention alone, as ours is timed
    # two sequences: of one, torch makes views that the layer then may not change in place
    x = torch.randn(2, text + grid * grid, 3 * 64 * heads, requires_grad=backward, device=DEVICE)

    def once():
        if not backward:
            with torch.no_grad():
                return layer(x)
        return layer(x).backward(torch.ones(2, text + grid * grid, 64 * heads, device=DEVICE))

    return best(once) / 2


def try_import(name, *wanted):
    try:
        return [__import__(w, fromlist=["x"]) for w in wanted]
    except Exception as e:  # a broken package is a missing one
        say(missing=f"{name}: {type(e).__name__}: {e}"[:200])
        return None


def codes(torch, n):
    x = torch.randn(n)
    got = try_import("bitsandbytes", "bitsandbytes.functional")
    if got:
        q, state = got[0].quantize_blockwise(x)
        say(what="quantize", n=n, seconds=best(lambda: got[0].quantize_blockwise(x)), by="bitsandbytes")
        say(what="dequantize", n=n, seconds=best(lambda: got[0].dequantize_blockwise(q, state)),
            by="bitsandbytes")
    got = try_import("hivemind", "hivemind.compression")
    if got:
        u = got[0].Uniform8BitQuantization()
        info = got[0].CompressionInfo.from_tensor(x)
        m = u.compress(x, info)
        say(what="uniform8 encode", n=n, seconds=best(lambda: u.compress(x, info)), by="hivemind")
        say(what="uniform8 decode", n=n, seconds=best(lambda: u.extract(m)), by="hivemind")


def pictures(torch):
    """In float32 whatever we are asked for: the targets of both our precisions are compared with
    that."""
    import pictures as models
    encoder, decoder, table = models.vqgan()
    vision, text = models.Vision().eval(), models.Text().eval()
    x, pixels = torch.rand(1, 3, 256, 256) * 2 - 1, torch.randn(1, 3, 224, 224)
    codes, ids = torch.randint(0, 8192, (1, 32, 32)), torch.randint(0, 49408, (1, 77))
    by = f"torch {torch.__version__}"
    with torch.no_grad():
        for what, call in (("VQGAN encode", lambda: encoder(x).argmax(1)),
                           ("VQGAN decode", lambda: decoder(table(codes).permute(0, 3, 1, 2))),
                           ("CLIP image", lambda: vision(pixels)), ("CLIP text", lambda: text(ids))):
            say(what=what, seconds=best(call), by=by)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--what", action="append", default=[], metavar="KIND:SIZE:COUNT",
                   help="step, draw, uncached, attention, pictures or codes")
    a = p.parse_args()
    global clock
    if a.threads == 1:
        clock = time.process_time
    original.stand_in()
    torch = try_import("torch", "torch")
    if not torch:
        return
    torch = torch[0]
    torch.set_num_threads(a.threads)
    peer = try_import("dalle-pytorch", "dalle_pytorch")
    by = f"DALLE-pytorch, torch {torch.__version__}"
    for what in a.what:
        kind, size, count = what.split(":")
        count = int(count)
        if kind == "codes":
            torch.set_num_threads(1)
            codes(torch, count)
            torch.set_num_threads(a.threads)
        elif kind == "pictures":
            pictures(torch)
        if not peer or kind in ("codes", "pictures"):
            continue
        try:
            if kind == "step":
                say(what=f"step {size}", seconds=step(torch, size, count, a.bf16) / count, by=by)
            elif kind in ("draw", "uncached"):
                seconds = draw(torch, size, count, kind == "draw")
                say(what=f"{kind} {size}", seconds=seconds / count, by=by)
            elif kind == "attention":
                say(what=f"attention {size}", seconds=attention(torch, size, False), by=by)
                say(what=f"attention backward {size}", seconds=attention(torch, size, True), by=by)
        except Exception as e:
            say(missing=f"{what}: {type(e).__name__}: {e}"[:200])


main()
