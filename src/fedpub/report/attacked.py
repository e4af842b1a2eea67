"""What `fedpub attack` has found about runs, for the page: attacks beside each other, plain and secure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpub.core.printable import printable
from fedpub.report.load import Complain, Loaded

FILE, FORMAT = "attack.json", "fedpub-attack-1"
TEXTS = ("attack", "learnt", "measure", "sentence", "verdict")
NUMBERS = ("score", "guess", "worst")


def sections(runs: Sequence[Loaded], complain: Complain) -> list[dict[str, Any]]:
    """One for every run that was attacked: in its folder, or in that of its coordinator around it."""
    found = []
    for one in runs:
        for file in (one.path / FILE, one.path.parent / FILE):
            if file.is_file():
                try:
                    found.append({"label": one.label, "seed": one.experiment.seed, "place": one.place, **_read(file)})
                except (OSError, ValueError, KeyError, TypeError) as error:
                    complain(f"{file} cannot be read ({error}); attack the run again")
                break
    return found


def _read(file: Path) -> dict[str, Any]:
    held = json.loads(file.read_text(encoding="utf-8"))
    if held["format"] != FORMAT:
        raise ValueError(f"its format is {held['format']!r}")
    findings = [
        {name: printable(one[name], 1000) for name in TEXTS} | {name: _number(one[name]) for name in NUMBERS}
        for one in held["findings"]
    ]
    told = {name: printable(held[name], 1000) for name in ("command",)}
    return {**told, "secure": bool(held["secure"]), "rounds": int(held["rounds"]), "findings": findings}


def _number(value: object) -> float | None:
    if value is not None and not isinstance(value, float | int):
        raise TypeError(f"{value!r} is not a number")
    return value
