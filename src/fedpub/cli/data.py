"""Verbs on data: list, stats, partition."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedpub.cli.show import as_json
from fedpub.data import datasets
from fedpub.data.clients.partition import Partition, cached_partition, default_scenario
from fedpub.data.clients.partition import partition as make_partition
from fedpub.data.clients.split import Origin, Ratios, Split, with_split, without_training
from fedpub.data.clients.split import split as make_split
from fedpub.data.clients.statistics import PartitionStatistics, partition_statistics
from fedpub.data.download import cache_folder
from fedpub.data.graph import Graph
from fedpub.runs.progress import steps


def list_(json: bool = False) -> None:
    """The graphs that are known by name; a file that `fedpub data import` wrote can be used in their place.

    Example: fedpub data list

    Args:
        json: Output as JSON.
    """
    rows = [{"dataset": name, "about": datasets.about(name)} for name in datasets.names()]
    if as_json(rows, json):
        return
    table = Table("dataset", "what it is", box=None, header_style="bold")
    for row in rows:
        table.add_row(row["dataset"], row["about"])
    Console().print(table)


def stats(
    dataset: str = "communities",
    scenario: str | None = None,
    clients: tuple[int, ...] = (),
    seed: int = 0,
    ratios: tuple[float, float, float] | None = None,
    split: Origin = "default",
    alpha: float = 0.5,
    json: bool = False,
    data_root: Path | None = None,
) -> None:
    """Statistics of the clients of a partition: size, clustering, heterogeneity, missing edges.

    Edges are counted in both directions, as in the paper. Heterogeneity is the Jensen-Shannon distance of the label
    distributions over all pairs of clients (median, and mean).

    Example: fedpub data stats --dataset communities --scenario disjoint --clients 5 10 20

    Args:
        scenario: Division of the graph among clients. (default: disjoint; natural without `clients`)
        clients: Numbers of clients; none for natural clients.
        seed: Random seed of partition and split.
        ratios: Shares of the nodes for training, validation and test. (default: 0.2 0.4 0.4; 0.05 0.475 0.475 for
            ogbn-arxiv)
        split: Sets of nodes: random, the graph's own, or the paper's (published); default is own if the graph has sets.
        alpha: Concentration of the dirichlet scenario: the smaller, the stronger the label skew.
        json: JSON list with one object per number of clients.
    """
    graph = datasets.load(dataset, data_root, features=False)
    chosen = _sets(graph, dataset, split, seed, ratios)
    found = []
    with steps(quiet=json) as step:
        for count in clients or (None,):
            step("partition", 0, None)
            parts = cached_partition(graph, scenario or default_scenario(count), count, seed, alpha)
            found.append(partition_statistics(graph, parts, chosen, step))
    if not as_json(found, json):
        show_statistics(found)


def partition(
    dataset: str = "communities",
    scenario: str | None = None,
    clients: int | None = None,
    seed: int = 0,
    ratios: tuple[float, float, float] | None = None,
    split: Origin = "default",
    alpha: float = 0.5,
    out: Path | None = None,
    json: bool = False,
    data_root: Path | None = None,
) -> None:
    """Divide a graph among clients and save the result.

    The file's name holds graph, scenario, number of clients and seed; the same call gives the same bytes.

    Example: fedpub data partition --dataset communities --scenario louvain --clients 10 --out partitions

    Args:
        scenario: Division of the graph among clients. (default: disjoint; natural without `clients`)
        clients: Number of clients; none for natural clients.
        seed: Random seed of partition and split.
        ratios: Shares of the nodes for training, validation and test. (default: 0.2 0.4 0.4; 0.05 0.475 0.475 for
            ogbn-arxiv)
        split: Sets of nodes: random, the graph's own, or the paper's (published); default is own if the graph has sets.
        alpha: Concentration of the dirichlet scenario: the smaller, the stronger the label skew.
        out: Folder for the file. (default: the cache folder)
    """
    graph = datasets.load(dataset, data_root, features=False)
    chosen = _sets(graph, dataset, split, seed, ratios)
    kind = scenario or default_scenario(clients)
    with steps(quiet=json) as step:
        step("partition", 0, None)
        if out is None:
            made = cached_partition(graph, kind, clients, seed, alpha)
        else:
            made = make_partition(graph, kind, clients, seed, alpha)
            made.save(out / made.file_name)
    training = [int(chosen.train[nodes].sum()) for nodes in made.nodes]
    file = (out or cache_folder() / "partitions") / made.file_name
    told = {"dataset": made.graph, "scenario": made.scenario, "clients": made.num_clients, "seed": made.seed}
    sizes = {"nodes": [len(nodes) for nodes in made.nodes], "training_nodes": training}
    if as_json({**told, **sizes, "file": file}, json):
        return
    show_partition(made, file, training)
    for client in without_training(made.nodes, chosen):
        Console().print(f"[yellow]client {client} has no training node: use fewer clients or a larger first ratio")


def show_statistics(found: list[PartitionStatistics]) -> None:
    graph = found[0].graph
    table = Table(title=f"{found[0].dataset}, {found[0].scenario}", title_justify="left", header_style="bold")
    for heading in ("", "whole graph", *(f"{one.clients} clients" for one in found)):
        table.add_column(heading, justify="left" if not heading else "right")

    def row(name: str, whole: str, cells: list[str]) -> None:
        table.add_row(name, whole, *cells)

    row("nodes", f"{graph.nodes:,}", [f"{_round(one.nodes):,}" for one in found])
    row("edges (both directions)", f"{graph.edges:,}", [f"{_round(one.edges):,}" for one in found])
    row("classes", str(graph.classes), [f"{one.classes_per_client:.1f}" for one in found])
    row("clustering coefficient", f"{graph.clustering:.3f}", [f"{one.clustering:.3f}" for one in found])
    row("heterogeneity, median", "", [f"{one.heterogeneity:.3f}" for one in found])
    row("heterogeneity, mean", "", [f"{one.heterogeneity_mean:.3f}" for one in found])
    row("missing edges, in all", "", [f"{one.missing_edges:,}" for one in found])
    row("isolated nodes", str(graph.isolated), [f"{one.isolated_nodes:.1f}" for one in found])
    row("training nodes, fewest to most", "", [f"{min(t):,} to {max(t):,}" for t in (o.training_nodes for o in found)])
    Console().print(table)
    for one in found:
        for client, count in enumerate(one.training_nodes):
            if not count:
                Console().print(f"[yellow]{one.clients} clients: client {client} has no training node")


def show_partition(made: Partition, file: Path, training: list[int]) -> None:
    sizes = [len(nodes) for nodes in made.nodes]
    Console().print(
        f"{made.graph}: {made.num_clients} {made.scenario} clients of {min(sizes):,} to {max(sizes):,} nodes, "
        f"{min(training):,} to {max(training):,} of them for training\n{file}",
        soft_wrap=True,
        highlight=False,
    )


def _sets(graph: Graph, dataset: str, origin: Origin, seed: int, ratios: Ratios | None) -> Split:
    graph = with_split(graph, origin, datasets.published_ratios(dataset), ratios)
    return make_split(graph, seed, ratios or datasets.split_ratios(dataset))


def _round(value: float) -> int:
    """Round half up, as in the paper's table."""
    return int(value + 0.5)
