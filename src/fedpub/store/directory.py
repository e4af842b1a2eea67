"""The measurements of a run, and the directory that keeps them.

config.json          the experiment; it can be run again from it
env.json             versions and machine, digests of the graph and of its partition
rounds.csv           a row per round: means over the clients
clients.csv          a row per round and client
relations.safetensors  relations between clients as the server saw them, per round (FED-PUB: similarity)
setup.safetensors    additions of set-up to every client's graph (FedGNN, FedSage+)
checkpoint/state.safetensors  server and clients after the last saved round
models.safetensors   every client's personal weights at the best round
details.json         of the kept models: confusion matrices of the test nodes, thresholds between two classes
summary.json         the result: test at the best round, as defined in `fedpub.core.best`

A finished run drops setup.safetensors and checkpoint/, which only a resumed run needs, unless told to keep them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedpub.core.files import append_text, remove_leftovers, write_text
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.core.tree import Tree, pack, tree, unpack
from fedpub.engine.rounds import Round, Snapshot
from fedpub.errors import FedpubError
from fedpub.store.record import SUMS, Record, Row
from fedpub.tasks.base import Details
from fedpub.version import __version__

MAX_RELATED = 256  # relations between more clients than this are not kept
FILES = (
    "config.json",
    "env.json",
    "rounds.csv",
    "clients.csv",
    "relations.safetensors",
    "setup.safetensors",
    "models.safetensors",
    "details.json",
    "summary.json",
)
RESTORE = {  # what to do if the data of a run has changed
    "graph": "restore the data it began with",
    "partition": "resume it on the machine it began on, or with the versions of pymetis and igraph in its env.json",
}


@dataclass
class RunDirectory:
    """A run on disk: created, appended to, checkpointed, and opened again."""

    path: Path
    record: Record = field(default_factory=Record)
    relations: dict[str, list[Tensor]] = field(default_factory=dict)

    @staticmethod
    def create(path: Path, config: str, graph: str, partition: str | None = None) -> RunDirectory:
        """A new run, with digests of its graph and partition, so that it is never resumed on other data."""
        RunDirectory.check_free(path)
        write_text(path / "config.json", config)
        digests = {"graph": graph} | ({} if partition is None else {"partition": partition})
        write_text(path / "env.json", json.dumps(environment() | digests, indent=2) + "\n")
        return RunDirectory(path)

    def check_data(self, graph: str, partition: str | None = None) -> None:
        """Raise an error unless the data is the same as when the run began."""
        try:
            began = json.loads((self.path / "env.json").read_text(encoding="utf-8"))
            pairs = [("graph", began.get("graph", graph), graph)]
            pairs += [("partition", began.get("partition", partition), partition)] if partition is not None else []
        except (OSError, ValueError, AttributeError):
            return  # killed before it was written: nothing was computed yet
        for what, then, now in pairs:
            if then != now:
                raise FedpubError(
                    f"the {what} of {self.path} has changed (digest {str(then)[:12]}, now {now[:12]}): "
                    f"{RESTORE[what]}, or start a new run in another directory"
                )

    @staticmethod
    def check_free(path: Path) -> None:
        """Raise an error unless a new run can be written to this path."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if (path / "config.json").is_file():
                raise FedpubError(f"{path} holds a run already: continue it with `resume`, or choose another `out`")
            what = "a folder with other files" if path.is_dir() else "a file"
            raise FedpubError(f"{path} is {what}; choose another `out`")

    @staticmethod
    def config(path: Path) -> str:
        """The text of a run directory's configuration."""
        try:
            return (path / "config.json").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FedpubError(
                f"{path} is not a run directory: it has no config.json that can be read; give an earlier run's `out`"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from computing in this directory."""
        try:
            import fcntl
        except ImportError:  # Windows has no such lock
            yield
            return
        with (self.path / "config.json").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise FedpubError(
                    f"{self.path} is in use by another process; wait for it, or choose another directory"
                ) from error
            yield

    @property
    def setup_file(self) -> Path:
        return self.path / "setup.safetensors"

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def summary(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FedpubError(
                f"{self.path / 'summary.json'} cannot be read ({error}); remove it and `resume` the run"
            ) from error
        return content

    def details(self) -> Details:
        """What was found out about the kept models; nothing in runs that kept none."""
        file = self.path / "details.json"
        try:
            content: Details = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except (OSError, ValueError) as error:
            raise FedpubError(f"{file} is damaged ({error}); start the run again in another directory") from error
        return content

    def append(self, measured: Round, seconds: float) -> Row:
        """Add a round's rows to the record and, at once, to the files."""
        row = Row.of(measured, seconds)
        self.record.append(row)
        for name, note in measured.notes.items():
            if note.dim() == 2 and len(row.clients["val"]) <= MAX_RELATED:
                whole = torch.full([len(row.clients["val"])] * 2, float("nan"))
                whole[measured.ids[:, None], measured.ids] = note.float()
                self.relations.setdefault(name, []).append(whole)
        self._write_rows([row], "a")
        if row.round & (row.round - 1) == 0:  # 1, 2, 4, 8, ...: early to look at, and rare enough to cost nothing
            self._write_relations()
        return row

    def _write_relations(self) -> None:
        if self.relations:
            stacked = {name: torch.stack(all_) for name, all_ in self.relations.items()}
            write_tensors(self.path / "relations.safetensors", stacked, {})

    def checkpoint(self, snapshot: Snapshot, best: Tree) -> None:
        """Save the state after a round in one file, which is replaced as a whole."""
        for name in ("rounds.csv", "clients.csv"):
            with (self.path / name).open("rb") as file:
                os.fsync(file.fileno())
        tensors = pack(snapshot.server, "server/") | pack(snapshot.clients, "clients/") | pack({"best": best})
        tensors |= {f"relations/{name}": torch.stack(all_) for name, all_ in self.relations.items()}
        # safetensors refuses tensors that share memory, as a server's view of a client's weights may.
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        write_tensors(self.path / "checkpoint" / "state.safetensors", tensors, {"round": str(snapshot.round)})

    def restore(self, device: torch.device) -> tuple[Snapshot | None, Tree]:
        """The last checkpoint, with the rows up to it; nothing if there is none yet."""
        remove_leftovers(self.path, FILES)
        remove_leftovers(self.path / "checkpoint", ("state.safetensors",))
        state = self.path / "checkpoint" / "state.safetensors"
        if not state.is_file():
            self._truncate(0)
            return None, {}
        try:
            flat, header = read_tensors(state)
        except FedpubError as error:
            raise FedpubError(f"{error}: remove it to start this run from its beginning") from error
        if "round" not in header:
            raise FedpubError(f"{state} is not a checkpoint of fedpub; remove it to start this run from its beginning")
        number = int(header["round"])
        flat = {name: tensor.to(device) for name, tensor in flat.items()}
        self._truncate(number)
        self.relations = {
            name.removeprefix("relations/"): list(stacked.cpu())
            for name, stacked in flat.items()
            if name.startswith("relations/")
        }
        parts = unpack({name: tensor for name, tensor in flat.items() if name.startswith("best/")})
        snapshot = Snapshot(number, unpack(flat, "server/"), unpack(flat, "clients/"))
        return snapshot, tree(parts.get("best", {}))

    def finish(self, summary: dict[str, Any], best: Tree, details: Details, keep_checkpoint: bool) -> None:
        """Write the result and any models with their details; files that only a resumed run needs are removed unless
        `keep_checkpoint`."""
        self._write_relations()
        self.keep(best, details, summary["best_round"])
        write_text(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")
        if not keep_checkpoint:
            shutil.rmtree(self.path / "checkpoint", ignore_errors=True)
            self.setup_file.unlink(missing_ok=True)

    def keep(self, best: Tree, details: Details, number: int) -> None:
        """Write the clients' models of a round, if there are any, and their details."""
        if best:
            write_tensors(self.path / "models.safetensors", best, {"round": str(number)})
        if details:
            write_text(self.path / "details.json", json.dumps(details) + "\n")

    def _truncate(self, last: int) -> None:
        """Drop the rows after a round, which will be computed again."""
        self.record = Record([row for row in read_rows(self.path) if row.round <= last])
        if len(self.record.rows) != last:
            raise FedpubError(
                f"{self.path / 'clients.csv'} has {len(self.record.rows)} of the {last} rounds that the checkpoint "
                "covers: the file is damaged; start the run again in another directory"
            )
        self._write_rows(self.record.rows, "w")

    def _write_rows(self, rows: list[Row], mode: str) -> None:
        texts = {"rounds.csv": io.StringIO(), "clients.csv": io.StringIO()}
        write_round, write_client = (csv.writer(text, lineterminator="\n") for text in texts.values())
        for row in rows:
            if row.round == 1:
                write_round.writerow(["round", "seconds", *row.means, *SUMS])
                write_client.writerow(["round", "seconds", "client", *row.clients])
            sums = [int(sum(row.clients[name])) for name in SUMS]
            write_round.writerow([row.round, row.seconds, *(row.mean(name) for name in row.means), *sums])
            for client, values in enumerate(zip(*row.clients.values(), strict=True)):
                write_client.writerow([row.round, row.seconds, client, *values])
        for name, text in texts.items():
            if mode == "w":
                write_text(self.path / name, text.getvalue())
            else:
                append_text(self.path / name, text.getvalue())


def read_rows(path: Path) -> list[Row]:
    """The complete rounds in a run's clients.csv; a truncated last round is left out.

    The validation loss is NaN in runs of versions that did not record it.
    """
    file = path / "clients.csv"
    if not file.is_file():
        return []
    text = file.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]  # a last line without a newline was cut short
    header, *found = list(csv.reader(whole.splitlines())) or [[]]
    columns = header[3:]
    rows: dict[int, Row] = {}
    for line in found:
        if len(line) != len(header):
            break
        try:
            number, seconds = int(line[0]), float(line[1])
            values = [int(value) if value.lstrip("-").isdigit() else float(value) for value in line[3:]]
        except ValueError as error:
            raise FedpubError(f"{file} is damaged ({error}); start the run again in another directory") from error
        row = rows.setdefault(number, Row(number, seconds, {name: [] for name in columns}))
        for name, value in zip(columns, values, strict=True):
            row.clients[name].append(value)
    if "val" in columns and "val_loss" not in columns:
        at = columns.index("val") + 1
        for row in rows.values():
            known = list(row.clients.items())
            row.clients = dict([*known[:at], ("val_loss", [float("nan")] * len(row.clients["val"])), *known[at:]])
    complete = len(rows[1].clients["val"]) if 1 in rows else 0
    return [row for row in rows.values() if len(row.clients["val"]) == complete]


def environment() -> dict[str, Any]:
    """Versions and machine, to find out why a number differs."""
    from importlib import metadata

    packages = {}
    for name in ("torch", "torch-geometric", "numpy", "scipy", "pymetis", "igraph"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "fedpub": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": ["fedpub", *sys.argv[1:]],
    }
