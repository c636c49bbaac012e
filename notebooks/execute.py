"""Executes every notebook of this folder (or those that are named) and fails on the first error of each.

    make notebooks            # only whether they run
    make notebooks STORE=1    # and keep what they print and draw
"""

import base64
import io
import pathlib
import sys
import time

import nbclient
import nbformat

MOST_BYTES = 400_000 # of a stored notebook: they travel with the source


def smaller(notebook):
    """Pictures with 256 colours: a third of the bytes, and nobody sees it."""
    import PIL.Image
    for output in (o for cell in notebook.cells for o in cell.get("outputs", [])):
        if "image/png" in output.get("data", {}):
            picture = PIL.Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")
            to = io.BytesIO()
            picture.quantize(256, dither=PIL.Image.Dither.NONE).save(to, "png", optimize=True)
            output.data["image/png"] = base64.b64encode(to.getvalue()).decode()


def main():
    store = "--store" in sys.argv[1:]
    here = pathlib.Path(__file__).resolve().parent
    named = [pathlib.Path(a) for a in sys.argv[1:] if not a.startswith("--")] or sorted(here.glob("*.ipynb"))
    good = bad = 0
    for path in named:
        began, notebook = time.monotonic(), nbformat.read(path, as_version=4)
        client = nbclient.NotebookClient(notebook, timeout=900, startup_timeout=300, kernel_name="python3", record_timing=False,
                                         resources={"metadata": {"path": str(here)}})
        try:
            client.execute()
        except nbclient.exceptions.CellExecutionError as error:
            print(f"FAIL {path.name}: {str(error)[-1500:]}")
            bad += 1
            continue
        notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                             "language_info": {"name": "python"}}
        if store:
            smaller(notebook)
            nbformat.write(notebook, path)
        length = len(nbformat.writes(notebook))
        if store and length > MOST_BYTES:
            print(f"FAIL {path.name}: {length} bytes with its outputs, at most {MOST_BYTES} expected")
            bad += 1
            continue
        print(f"ok   {path.name}: {time.monotonic() - began:.0f} s, {length // 1000} kB", flush=True)
        good += 1
    print(f"{good} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
