"""Executes every notebook of this folder (or those that are named) and fails on the first error of
each.

    make notebooks            # only whether they run
    make notebooks STORE=1    # and keep what they print and draw
"""

import base64
import concurrent.futures
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import nbclient
import nbformat

HERE = pathlib.Path(__file__).resolve().parent
AT_ONCE = 2 # each keeps about one core busy
MOST_BYTES = 400_000 # of a stored notebook: they travel with the source
WIDEST = 121 # characters of a line that a page shows whole


def smaller(notebook):
    """Pictures with 256 colours: a third of the bytes, and nobody sees it."""
    import PIL.Image
    for output in (o for cell in notebook.cells for o in cell.get("outputs", [])):
        if "image/png" in output.get("data", {}):
            picture = PIL.Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")
            to = io.BytesIO()
            picture.quantize(256, dither=PIL.Image.Dither.NONE).save(to, "png", optimize=True)
            output.data["image/png"] = base64.b64encode(to.getvalue()).decode()


def too_wide(notebook):
    """Lines of code, or of what it prints, that a reader would have to scroll for."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = [cell.source for cell in code] + [output.text for cell in code for output in cell.outputs if "text" in output]
    return [line for text in texts for line in text.splitlines() if len(line) > WIDEST]


def unexplained(notebook):
    """The first cell that prints or draws something and is not followed by text."""
    cells = notebook.cells + [None]
    return next((cell.source.splitlines()[0] for cell, following in zip(cells, cells[1:]) if cell.get("outputs") and
                 (following is None or following.cell_type != "markdown")), None)


def execute(path, store):
    """One notebook; whether it was good."""
    began, notebook = time.monotonic(), nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=900, startup_timeout=300, kernel_name="python3",
                                     record_timing=False, resources={"metadata": {"path": str(HERE)}})
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        print(f"FAIL {path.name}: {str(error)[-1500:]}")
        return False
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}}
    if store:
        smaller(notebook)
        nbformat.write(notebook, path)
    if too_wide(notebook):
        print(f"FAIL {path.name}: more than {WIDEST} characters: {too_wide(notebook)[0]}")
        return False
    if unexplained(notebook):
        print(f"FAIL {path.name}: no text after the output of: {unexplained(notebook)}")
        return False
    length = len(nbformat.writes(notebook))
    if store and length > MOST_BYTES:
        print(f"FAIL {path.name}: {length} bytes with its outputs, at most {MOST_BYTES} expected")
        return False
    print(f"ok   {path.name}: {time.monotonic() - began:.0f} s, {length // 1000} kB", flush=True)
    return True


def joins_another(path):
    """Notebook 3 once more, in a run of another model, with one address of it."""
    sys.path.insert(0, str(HERE))
    import potluck
    with tempfile.TemporaryDirectory() as folder:
        model, plan = pathlib.Path(folder, "other.json"), pathlib.Path(folder, "run.json")
        model.write_text('{"base": "demo", "name": "other", "dim": 64, "depth": 3, "heads": 2, "dim_head": 32}')
        potluck.program("new-run", "--run", "elsewhere", "--config", model, "--steps", 100000, "--target-batch", 32, "--out", plan)
        with potluck.Program("train", "--manifest", plan, "--listen", "/ip4/127.0.0.1/tcp/0", "--matchmaking-time", 2, "--slow", 0.5,
                             "--threads", 1, "--save-every", 0, "--quiet", "--json", "--out", pathlib.Path(folder, "out")) as peer:
            address = peer.wait_for(lambda text: '"ready"' in text and re.search('"multiaddr":"([^"]*)"', text), 120)[1]
            os.environ.update(POTLUCK_JOIN=address, POTLUCK_SECONDS="20")
            return execute(path, False)


def one_by_itself(path, store):
    """The same in a process of its own, so that two can run at a time."""
    command = [sys.executable, __file__, "--one", str(path)] + ["--store"] * store
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = done.stdout.strip()
    if done.returncode and not output.startswith("FAIL"):
        output = f"FAIL {path.name}: {done.stderr[-1500:]}"
    print(output, flush=True)
    return not done.returncode


def main():
    flags = [a for a in sys.argv[1:] if a.startswith("--")]
    named = [pathlib.Path(a) for a in sys.argv[1:] if not a.startswith("--")] or sorted(HERE.glob("*.ipynb"))
    if "--one" in flags:
        good = execute(named[0], "--store" in flags)
        return 0 if good and ("join" not in named[0].name or joins_another(named[0])) else 1
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        good = sum(pool.map(lambda path: one_by_itself(path, "--store" in flags), named))
    print(f"{good} passed, {len(named) - good} failed, 0 skipped")
    return 0 if good == len(named) else 1


if __name__ == "__main__":
    sys.exit(main())
