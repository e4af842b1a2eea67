"""The verb `demo`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fedpub.cli.compare import compare
from fedpub.cli.data import stats


def demo(out: Path | None = None, seeds: int = 3, quiet: bool = False, verbose: bool = False) -> None:
    """Train Local, FedAvg, FED-PUB and FED-PUB-plus on the built-in graph and compare them.

    Example: fedpub demo --seeds 1

    Args:
        out: Folder for run directories; without it none are kept.
        seeds: Number of seeds.
    """
    console = Console(highlight=False)
    console.print("The built-in graph: 20 clients in four communities that contradict each other.\n")
    stats("communities", "natural")
    console.print("\nTraining alone, with one averaged model, with FED-PUB and with FED-PUB-plus:\n")
    compare(("local", "fedavg", "fedpub", "fedpub-plus"), seeds=seeds, out=out, quiet=quiet, verbose=verbose)
    console.print("\nNext: fedpub run --help, fedpub data list, fedpub data import --help")
