"""Runs and comparisons in a notebook: data frames, figures, short texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpub.algorithms import has_all_data
from fedpub.api.frames import data_frame, html_table, pandas
from fedpub.api.graphs import Place, given_graph, load_graph
from fedpub.api.plots import plot_comparison, plot_run
from fedpub.core.tensor_files import read_tensors
from fedpub.core.tree import Tree
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.plan import OBJECT, Plan
from fedpub.experiment.prepare import Prepared, prepare, with_sets
from fedpub.models import Model
from fedpub.report.compared import best_in, cell_name
from fedpub.report.text import number, percent, spread, titled
from fedpub.runs.comparison import Cell, Score, baselines, scores
from fedpub.runs.comparison import Run as Compared
from fedpub.store.model_card import ModelCard
from fedpub.store.record import SUMS, Record, baseline_of, not_above, of_all
from fedpub.store.run_models import client_number, model_of_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished run: its measurements, the personal models, and figures of both."""

    experiment: Experiment
    summary: dict[str, Any]
    record: Record
    path: Path
    """Its directory; without `out` a temporary one, deleted with this object."""
    temporary: bool = False
    data_root: Path | None = None
    own: Model | None = None
    """The model, if it was an object."""

    @property
    def method(self) -> str:
        return self.experiment.method.removeprefix(OBJECT)

    @property
    def test(self) -> float | None:
        """The mean test value over the clients at the round with the best validation, by the task's metric."""
        value: float | None = self.summary["test"]
        return value

    @property
    def rounds(self) -> DataFrame:
        """A row per round: means over the clients, and total bytes sent."""
        rows = [
            {"round": row.round, "seconds": row.seconds}
            | {name: row.mean(name) for name in row.means}
            | {name: int(sum(row.clients[name])) for name in SUMS}
            for row in self.record.rows
        ]
        return data_frame(rows)

    @property
    def clients(self) -> DataFrame:
        """A row per round and client; of a deployed secure run, where only means are known, one of all clients."""
        together = of_all(self.experiment.secure, self.record.rows)
        rows = [
            {"round": row.round, "client": "all" if together else client} | dict(zip(row.clients, values, strict=True))
            for row in self.record.rows
            for client, values in enumerate(zip(*row.clients.values(), strict=True))
        ]
        return data_frame(rows)

    @property
    def relations(self) -> dict[str, np.ndarray]:
        """Relations between clients as the server saw them, [round, client, client]; NaN for absent clients.

        For FED-PUB and FED-PUB-plus these are `similarity`, and `alpha`: row i has the weights of all clients in the
        average that client i receives.
        """
        file = self.path / "relations.safetensors"
        return {name: found.numpy() for name, found in read_tensors(file)[0].items()} if file.is_file() else {}

    def model(self, client: int | str) -> tuple[Tree, ModelCard]:
        """A client's personal weights at the best round, and the card that describes them."""
        return model_of_run(self.path, client, self.data_root, self.own)

    def module(self, client: int | str) -> torch.nn.Module:
        """A client's personal model as a PyTorch module of PyG's layers, with `forward(x, edge_index, edge_weight)`.

        Masks are multiplied into the weights. If the model was a module, it is a copy of that one.
        """
        from fedpub.models.layers import pyg_module

        weights, card = self.model(client)
        return pyg_module(card.net(self.own), weights)

    def state_dict(self, client: int | str) -> dict[str, torch.Tensor]:
        """The parameters of `module` by their names in PyG's layers."""
        return dict(self.module(client).state_dict())

    def confusion(self, client: int | str) -> DataFrame:
        """The test nodes of a client by true class (rows) and the class that its kept model predicts (columns).

        Of two classes, the second is predicted above the threshold that was chosen on its validation nodes, which is in
        the card of its `model`.
        """
        card = self.model(client)[1]
        if card.confusion is None:
            raise FedpubError(
                f"{self.path} has no confusion matrices: it classifies no nodes, or is of another version"
            )
        names = list(card.classes)
        found: DataFrame = pandas().DataFrame(card.confusion, index=names, columns=names)
        return found.rename_axis(index="true", columns="predicted")

    def nodes(self, client: int | str) -> np.ndarray:
        """The numbers of a client's own nodes in the graph of this run, [N]."""
        ready = self._prepared()[1]
        return ready.partition.nodes[self._number(client, ready)].numpy()

    def embeddings(self, client: int | str, graph: Place | Graph | Any = None) -> np.ndarray:
        """A client's hidden values before the output layer for its own nodes, in the order of `nodes`, or for all nodes
        of a graph, [N, H]; the outputs themselves if links are predicted."""
        import fedpub.runs.prediction as predicting

        ready = self._prepared()[1]
        number = self._number(client, ready)
        weights, card = model_of_run(self.path, number, self.data_root, self.own, ready.graph)
        asked, rows = self._asked(number, graph, ready)
        return predicting.embeddings(weights, card, asked, self.own)[rows].numpy()

    def predictions(self, client: int | str | None = None, graph: Place | Graph | Any = None) -> DataFrame:
        """Predicted classes and their probabilities, as `fedpub.predict` gives them: of every client for its own nodes,
        of one client, or for all nodes of a graph. The column `client` has the client's number."""
        import fedpub.runs.prediction as predicting

        plan, ready = self._prepared()
        if plan.task.of_pairs:
            raise FedpubError("this run predicts links, not classes; ask fedpub.predict about pairs= of nodes")
        everyone = range(ready.partition.num_clients) if client is None else [self._number(client, ready)]
        frames = []
        for one in everyone:
            weights, card = model_of_run(self.path, one, self.data_root, self.own, ready.graph)
            asked, rows = self._asked(one, graph, ready)
            frame = predicting.table_of(predicting.predict(weights, card, asked, own=self.own)).to_pandas().iloc[rows]
            frame.insert(0, "client", one)
            frames.append(frame)
        found: DataFrame = pandas().concat(frames, ignore_index=True)
        return found

    def _prepared(self) -> tuple[Plan, Prepared]:
        """The data of this run, which depends neither on the method nor on the model."""
        # Any method and model will do; hops takes every setting of a model, and every kind of edges.
        given = replace(self.experiment, method="local", options={}, secure=False, embedding_noise=0.0)
        plan = replace(given, model="hops").resolve()
        return plan, prepare(plan, self.data_root)

    def _number(self, client: int | str, ready: Prepared) -> int:
        names = ready.graph.client_names if self.experiment.scenario == "natural" else ()
        return client_number(client, ready.partition.num_clients, names, self.path)

    def _asked(self, client: int, graph: Place | Graph | Any, ready: Prepared) -> tuple[Graph, Any]:
        """The graph that a client's model is given, and which of its nodes are answered."""
        if graph is not None:
            given = given_graph(graph, labelled=False)
            known = given if isinstance(given, Graph) else load_graph(given, self.data_root, labelled=False)
            return known, slice(None)
        own = ready.partition.nodes[client]
        if has_all_data(self.experiment.method):
            return ready.graph, own.numpy()
        return ready.graph.subgraph(own), slice(None)

    def to_pyg(self, client: int | None = None) -> Any:
        """The graph as a PyG `Data`, with the number of each node's client and the masks; or one client's part of it.

        There are no numbers if clients overlap, and no masks if links are predicted.
        """
        plan, ready = self._prepared()
        count, graph = ready.partition.num_clients, ready.graph
        if client is not None and not 0 <= client < count:
            raise FedpubError(f"client {client} is not one of the {count} clients of this run; give 0 to {count - 1}")
        held = torch.cat(ready.partition.nodes)
        owner_N: torch.Tensor | None = None
        if len(torch.unique(held)) == len(held):
            owner_N = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
            for number, own in enumerate(ready.partition.nodes):
                owner_N[own] = number
        data = replace(graph, client=None, client_names=(), split=None).to_pyg()
        if owner_N is not None:
            data.client = owner_N
        if (chosen := plan.task.masks(with_sets(plan, graph), plan.data_seed, plan.ratios)) is not None:
            data.train_mask, data.val_mask, data.test_mask = chosen
        return data if client is None else data.subgraph(ready.partition.nodes[client])

    def plot(self, kind: str = "convergence") -> Figure:
        """A matplotlib figure, shown as the value of a cell or saved with savefig.

        convergence: validation and test by round; clients: every client's test value; similarity: relations between
        clients in the last round; alpha: the weights of all clients in each client's average.
        """
        return plot_run(self, kind)

    @property
    def title(self) -> str:
        """Method, graph and clients in a few words."""
        what = self.experiment
        count = len(self.summary["per_client_test"]) or what.clients
        clients = f", {count} clients" if count else ""  # of a deployed secure run only the sites know
        return f"{titled(self.method)} on {Path(what.dataset).stem}, {what.scenario}{clients}"

    def _facts(self) -> dict[str, str]:
        found = self.summary
        beside = baseline_of(found)
        worse = beside and not_above(found["test"], beside) and f"not above the baseline, {beside[0]}"
        facts = {
            f"test {found['metric']}": percent(found["test"]) + (f" ({worse})" if worse else ""),
            **({beside[0]: percent(beside[1])} if beside else {}),
            "validation": f"{percent(found['val'])}, best at round {found['best_round']} of {found['rounds']}",
            "worst client": _worst(found),
            "zeros in the weights": percent(found["sparsity"]),
            "sent up, down": f"{found['bytes_up'] / 1e6:,.1f} MB, {found['bytes_down'] / 1e6:,.1f} MB",
            "time": f"{found['seconds']:.1f} s",
        }
        return facts if self.temporary else facts | {"kept in": str(self.path)}

    def __repr__(self) -> str:
        said = "; ".join(f"{heading} {text}" for heading, text in self._facts().items())
        return f"Run of {self.title}: {said}."

    def _repr_html_(self) -> str:
        return html_table(f"Run of {self.title}", [], list(self._facts().items()))


