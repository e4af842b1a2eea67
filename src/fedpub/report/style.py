"""How methods look: one colour, dash and marker each, in the page, in figures, in notebooks and in the paper's recipes.

A method's look follows from its position in `METHODS`; no method has an entry here. The ten colours are Okabe and
Ito's, moved until any two of them differ by at least 10 (CIEDE2000) for normal, deuteranopic and protanopic eyes, and
by at least 18 if two methods of the package share a dash; `tests/report/test_style.py` measures it. The dashes repeat
every three places and the colours every ten, so the first thirty looks differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpub.algorithms import METHODS, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# On a light and on a dark background, in the order of the methods.
COLOURS = (
    "#7b7a74", "#0871b0", "#09aef6", "#da9702", "#1ea36b", "#512800", "#d17bbc", "#000000", "#d54412", "#651157",
)  # fmt: skip
DARK_COLOURS = (
    "#80807e", "#5a8db2", "#b4e4ff", "#fcb31d", "#13c69a", "#fef58b", "#eea4c8", "#fffcfc", "#fe5a35", "#bd73ff",
)  # fmt: skip
DASHES: tuple[tuple[float, ...], ...] = ((4.0, 1.6), (1.2, 1.2), ())  # lengths on and off in line widths; () is solid
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GUIDE = "#888888"  # for lines that belong to no method

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "serif",
    "mathtext.fontset": "dejavuserif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a name is printed as such
    "lines.linewidth": 1.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # text stays text in the PDF
    "svg.hashsalt": "fedpub",  # the same runs give the same file
}


@dataclass(frozen=True)
class Look:
    """A position in the palette."""

    place: int

    @property
    def colour(self) -> str:
        return COLOURS[self.place % len(COLOURS)]

    @property
    def dash(self) -> tuple[float, ...]:
        return DASHES[self.place % len(DASHES)]

    @property
    def marker(self) -> str:
        return MARKERS[self.place % len(MARKERS)]

    @property
    def line(self) -> dict[str, Any]:
        """For matplotlib's `plot`."""
        return {"color": self.colour, "linestyle": (0, self.dash) if self.dash else "-"}


def method_of(label: str) -> str:
    """The method that a label names or titles; a variant follows in parentheses, as in `fedpub (tau=5.0)`."""
    name = label.partition(" (")[0]
    return next((method for method in METHODS if title_of(method) == name), name)


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """The look of every label: a method's own for its first variant, unused looks and colours for the others."""
    labels, order = list(labels), list(METHODS)
    found: dict[str, Look] = {}
    for label in labels:
        method = method_of(label)
        if method in order and (own := Look(order.index(method))) not in found.values():
            found[label] = own
    for label in labels:
        if label not in found:
            found[label] = _free(list(found.values()))
    return {label: found[label] for label in labels}


def _free(taken: Sequence[Look]) -> Look:
    colours = [look.colour for look in taken]
    every = len(COLOURS) * len(DASHES)
    free = [look for look in map(Look, range(len(METHODS), len(METHODS) + every)) if look not in taken]
    return min(free, key=lambda look: (colours.count(look.colour), look.place))


def colour_variables(colours: Sequence[str] = COLOURS) -> str:
    """The palette as CSS variables, `--m0` to `--m9`."""
    return " ".join(f"--m{place}: {colour};" for place, colour in enumerate(colours))


def label_ends(panel: Axes, ends: Mapping[str, tuple[float, float, str]], size: float = 7.0) -> None:
    """Label lines to the right of the panel, at their last points (x, y, colour); labels are moved apart to be legible.

    Call it after all lines are drawn: it fixes the range of the values.
    """
    low, high = panel.get_ylim()
    panel.set_ylim(low, high)
    height = panel.get_window_extent().height * 72 / panel.figure.dpi  # in points, as `size` is
    wanted = {label: (y - low) / (high - low) for label, (_, y, _) in ends.items()}
    for label, place in zip(wanted, apart(list(wanted.values()), 1.15 * size / height), strict=True):
        x, y, colour = ends[label]
        panel.annotate(
            label,
            (x, y),
            (1.03, place),
            textcoords=panel.transAxes,
            color=colour,
            fontsize=size,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4, "shrinkA": 0, "relpos": (0, 0.5)},
        )


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions as near as possible to those wanted, in the same order and at least `gap` apart."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    groups: list[tuple[float, int]] = []  # the middle of a group, and its size
    for index in order:
        groups.append((wanted[index], 1))
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            (upper, above), (lower, below) = groups.pop(), groups.pop()
            groups.append(((upper * above + lower * below) / (above + below), above + below))
    places = [middle + gap * (step - (count - 1) / 2) for middle, count in groups for step in range(count)]
    return [place for _, place in sorted(zip(order, places, strict=True))]
