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


plt.colormaps.register(HEAT, name="potluck_heat", force=True)