def _worst(summary: dict[str, Any]) -> str:
    if summary["worst_client"] is None:
        return "not known"
    return f"{percent(summary['worst_client_test'])} (client {summary['worst_client']})"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Several methods on the same data and seeds."""

    runs: Sequence[Compared]
    """The summary of every run, with its cell (graph and clients), method and seed."""

    @property
    def table(self) -> DataFrame:
        """A row per cell and method, in percent; p-values are over the seeds of a cell, against the first method, as
        defined in `fedpub.runs.significance`; `baseline` is the value of predicting each client's majority class."""
        rows: list[dict[str, Any]] = []
        for cell, lines in self._scores().items():
            clients = next(len(one.summary["per_client_test"]) for one in self.runs if one.cell == cell)
            own = {"dataset": Path(cell.dataset).stem, "scenario": cell.scenario, "clients": clients}
            for line in lines:
                test, deviation = line.cells[0]
                # A single seed has no deviation.
                row = own | {
                    "method": line.method,
                    "test": test,
                    "deviation": np.nan if deviation is None else deviation,
                }
                row |= {"baseline": beside[1].get(cell, np.nan) if (beside := baselines(self.runs)) else np.nan}
                names = ("p_value", "better_than_local", "worst_client", "sparsity", "megabytes_up", "seconds")
                rows.append(row | {name: getattr(line, name) for name in names})
        return data_frame(rows)

    def plot(self) -> Figure:
        """The mean test value of every method, with the deviation over seeds: a matplotlib figure, a panel per cell."""
        return plot_comparison(self._scores(), self._metric)

    def _scores(self) -> dict[Cell, list[Score]]:
        cells = dict.fromkeys(one.cell for one in self.runs)
        return {cell: scores([one for one in self.runs if one.cell == cell]) for cell in cells}

    @property
    def _metric(self) -> str:
        return str(self.runs[0].summary["metric"])

    @property
    def _seeds(self) -> int:
        return len({one.seed for one in self.runs})

    def _lines(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """Headings and a row per method."""
        found = self._scores()
        by_method = zip(*found.values(), strict=True)
        rows = [(titled(lines[0].method), *(spread(*line.cells[0]) for line in lines)) for lines in by_method]
        if beside := baselines(self.runs):
            rows.append((beside[0], *(number(beside[1].get(cell)) for cell in found)))
        return ["method", *map(cell_name, found)], rows

    def _bold(self) -> set[tuple[int, int]]:
        """Rows and columns of the best entries."""
        return {
            (row, column)
            for column, lines in enumerate(self._scores().values(), 1)
            for row, line in enumerate(lines)
            if line.method in best_in(lines)[0]
        }

    def _title(self) -> str:
        seeds = f"mean and deviation over {self._seeds} seeds" if self._seeds > 1 else "one seed"
        return f"test {self._metric} in percent, {seeds}"

    def __repr__(self) -> str:
        headings, rows = self._lines()
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in (headings, *rows)]
        return "\n".join([f"Comparison: {self._title()}", *("  ".join(row).rstrip() for row in padded)])

    def _repr_html_(self) -> str:
        headings, rows = self._lines()
        return html_table(f"Comparison: {self._title()}", headings, rows, self._bold())
