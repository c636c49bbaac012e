"""How the notebooks' figures look: quiet axes, colours that stay apart, also for the
colour-blind."""

import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#2f6db3", "#e58a1f", "#2a9d7c", "#c9483b", "#7b5fb0", "#8a919c"
COLOURS = [BLUE, ORANGE, GREEN, RED, PURPLE, GREY]
PAPER, INK = "#ffffff", "#22272e"
HEAT = LinearSegmentedColormap.from_list("heat", ["#f4f6fa", "#a9c6e8", "#2f6db3", "#12305c"])
BOTH = LinearSegmentedColormap.from_list("both", ["#c9483b", "#f0c3ae", "#fbfbfb", "#a9c6e8", "#2f6db3"])


def style():
    plt.rcParams.update({
        "figure.dpi": 84, "figure.facecolor": PAPER, "figure.constrained_layout.use": True, "axes.facecolor": PAPER,
        "axes.edgecolor": "#aeb4bd", "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.titlesize": 11,
        "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelsize": 9.5, "axes.grid": True,
        "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "grid.color": "#e8ebf0",
        "xtick.color": "#5b626c", "ytick.color": "#5b626c", "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
        "text.color": INK, "font.size": 9.5, "legend.frameon": False, "legend.fontsize": 8.5, "lines.linewidth": 1.9,
        "axes.prop_cycle": plt.cycler(color=COLOURS), "image.cmap": "potluck_heat", "image.interpolation": "nearest"})


def bare(*axes):
    """For pictures: no ticks, no grid, no frame."""
    for a in axes:
        a.set_xticks([])
        a.set_yticks([])
        a.grid(False)
        for side in a.spines.values():
            side.set_visible(False)


def tiles(pictures, titles=None, columns=8, size=1.25):
    """A sheet of pictures (n, height, width, 3)."""
    rows = -(-len(pictures) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(size * columns, rows * (size + (0.22 if titles else 0))),
                                squeeze=False)
    bare(*axes.flat)
    for i, picture in enumerate(pictures):
        axes.flat[i].imshow(picture, interpolation="nearest")
        if titles:
            axes.flat[i].set_title(titles[i], fontsize=7.5, fontweight="normal", loc="center")
    return figure


def losses(runs, *columns):
    """Held-out loss of some laboratory runs (lab.py) against each of these: samples, bytes, time."""
    labels = {"samples": "samples of all peers", "bytes": "bytes sent by all peers", "time": "virtual time, s"}
    figure, axes = plt.subplots(1, len(columns), figsize=(4.6 * len(columns), 3.2), sharey=True, squeeze=False)
    for axis, column in zip(axes.flat, columns):
        for run in runs:
            axis.plot(getattr(run, column)[1:], run.loss[1:], label=run.name)
        axis.set(xlabel=labels[column], xscale="linear" if column == "samples" else "log")
    axes[0, 0].set_ylabel("held-out loss, nats a token")
    axes[0, -1].legend()
    return figure


def timelines(runs, until):
    """Who computes and who waits, in the first seconds of some laboratory runs; below them the exchanges."""
    colours = {"computes": GREEN, "waits": "#e6c34d", "downloads": BLUE, "away": "#dddddd"}
    figure, axes = plt.subplots(len(runs), 1, figsize=(9.2, 1.35 * len(runs)), sharex=True, squeeze=False)
    for axis, run in zip(axes.flat, runs):
        rows = len(run.peers)
        bars = [(e["peer"], e["from"], e["to"], colours[e["state"]]) for e in run.spent]
        bars += [(rows, e["from"], e["to"], RED if e["failed"] else PURPLE) for e in run.exchanged]
        for row, begin, end, colour in bars:
            if begin < until:
                axis.barh(row, min(end, until) - begin, left=begin, color=colour, height=0.75)
        axis.set(title=run.name, yticks=range(rows + 1), yticklabels=[*(f"peer {k}" for k in range(rows)), "exchange"], xlim=(0, until))
        axis.invert_yaxis()
        axis.grid(False)
    axes[-1, 0].set_xlabel("virtual time, s: computes (green), waits (yellow), exchange under way (violet; red: it fails)")
    return figure


plt.colormaps.register(HEAT, name="potluck_heat", force=True)
