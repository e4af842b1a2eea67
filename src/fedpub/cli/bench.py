"""The benchmark verbs: speed, traffic, and the harm done by a hostile client."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedpub.algorithms import METHODS
from fedpub.bench.aggregate import bench_aggregate
from fedpub.bench.engine import bench_engine, bench_methods, bench_models
from fedpub.bench.partition import bench_partition
from fedpub.bench.robust import Attacked, bench_robust, defences_of
from fedpub.bench.scale import bench_scale
from fedpub.bench.sparse import bench_sparse
from fedpub.bench.suite import bench_all
from fedpub.bench.timing import Timing
from fedpub.bench.wire import bench_wire
from fedpub.cli.show import STDOUT, JsonFile, as_json
from fedpub.runs.progress import say


def engine(
    dataset: str = "communities",
    scenario: str = "overlapping",
    clients: int = 50,
    methods: tuple[str, ...] = ("fedpub", "fedavg"),
    repeats: int = 7,
    device: str = "cpu",
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Seconds per round of the stacked engine, compared with a plain per-client loop with PyG layers in the same run.

    Example: fedpub bench engine --dataset communities --clients 10 --repeats 2

    Args:
        methods: Methods to time: fedpub, fedavg or both.
        repeats: Rounds to time after two warm-up rounds; the median counts.
    """
    found = bench_engine(dataset, scenario, clients, methods, repeats, device, data_root)
    show_timings(found, "times the PyG loop", json)


