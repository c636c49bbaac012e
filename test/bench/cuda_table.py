"""Figures of `make bench-cuda`, a folder of potluck bench's JSON, as a Markdown table."""

import datetime
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])


def load(name):
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def rows(name, section):
    o = load(name)
    return [r for r in o["rows"] if r["section"] == section] if o else []


def aim(value, least):
    return f"{value:.2f}, aim {least}: {'met' if value >= least else 'missed'}"


runs = [o for o in (load(p.stem) for p in sorted(folder.glob("*.json")) if p.stem != "draw-host") if o]
if not runs:
    sys.exit(f"{folder}: nothing was measured")
print("## CUDA, measured\n")
print(f"{runs[0]['backend']}; {datetime.date.today()}; `make bench-cuda`.")
for precision in ("float32", "bf16"):
    o = load(f"device-{precision}") or load(f"steps-{precision}") or load(f"parts-{precision}")
    if not o:
        continue
    print(f"\n### {precision}\n\nPeaks of the same run: a square product {o['peak_float32'] / 1e12:.2f} Tflop/s, "
          f"a copy {o['peak_memory'] / 1e9:.0f} GB/s.\n")
    print("| what | ms | rate | share of the peak |\n| --- | --- | --- | --- |")
    for r in rows(f"device-{precision}", "device"):
        share = f"{100 * r['of_peak']:.0f} %" if r["of_peak"] else "the bus's"
        print(f"| {r['operation']}, {r['values']} values | {1e3 * r['be_s']:.3f} | "
              f"{r['bytes'] / r['be_s'] / 1e9:.1f} GB/s | {share} |")
    for r in rows(f"steps-{precision}", "step"):
        memory = f", {r['memory_bytes'] / 2**30:.1f} GiB" if "memory_bytes" in r else ""
        peer = f"; {r['peer']} {1e3 * r['peer_s']:.1f} ms, {aim(r['peer_s'] / r['sample_s'], 2)}" if "peer_s" in r else ""
        print(f"| step, {r['size']}, {r['samples']} samples{memory} | {1e3 * r['sample_s']:.2f} a sample | "
              f"{1 / r['sample_s']:.1f} samples/s, {r['flops'] / r['sample_s'] / 1e12:.2f} Tflop/s{peer} | "
              f"{100 * r['of_roofline']:.0f} % |")
    for r in rows(f"parts-{precision}", "part"):
        rate = f"{r['flops'] / r['be_s'] / 1e12:.2f} Tflop/s" if r["flops"] else f"{r['bytes'] / r['be_s'] / 1e9:.0f} GB/s"
        print(f"| {r['operation']} {r['case']} | {1e3 * r['be_s']:.3f} | {rate} | {100 * r['of_peak']:.0f} % |")
device, host = ({r["size"]: r["picture_s"] for r in rows(f"draw-{w}", "draw")} for w in ("device", "host"))
if device and host:
    print("\n### Drawing, 16 pictures\n\n| size | device, ms each | processors, ms each | ratio |\n| --- | --- | --- | --- |")
    for size, s in device.items():
        print(f"| {size} | {1e3 * s:.2f} | {1e3 * host[size]:.1f} | {aim(host[size] / s, 10)} |")
