"""One look per method, assigned by a rule and distinguishable for all readers; numbers as text."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedpub.algorithms import METHODS, FedAvg
from fedpub.report.page import page
from fedpub.report.style import COLOURS, DARK_COLOURS, DASHES, Look, apart, looks, method_of
from fedpub.report.text import best, markdown_table, p_value, percent, spread, titled, whole_percent

ANY, SAME_DASH = 10.0, 18.0  # CIEDE2000: of any two colours, and of two methods of the package with the same dash
CARD, DARK_CARD = "#ffffff", "#1b1f23"  # what the page draws on
# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
EYES = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.119192, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(colour: str, eyes: str = "normal") -> np.ndarray:
    ratio = TO_XYZ @ np.clip(np.asarray(EYES[eyes]) @ linear(colour), 0, 1) / WHITE
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def ciede2000(one: np.ndarray, other: np.ndarray) -> float:
    """Sharma, Wu and Dalal (2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_c = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean_c**7 / (mean_c**7 + 25.0**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    dl, dc, dh = l2 - l1, c2 - c1, 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    l, c = (l1 + l2) / 2, (c1 + c2) / 2  # noqa: E741
    h = h1 + h2
    if c1 * c2:
        h = h / 2 if abs(h1 - h2) <= 180 else (h + 360) / 2 if h < 360 else (h - 360) / 2
    cosine = lambda degrees: np.cos(np.radians(degrees))  # noqa: E731
    t = 1 - 0.17 * cosine(h - 30) + 0.24 * cosine(2 * h) + 0.32 * cosine(3 * h + 6) - 0.2 * cosine(4 * h - 63)
    sl = 1 + 0.015 * (l - 50) ** 2 / np.sqrt(20 + (l - 50) ** 2)
    sc, sh = 1 + 0.045 * c, 1 + 0.015 * c * t
    rc = 2 * np.sqrt(c**7 / (c**7 + 25.0**7))
    rt = -np.sin(np.radians(60 * np.exp(-(((h - 275) / 25) ** 2)))) * rc
    dl, dc, dh = dl / sl, dc / sc, dh / sh
    return float(np.sqrt(dl**2 + dc**2 + dh**2 + rt * dc * dh))


def distance(one: str, other: str) -> float:
    """For the kind of vision that distinguishes these colours least."""
    return min(ciede2000(lab(one, eyes), lab(other, eyes)) for eyes in EYES)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((float(TO_XYZ[1] @ linear(colour)) for colour in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [  # of the table with which Sharma, Wu and Dalal test implementations
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (50.0, 0.0, -2.5), 4.3065),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((50.0, 2.5, 0.0), (61.0, -5.0, 29.0), 22.8977),
        ((90.8027, -2.0831, 1.441), (91.1528, -1.6435, 0.0447), 1.4441),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_the_published_one(one, other, expected):
    assert ciede2000(np.array(one), np.array(other)) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("colours", [COLOURS, DARK_COLOURS], ids=["light", "dark"])
def test_all_eyes_tell_methods_apart(colours):
    every = range(len(COLOURS) * len(DASHES))
    near = {pair: distance(*(colours[place % len(colours)] for place in pair))
            for pair in combinations(every, 2) if Look(pair[0]).dash == Look(pair[1]).dash}  # fmt: skip
    assert min(near.values()) >= ANY
    own = {pair: value for pair, value in near.items() if max(pair) < len(METHODS)}
    assert len(own) > len(METHODS)
    assert min(own.values()) >= SAME_DASH, min(own, key=own.__getitem__)


def test_colours_are_seen_on_what_they_are_drawn_on():
    assert min(contrast(colour, CARD) for colour in COLOURS) >= 2.4
    assert min(contrast(colour, DARK_CARD) for colour in DARK_COLOURS) >= 4.0


def test_a_look_follows_from_the_order_of_the_methods(monkeypatch):
    """A method's look does not depend on the other methods shown; an additional method changes none."""
    every = looks(METHODS)
    assert [look.place for look in every.values()] == list(range(len(METHODS)))
    assert len({(look.colour, look.dash) for look in map(Look, range(30))}) == 30
    assert looks(["fedpub", "local"]) == {"fedpub": every["fedpub"], "local": every["local"]}
    monkeypatch.setitem(METHODS, "mine", FedAvg)
    assert looks([*METHODS])["mine"].place == len(every)
    assert {label: look for label, look in looks(METHODS).items() if label in every} == every


def test_variants_and_names_of_ones_own_get_free_looks():
    """The first variant has its method's look; the others get unused colours, as long as there are any."""
    assert method_of("fedpub (tau=5.0)") == "fedpub"
    found = looks(["local", "fedpub (tau=3.0)", "fedpub (tau=5.0)", "mine"])
    own = looks(METHODS)
    assert found["fedpub (tau=3.0)"] == own["fedpub"]
    assert len({look.colour for look in found.values()}) == 4
    assert not {found["fedpub (tau=5.0)"], found["mine"]} & set(own.values())
    assert len(set(looks([f"name {number}" for number in range(30)]).values())) == 30


def test_the_page_has_the_palette():
    text = page({"runs": []})
    for place, (light, dark) in enumerate(zip(COLOURS, DARK_COLOURS, strict=True)):
        assert f"--m{place}: {light};" in text
        assert f"--m{place}: {dark};" in text


def test_names_at_line_ends_are_moved_apart():
    assert apart([0.5, 0.1], 0.1) == [0.5, 0.1]
    assert apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert apart([0.9, 0.2, 0.21, 0.22], 0.1) == pytest.approx([0.9, 0.11, 0.21, 0.31])
    assert apart([], 0.1) == []


def test_numbers_as_text():
    assert [p_value(value) for value in (None, 0.0009, 0.001, 0.04)] == ["", "< 0.001", "0.001", "0.040"]
    assert [spread(81.846, 0.42), spread(81.846), spread(None, 0.1)] == ["81.85 ± 0.42", "81.85", ""]
    assert [percent(0.81846), percent(None), whole_percent(0.5), whole_percent(None)] == ["81.85 %", "none", "50 %", ""]
    assert titled("fedpub (tau=5.0)") == "FED-PUB (tau=5.0)"
    assert titled("my method") == "my method"
    assert markdown_table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_bold_is_the_best_of_its_cell():
    """All methods with the same decimals; never the oracle, and never a single method."""
    assert best({"local": 81.234, "fedpub": 81.231, "fedavg": 81.2, "oracle": 90.0}) == {"local", "fedpub"}
    assert best({"fedavg": None, "fedpub (tau=5.0)": 3.0, "gcfl": 2.0}) == {"fedpub (tau=5.0)"}
    assert best({"FED-PUB": 3.0, "Local": 2.0, "Oracle": 4.0}) == {"FED-PUB"}
    assert best({"fedpub": 3.0, "local": float("nan"), "oracle": 2.0}) == set(), "there is nothing to compare with"
    assert best({}) == set()
