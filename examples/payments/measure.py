"""Tables of ten banks, their import, statistics, three rounds and predictions: seconds and peak memory of every step.

    python measure.py FOLDER --accounts 1000000 --format parquet

Prints a Markdown table. FOLDER holds all files afterwards; a step whose file exists already is done again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What the tables mean: a directed payment weighs its amount, and accounts are split by the day they were opened.
MEANING = (
    "--id account --label fraud --client bank --time opened --validation-from 2024-01-01 --test-from 2024-07-01 "
    "--missing age=mean income=mean --source payer --target payee --edge-weight amount --directed"
)
LEARNING = "--model hops --batch-size 8192 --metric average-precision --class-weights balanced"


def measured(*command: str) -> tuple[float, float]:
    """Seconds and GiB of a command, which must succeed."""
    start = time.monotonic()
    process = os.spawnvp(os.P_NOWAIT, command[0], command)
    _, status, used = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{shlex.join(command)} failed")
    return time.monotonic() - start, used.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description="What a graph of payments takes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accounts", type=int, default=100_000)
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    folder, kind = asked.folder, asked.format
    graph, run = str(folder / "payments.graph"), folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    os.environ["FEDPUB_CACHE"] = str(folder / "cache")  # so that every step is done
    shutil.rmtree(folder / "cache", ignore_errors=True)
    tables = [f"{folder / name}.{kind}" for name in ("accounts", "payments")]
    fedpub = (sys.executable, "-c", "import sys; from fedpub.cli import main; sys.exit(main())")
    imported = ("--nodes", tables[0], "--edges", tables[1], *MEANING.split(), "--out", graph, "--force", "--json")
    learnt = ("--method", "fedpub-plus", *LEARNING.split(), "--rounds", str(asked.rounds), "--out", str(run))
    of_bank_a = (
        "--model",
        str(run),
        "--client",
        "bank-a",
        "--graph",
        graph,
        "--out",
        str(folder / "predictions.parquet"),
    )
    size = ("--accounts", str(asked.accounts), "--format", kind)
    steps = {
        "tables": (sys.executable, str(HERE / "make_tables.py"), str(folder), *size),
        "import": (*fedpub, "data", "import", *imported),
        "partition, ten banks": (*fedpub, "data", "partition", "--dataset", graph, "--json"),
        "partition, METIS into ten": (*fedpub, "data", "partition", "--dataset", graph, "--clients", "10", "--json"),
        "statistics": (*fedpub, "data", "stats", "--dataset", graph, "--json"),
        f"{asked.rounds} rounds of FED-PUB-plus": (*fedpub, "run", "--dataset", graph, *learnt, "--quiet", "--json"),
        "predictions for all accounts": (*fedpub, "predict", *of_bank_a, "--quiet"),
    }
    lines = []
    for name, command in steps.items():
        seconds, memory = measured(*command)
        lines.append(f"| {name} | {seconds:.1f} | {memory:.1f} |")
    print("\n| step | seconds | peak memory, GiB |\n|---|---:|---:|\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