def methods(
    dataset: str = "communities",
    scenario: str = "disjoint",
    clients: int = 10,
    methods: tuple[str, ...] = tuple(METHODS),
    repeats: int = 15,
    device: str = "cpu",
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Seconds per round of every method, compared with FedAvg in the same run, and the seconds of its set-up.

    Example: fedpub bench methods --dataset communities --clients 5 --repeats 2 --methods fedavg fedgnn fedpub

    Args:
        repeats: Rounds to time after two warm-up rounds; the median counts.
    """
    found = bench_methods(dataset, scenario, clients, methods, repeats, device, data_root)
    show_timings(found, "times FedAvg's speed", json)


def models(
    dataset: str = "communities",
    scenario: str = "disjoint",
    clients: int = 10,
    method: str = "fedpub",
    models: tuple[str, ...] = ("twin", "gcn", "sage", "hops"),
    hidden: int = 64,
    repeats: int = 15,
    device: str = "cpu",
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Seconds per round of a method with every model, compared with the first model in the same run.

    Example: fedpub bench models --dataset communities --clients 5 --repeats 2 --models twin hops

    Args:
        method: Method.
        hidden: Width of the models.
        models: Models to time; the first is what the others are compared with.
        repeats: Rounds to time after two warm-up rounds; the median counts.
    """
    found = bench_models(dataset, scenario, clients, method, models, hidden, repeats, device, data_root)
    show_timings(found, f"times the speed of {found[0].versus}", json)


def aggregate(
    clients: tuple[int, ...] = (100, 1000),
    features: int = 64,
    neighbours: tuple[int, ...] = (16, 64),
    repeats: int = 5,
    device: str = "cpu",
    json: JsonFile = None,
) -> None:
    """Seconds of FED-PUB's server step over all clients, and over the most similar ones with the resulting error.

    Example: fedpub bench aggregate --clients 50 --repeats 1

    Args:
        clients: Numbers of clients.
        features: Number of input features.
        neighbours: Numbers of most similar clients.
        repeats: Steps to time after two warm-up steps; the median counts.
    """
    show_timings(bench_aggregate(clients, features, neighbours, repeats, device), "times all clients", json)


def partition(
    nodes: int = 200_000,
    edges: int = 1_000_000,
    clients: int = 20,
    scenarios: tuple[str, ...] = ("disjoint", "overlapping", "louvain", "random"),
    json: JsonFile = None,
) -> None:
    """Seconds to divide a large random graph among clients, and to compute the statistics of the partition.

    Example: fedpub bench partition --nodes 2000 --edges 8000 --clients 5

    Args:
        nodes: Number of nodes.
        edges: Number of edges drawn.
        scenarios: Divisions of the graph.
    """
    show_timings(bench_partition(nodes, edges, clients, scenarios), "", json)


def scale(
    clients: tuple[int, ...] = (100, 10_000),
    nodes: int = 100,
    features: int = 64,
    method: str = "fedpub",
    neighbours: int = 16,
    rounds: int = 3,
    max_memory: float = 8.0,
    json: JsonFile = None,
) -> None:
    """Seconds per client and round with few and with thousands of clients, within a given memory.

    Example: fedpub bench scale --clients 10 40 --nodes 30 --rounds 1

    Args:
        clients: Numbers of clients, compared with the smallest.
        nodes: Nodes per client.
        features: Features per node.
        method: Method: any that needs no set-up.
        neighbours: Neighbour count of FED-PUB.
        rounds: Rounds to time after one warm-up round; the fastest counts.
    """
    found = bench_scale(clients, nodes, features, method, neighbours, rounds, max_memory)
    show_timings(found, "times the speed per client", json)


def sparse(
    clients: int = 10,
    nodes: int = 1000,
    features: int = 1000,
    densities: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    repeats: int = 7,
    json: JsonFile = None,
) -> None:
    """Seconds of a first layer's products with sparse features, forward and backward, compared with dense ones.

    Example: fedpub bench sparse --nodes 50 --features 50 --densities 0.1 0.5 --repeats 1

    Args:
        nodes: Nodes per client.
        features: Features per node.
        densities: Shares of non-zeros.
        repeats: Products to time after two warm-up products; the median counts.
    """
    show_timings(bench_sparse(clients, nodes, features, densities, repeats), "times dense", json)


def wire(
    dataset: str = "communities",
    scenario: str = "disjoint",
    clients: int = 4,
    rounds: int = 100,
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Bytes that a site sends and receives in a round, from encoded messages, at several sparsities and precisions.

    Example: fedpub bench wire --clients 2 --rounds 2

    Args:
        clients: Number of sites.
        rounds: Number of rounds, of which the last is counted.
    """
    found = bench_wire(dataset, scenario, clients, rounds, data_root)
    table = Table(header_style="bold")
    for heading in ("", "precision", "zeros", "kB up", "kB down", "up, FedAvg = 1", "test", "seconds"):
        table.add_column(heading, justify="left" if heading in ("", "precision") else "right")
    for one in found:
        sizes = (f"{one.bytes_up / 1e3:,.1f}", f"{one.bytes_down / 1e3:,.1f}", f"{one.of_fedavg:.2f}")
        table.add_row(
            one.name, one.precision, f"{one.zeros:.0%}", *sizes, f"{100 * one.test:.2f}", f"{one.seconds:.2f}"
        )
    if not as_json(found, json):
        Console(highlight=False).print(table)


def deploy(
    dataset: str = "cora",
    sites: int = 4,
    method: str = "fedpub",
    rounds: int = 100,
    flower: int = 3,
    per_process: int = 1,
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Seconds per round of a federation on this machine, with TLS and keys, beside one process and `flwr run`.

    The overhead is what a round takes longer than the same messages in one process, in seconds; memory is that of the
    coordinator and its gate. `flwr run` has neither TLS nor keys here.

    Example: fedpub bench deploy --dataset communities --sites 2 --rounds 2 --flower 0

    Args:
        sites: Number of sites.
        method: Method.
        rounds: Communication rounds.
        flower: Rounds by `flwr run` in a Flower federation; 0 for none.
        per_process: Sites in one process, for large federations.
    """
    from fedpub.bench.deploy import bench_deploy

    found = bench_deploy(dataset, method, sites, rounds, flower, per_process, data_root, say)
    if as_json([one.to_json() for one in found], json):
        return
    table = Table(box=None, header_style="bold")
    for heading in ("", "sites", "rounds", "s / round", "overhead", "first after", "all after", "MiB"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for one in found:
        over = "" if one.overhead_seconds is None else f"{one.overhead_seconds:.3f}"
        times = (f"{one.seconds_per_round:.3f}", over, f"{one.first_round_seconds:.1f}", f"{one.total_seconds:.1f}")
        peaks = [size for size in (one.coordinator_bytes, one.gate_bytes) if size is not None]
        table.add_row(
            one.name, str(one.sites), str(one.rounds), *times, " + ".join(f"{size / 2**20:.0f}" for size in peaks)
        )
    Console(highlight=False).print(table)


def secure(
    dataset: str = "cora",
    sites: int = 10,
    method: str = "fedpub-plus",
    rounds: int = 30,
    per_process: int = 1,
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Seconds and bytes of a deployed round with secure aggregation, beside the same rounds without.

    Bytes are those of a site in a round, with all exchanges. FED-PUB has disjoint communities in both.

    Example: fedpub bench secure --dataset communities --sites 4 --rounds 2 --method fedavg

    Args:
        sites: Number of sites.
        method: Method.
        rounds: Communication rounds.
        per_process: Sites in one process, for large federations.
    """
    from fedpub.bench.secure import bench_secure

    found = bench_secure(dataset, method, sites, rounds, per_process, data_root, say)
    if as_json([one.to_json() for one in found], json):
        return
    table = Table(box=None, header_style="bold")
    for heading in ("", "sites", "weights", "rounds", "s / round", "times", "kB up", "kB down", "times up"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for one in found:
        seconds = (f"{one.seconds_per_round:.3f}", f"{one.over_plain:.2f}")
        sent = (f"{one.bytes_up / 1e3:,.1f}", f"{one.bytes_down / 1e3:,.1f}", f"{one.up_over_plain:.2f}")
        table.add_row(one.name, str(one.sites), f"{one.weights:,}", str(one.rounds), *seconds, *sent)
    Console(highlight=False).print(table)


def load(
    dataset: str = "cora",
    sites: int = 4,
    strangers: int = 500,
    seconds: float = 30.0,
    rounds: int = 30,
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Seconds per round of a federation before, while and after connections without a key crowd the coordinator's port.

    Example: fedpub bench load --dataset communities --sites 2 --strangers 20 --seconds 1 --rounds 3

    Args:
        sites: Number of sites.
        strangers: Connections at once: half-open, slow, oversized, and with wrong paths.
        seconds: Time for which they come.
        rounds: Rounds before and after.
    """
    from fedpub.bench.load import bench_load

    found = bench_load(dataset, sites, strangers, seconds, rounds, data_root)
    if as_json([one.to_json() for one in found], json):
        return
    table = Table("when", "rounds", "s / round", "slowest", "MiB of the gate", "refused so far", header_style="bold")
    for one in found:
        times = (f"{one.seconds_per_round:.3f}", f"{one.slowest_seconds:.3f}", f"{one.gate_bytes / 2**20:.0f}")
        table.add_row(one.when, str(one.rounds), *times, f"{sum(one.refused.values()):,}")
    Console(highlight=False).print(table)


def soak(
    out: Path = Path("runs/soak"),
    sites: int = 3,
    rounds: int = 2000,
    every: int = 20,
    looks: int = 10,
    seed: int = 0,
    json: JsonFile = None,
) -> None:
    """Memory and open files of a federation through a long run of a tiny model, with random faults.

    Sites, the gate and once the coordinator are killed, sites are stopped for a second, strangers connect.

    Example: fedpub bench soak --rounds 20 --every 8 --looks 2

    Args:
        out: New run directory.
        sites: Number of sites.
        rounds: Communication rounds.
        every: Rounds from one fault to the next, on average.
        looks: Number of looks at what the processes hold.
        seed: Random seed of the faults.
    """
    from fedpub.bench.soak import bench_soak

    found = bench_soak(out, sites, rounds, every, looks, seed)
    if as_json([one.to_json() for one in found], json):
        return
    table = Table(
        "round", "after s", "MiB: coordinator, gate, site", "open files", "faults so far", header_style="bold"
    )
    for one in found:
        names = [name for name in ("coordinator", "gate", "site") if name in one.bytes]
        sizes = ", ".join(f"{one.bytes[name] / 2**20:.1f}" for name in names)
        files = ", ".join(str(one.files[name]) for name in names)
        table.add_row(str(one.round), f"{one.seconds:.0f}", sizes, files, str(sum(one.faults.values())))
    Console(highlight=False).print(table)


def robust(
    dataset: str = "cora",
    scenario: str = "disjoint",
    clients: int = 10,
    methods: tuple[str, ...] = ("fedpub", "fedpub-plus", "fedavg"),
    attacks: tuple[str, ...] = (),
    defences: tuple[str, ...] = (),
    secure: bool = False,
    rounds: int = 60,
    seeds: tuple[int, ...] = (2, 3),
    data_root: Path | None = None,
    json: JsonFile = None,
) -> None:
    """Accuracy of the honest clients when one client attacks them, with every method, attack and defence.

    Example: fedpub bench robust --dataset communities --clients 5 --rounds 2 --methods fedavg --defences none default

    Args:
        clients: Number of clients, of which the first is hostile.
        methods: Methods: any that need no set-up.
        attacks: Attacks of the hostile client. (default: all)
        defences: Defences of the others. (default: all; with --secure those that each client has itself)
        secure: Secure aggregation, with attacks on sums too; FED-PUB with explicit communities.
        rounds: Communication rounds.
        seeds: Random seeds; the constants of the defences were chosen with 0 and 1.
    """
    found: list[Attacked] = []
    for one in bench_robust(dataset, scenario, clients, methods, attacks, defences, rounds, seeds, data_root, secure):
        found.append(one)
        if json != STDOUT:  # so that an interruption loses nothing
            as_json(found, json)
    if json == STDOUT:
        as_json(found, json)
        return
    table = Table("", "attack", *(defences or defences_of(secure)), header_style="bold")
    for method in methods:
        for attack in dict.fromkeys(one.attack for one in found):
            cells = [one for one in found if (one.method, one.attack) == (method, attack)]
            table.add_row(method, attack, *(f"{100 * one.accuracy:.1f}" for one in cells))
    Console(highlight=False).print(table)


def all_(quick: bool = False, device: str = "cpu", data_root: Path | None = None, json: JsonFile = None) -> None:
    """All documented benchmarks: the engine on Cora and Computers, aggregation, partition and scale.

    Example: fedpub bench all --quick

    Args:
        quick: A quick look, on small graphs that need no download.
        device: Compute device; partition and scale always use the CPU.
    """
    show_timings(bench_all(quick, device, data_root), "ratio", json)


def show_timings(found: list[Timing], heading: str, json: JsonFile) -> None:
    """Print a table without empty columns, and write the JSON file if asked for."""
    if as_json([one.to_json() for one in found], json):
        return
    columns: dict[str, list[str]] = {
        "what": [one.name for one in found],
        "clients": [str(one.clients) for one in found],
        "set-up s": [f"{one.setup_seconds:.1f}" if one.setup_seconds else "" for one in found],
        "s / round": [f"{one.seconds_per_round:.4f}" for one in found],
        heading: ["" if one.ratio is None else f"{one.ratio:.2f}" for one in found],
        "of the roofline": ["" if one.roofline is None else f"{one.roofline:.2f}" for one in found],
        "peak GiB": ["" if one.peak_bytes is None else f"{one.peak_bytes / 2**30:.2f}" for one in found],
        "": [one.note for one in found],
    }
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(*filled, header_style="bold")
    for row in zip(*filled.values(), strict=True):
        table.add_row(*row)
    Console(highlight=False).print(table)
