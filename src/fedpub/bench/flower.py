"""FedAvg with PyG's layers in Flower's simulation, if that is installed: `pip install "flwr[simulation]"`.

Local training and evaluation are those of the plain loop, but every client is a virtual Flower node that Ray runs in a
worker process; weights are sent as messages.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import statistics
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fedpub.bench.pyg_loop import pyg_data, pyg_model
from fedpub.bench.timing import WARM_UP
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import prepare

ROUNDS = 3  # timed rounds


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("flwr", "ray"))


def seconds_per_round(plan: Plan, clients: int, root: Path | None) -> float:
    """Median of a few rounds, after two warm-up rounds."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    from flwr.app import ArrayRecord, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    client_app, server_app = ClientApp(), ServerApp()
    times: list[float] = []

    @client_app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        torch.set_num_threads(1)  # each Ray worker process has one core
        client = int(context.node_config["partition-id"])
        weights = train_one(plan, client, root, message.content["weights"].to_torch_state_dict())
        return Message(content=RecordDict({"weights": ArrayRecord(weights)}), reply_to=message)

    @server_app.main()  # type: ignore[untyped-decorator]
    def serve(grid: Any, context: Any) -> None:
        weights = _model(plan, root).state_dict()
        while len(nodes := list(grid.get_node_ids())) < clients:
            time.sleep(0.1)
        for _ in range(WARM_UP + ROUNDS):
            start = time.perf_counter()
            content = RecordDict({"weights": ArrayRecord(weights)})
            sent = [Message(content=content, message_type="train", dst_node_id=node) for node in nodes]
            got = [reply.content["weights"].to_torch_state_dict() for reply in grid.send_and_receive(sent)]
            weights = {name: torch.stack([one[name] for one in got]).mean(0) for name in weights}
            times.append(time.perf_counter() - start)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend: Any = {"init_args": {"logging_level": "ERROR", "log_to_driver": False}}
    backend |= {"client_resources": {"num_cpus": 1}}
    run_simulation(server_app, client_app, num_supernodes=clients, backend_config=backend)
    return statistics.median(times[WARM_UP:])


@lru_cache(maxsize=1)
def _data(experiment: str, root: Path | None) -> Any:
    """The data, loaded once by every worker process."""

    federation = prepare(Experiment.from_json(experiment, Path()).resolve(), root).federation
    norms: dict[int, torch.Tensor] = {}
    return federation, [pyg_data(own, norms, federation.device) for own in federation.subgraphs], norms


def _model(plan: Plan, root: Path | None) -> Any:

    federation, _, norms = _data(plan.experiment.to_json(), root)
    return pyg_model(federation.num_features, plan.hidden, federation.num_classes, norms, with_masks=False)


def train_one(plan: Plan, client: int, root: Path | None, weights: dict[str, Any]) -> dict[str, Any]:
    """One epoch and an evaluation of one client."""
    model = _model(plan, root)
    x, edges, y, train, val, test = _data(plan.experiment.to_json(), root)[1][client]
    model.load_state_dict(weights)
    optimiser = torch.optim.Adam(model.parameters(), lr=plan.lr)
    model.train()
    torch.nn.functional.cross_entropy(model(x, edges)[train], y[train]).backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    model.eval()
    with torch.no_grad():
        right = model(x, edges).argmax(1) == y
        float(right[val].float().mean() + right[test].float().mean())
    trained: dict[str, Any] = model.state_dict()
    return trained
