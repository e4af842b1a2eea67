"""An artefact as files: the numbers as CSV, the table as Markdown, the figure as SVG and PDF."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedpub.core.files import atomic, write_text
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.paper.recipe import Artefact, Rows
from fedpub.paper.store import Job, Outcome, Outcomes, key
from fedpub.report.style import STYLE
from fedpub.report.text import markdown_table
from fedpub.store.record import Row

RUNS = "runs.csv.gz"  # every run as a line
LONG = 60  # rows above which a table is only linked, as data for a figure


# Shown above results whose models were selected by an earlier version.
EARLIEST = (
    "Measured with version 0.1.0, which kept the earliest of rounds with the same best mean validation value; since "
    "then the one with the lowest validation loss is kept ([how much that changes](../README.md#made-with-010))."
)


def write(
    artefact: Artefact, name: str, title: str, command: str, folder: Path, summaries: Iterable[Mapping[str, Any]] = ()
) -> list[Path]:
    """Write all files of an artefact, each atomically. The page says so if it uses runs of an earlier version."""
    if any("level_rounds" not in one for one in summaries):
        artefact = replace(artefact, above=EARLIEST)
    numbers, page = folder / data_file(artefact, name), folder / f"{name}.md"
    write_csv(numbers, artefact.header, artefact.rows)
    write_text(page, markdown(artefact, name, title, command))
    written = [numbers, page]
    if artefact.draw:
        written += _draw(artefact, folder / name)
    return written


def write_runs(jobs: Iterable[Job], found: Outcomes, folder: Path) -> Path:
    """Write one line for every run behind the artefacts, with its settings and its results."""
    header = ["key", *ASKED, "options", *MEASURED]
    rows = []
    for name, one in sorted({key(job.experiment): job for job in jobs}.items()):
        asked, measured = asdict(one.experiment), found[one].summary
        options = json.dumps(_unusual(one.experiment), sort_keys=True)
        rows.append([name, *(asked[field] for field in ASKED), options, *(measured.get(field) for field in MEASURED)])
    rows.sort(key=lambda row: [str(value).zfill(4) for value in row[1:]])
    write_csv(folder / RUNS, header, rows)
    return folder / RUNS


ASKED = (
    "task", "dataset", "scenario", "clients", "method", "model", "hidden", "dropout", "seed", "data_seed", "rounds",
    "epochs", "weight_decay", "hops", "layers", "secure",
)  # fmt: skip
MEASURED = (
    "test", "val", "val_loss", "best_round", "level_rounds", "majority", "weighted_test", "worst_client_test",
    "sparsity", "bytes_up", "bytes_down", "seconds",
)  # fmt: skip


class Listed(Outcomes):
    """The runs of an earlier `runs.csv.gz`, `folder`: the results of each, without rounds and clients."""

    def __getitem__(self, job: Job) -> Outcome:
        lines, asked = self._lines, asdict(job.experiment)
        options = json.dumps(_unusual(job.experiment), sort_keys=True)
        wanted = {field: "" if asked[field] is None else str(asked[field]) for field in ASKED} | {"options": options}
        found = [one for one in lines if all(one.get(name, value) == value for name, value in wanted.items())]
        if len(found) != 1:
            raise FedpubError(f"{self.folder} has {len(found)} runs of {wanted}; give the runs.csv.gz of this table")
        return ListedOutcome(self.folder, job.look, line=found[0])

    @cached_property
    def _lines(self) -> list[dict[str, str]]:
        try:
            return read_csv(self.folder)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise FedpubError(
                f"{self.folder} cannot be read ({error}); give a runs.csv.gz that fedpub reproduce wrote"
            ) from error


@dataclass(frozen=True, eq=False)
class ListedOutcome(Outcome):
    line: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> dict[str, Any]:
        return {name: float(self.line[name]) for name in MEASURED if self.line.get(name)}

    @property
    def rows(self) -> list[Row]:
        raise FedpubError(f"{self.path} has no rounds; without `listed` they are computed")


def _unusual(experiment: Experiment) -> dict[str, Any]:
    """The options that differ from the method's defaults."""
    usual = replace(experiment, options={}, secure=False).resolve().experiment.options
    return {name: value for name, value in experiment.options.items() if value != usual[name]}


def data_file(artefact: Artefact, name: str) -> str:
    return f"{name}.csv.gz" if artefact.packed else f"{name}.csv"


def write_csv(path: Path, header: Sequence[str], rows: Rows) -> None:
    """If the name ends in `.gz`, compressed and with seven digits; the same numbers give the same bytes."""
    packed, text = path.suffix == ".gz", io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        short = [float(f"{value:.7g}") if packed and isinstance(value, float) else value for value in row]
        writer.writerow(["" if value is None else value for value in short])
    with atomic(path) as temporary:
        data = text.getvalue().encode()
        temporary.write_bytes(gzip.compress(data, mtime=0) if packed else data)


def read_csv(path: Path) -> list[dict[str, str]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def markdown(artefact: Artefact, name: str, title: str, command: str) -> str:
    parts = [f"## {title}", f"```console\n{command}\n```", *([f"*{artefact.above}*"] if artefact.above else [])]
    if artefact.draw:
        parts.append(f"![{title}]({name}.svg)")
    parts += [_table(*one) for one in artefact.read]
    if not artefact.read and len(artefact.rows) <= LONG:
        parts.append(_table(artefact.header, artefact.rows))
    else:
        file = data_file(artefact, name)
        parts.append(f"{len(artefact.rows)} values: [{file}]({file})")
    return "\n\n".join([*parts, *([artefact.note] if artefact.note else [])]) + "\n"


def _table(header: list[str], rows: Rows) -> str:
    return markdown_table(header, [[shown(value) for value in row] for row in rows])


def shown(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3f}" if abs(value) < 2 else f"{value:.2f}"


def _draw(artefact: Artefact, stem: Path) -> list[Path]:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    assert artefact.draw is not None
    # The same figure gives the same bytes: no date, and names of SVG elements from a fixed salt.
    screen: dict[Any, Any] = {"svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]}
    screen |= {"font.size": 9, "axes.titlesize": 9}
    written = []
    with mpl.rc_context(STYLE | screen):
        figure = Figure(figsize=artefact.size, layout="constrained")
        FigureCanvasAgg(figure)
        artefact.draw(figure)
        for kind, metadata in (
            ("svg", dict.fromkeys(("Date", "Creator", "Format", "Type"))),
            ("pdf", {"CreationDate": None}),
        ):
            path = stem.with_name(f"{stem.name}.{kind}")
            with atomic(path) as temporary:
                figure.savefig(temporary, format=kind, metadata=metadata)
                if kind == "svg":
                    temporary.write_text(_shortened(temporary.read_text(encoding="utf-8")), encoding="utf-8")
            written.append(path)
    return written


def _shortened(svg: str) -> str:
    """Halve the file: coordinates in tenths of a point, no white space, no unused ids, no rotations by zero."""

    def shorter(found: re.Match[str]) -> str:
        tenths = re.sub(r"(\.\d)\d+", r"\1", found[0])
        return re.sub(r"\s+([A-Za-z])\s+", r"\1", tenths) if found[1] == "d" else tenths

    plain = re.sub(r' transform="rotate\(-0 [^"]*"|(?<=<g) id="[^"]*"', "", svg)
    return re.sub(r">\s+<", ">\n<", re.sub(r' (d|x|y|transform)="[^"]*"', shorter, plain))
