"""Natural clients: Twitch users of seven countries, each country a client.

    python examples/twitch_countries.py                 # 100 rounds: about five minutes on two cores
    python examples/twitch_countries.py --rounds 5      # a quick look

The files (11 MB) are found in the folder that FEDPUB_DATA names, or are downloaded once. The label is whether a
streamer uses explicit language. Every country has its own friendships, so no edge is missing; what differs is who lives
there.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.runs.simulated import run

METHODS = ("local", "fedavg", "fedper", "fedpub")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    began = time.monotonic()
    base = Experiment(dataset="twitch", rounds=rounds)
    data = prepare(base.resolve())  # loaded and split once, for all methods
    sizes = [len(nodes) for nodes in data.partition.nodes]
    found = {}
    for method in METHODS:
        result = run(replace(base, method=method), prepared=data)
        found[method] = result.summary
        print(f"{method}: {100 * result.summary['test']:.2f} % after {time.monotonic() - began:.0f} s", flush=True)
    print(f"\n{'country':<10}{'users':>8}" + "".join(f"{method:>9}" for method in METHODS) + "   best")
    for client, country in enumerate(data.graph.client_names):
        row = [100 * found[method]["per_client_test"][client] for method in METHODS]
        best = METHODS[row.index(max(row))]
        print(f"{country:<10}{sizes[client]:>8,}" + "".join(f"{value:9.2f}" for value in row) + f"   {best}")
    print(f"{'mean':<10}{sum(sizes):>8,}" + "".join(f"{100 * found[method]['test']:9.2f}" for method in METHODS))


if __name__ == "__main__":
    main()
