"""All benchmarks, with the sizes that docs/performance.md reports."""

from __future__ import annotations

from pathlib import Path

from fedpub.bench.aggregate import bench_aggregate
from fedpub.bench.engine import bench_engine
from fedpub.bench.partition import bench_partition
from fedpub.bench.scale import bench_scale
from fedpub.bench.sparse import bench_sparse
from fedpub.bench.timing import Timing


def bench_all(quick: bool, device: str, root: Path | None) -> list[Timing]:
    """The engine on Cora and Computers, sparse products, aggregation, partition and scale; if quick, in small sizes."""
    both, kinds = ("fedpub", "fedavg"), ("disjoint", "overlapping", "louvain", "random")
    # Peak memory is that of the whole process: benchmarks with small needs come first.
    if quick:
        found = bench_engine("communities", "natural", 20, both, 3, device, root)
        found += bench_sparse(5, 50, 50, (0.1, 0.5), 1)
        found += bench_aggregate((50,), 64, (16,), 1, device)
        found += bench_partition(5_000, 25_000, 5, kinds)
        found += bench_scale((10, 100), 50, 64, "fedpub", 16, 1, 8.0)
    else:
        found = bench_engine("cora", "overlapping", 50, both, 9, device, root)
        found += bench_engine("cora", "disjoint", 10, both, 15, device, root)
        found += bench_engine("computers", "disjoint", 10, both, 7, device, root)
        found += bench_sparse(10, 1000, 1000, (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6), 7)
        found += bench_aggregate((100, 1000), 64, (16, 64), 5, device)
        found += bench_partition(200_000, 1_000_000, 20, kinds)
        found += bench_scale((100, 10_000), 100, 64, "fedpub", 16, 3, 8.0)
    return found
