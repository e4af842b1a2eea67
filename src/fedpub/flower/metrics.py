"""Numbers about a running process, as Prometheus reads them: text format 0.0.4.

Every label has few values: those that are declared with it, and `other`. So nothing that another machine sends makes
the number of series grow.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4"
OTHER = "other"


@dataclass(frozen=True)
class Family:
    """A metric: its name, its help, and its labels with the values that they may have."""

    name: str
    help: str
    labels: Mapping[str, tuple[str, ...]] | None = None

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"

    def key(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The values of the labels in their order; values that were not declared are one."""
        declared = self.labels or {}
        if labels.keys() != declared.keys():
            raise ValueError(f"{self.name} has the labels {sorted(declared)}, not {sorted(labels)}")
        return tuple(labels[name] if labels[name] in values else OTHER for name, values in declared.items())


class Metrics:
    """Families of numbers that any thread may change, and their text."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = {one.name: one for one in families}
        self._values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in self._families}
        self._asked: dict[str, Callable[[], float | None]] = {}
        self._lock = threading.Lock()
        for one in self._families.values():  # counters begin at 0, so that the first event is an increase
            if one.kind == "counter":
                for key in _keys(one):
                    self._values[one.name][key] = 0.0

    def set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._values[name][self._families[name].key(labels)] = value

    def add(self, name: str, by: float = 1.0, **labels: str) -> None:
        """Increase a counter."""
        if by < 0:
            raise ValueError(f"{name} cannot decrease, by {by}")
        with self._lock:
            values, key = self._values[name], self._families[name].key(labels)
            values[key] = values.get(key, 0.0) + by

    def ask(self, name: str, value: Callable[[], float | None]) -> None:
        """A number that is only known when it is asked for; None: unknown at the moment."""
        self._families[name].key({})
        self._asked[name] = value

    def text(self) -> str:
        """All families, with their help and kind before the values."""
        found = {name: value for name, asked in self._asked.items() if (value := asked()) is not None}
        lines = []
        with self._lock:
            for name, one in self._families.items():
                values = self._values[name] | ({(): found[name]} if name in found else {})
                if values:
                    lines += [f"# HELP {name} {_escaped(one.help, quoted=False)}", f"# TYPE {name} {one.kind}"]
                    lines += [f"{name}{_labels(one, key)} {_number(value)}" for key, value in values.items()]
        return "".join(f"{line}\n" for line in lines)


def _keys(one: Family) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = [()]
    for values in (one.labels or {}).values():
        keys = [(*key, value) for key in keys for value in values]
    return keys


def _labels(one: Family, key: tuple[str, ...]) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(one.labels or {}, key, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str, quoted: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


PROCESS = (
    Family("process_resident_memory_bytes", "Memory of this process that is in RAM."),
    Family("process_open_fds", "Open file descriptors of this process."),
)


def watch_process(metrics: Metrics) -> None:
    """Memory and file descriptors, as other programs name them; unknown where there is no /proc."""
    metrics.ask("process_resident_memory_bytes", _memory)
    metrics.ask("process_open_fds", _descriptors)


def _memory() -> float | None:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return float(int(pages) * os.sysconf("SC_PAGE_SIZE"))


def _descriptors() -> float | None:
    try:
        return float(len(os.listdir("/proc/self/fd")))
    except OSError:
        return None
