"""A run of the simulator played again with a curious coordinator: what it saw was not stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedpub.attacks.case import Case, Truth
from fedpub.attacks.nodes import Shadow
from fedpub.attacks.notebook import Notebook
from fedpub.core.steps import Step, silent
from fedpub.core.tree import tree_map
from fedpub.engine.setup import set_up
from fedpub.engine.simulate import Federation, simulate
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.store.directory import RunDirectory

AT_SITES = "sites"  # the dataset of a federation whose data is elsewhere


def planned(path: Path) -> Plan:
    """The plan of a run directory."""
    experiment = Experiment.from_json(RunDirectory.config(path), path / "config.json")
    if Path(experiment.dataset).name == AT_SITES:
        raise FedpubError(
            f"the data of {path} is at its sites, so its rounds cannot be played again; start it with "
            "fedpub coordinator start --keep-uploads, and give the coordinator's folder"
        )
    plan = replace(experiment, device="cpu").resolve()
    if plan.algorithm.undivided:
        raise FedpubError(f"`method={experiment.method}` has all data in one place: there is nothing to attack")
    if not plan.algorithm.uploads:
        raise FedpubError(f"`method={experiment.method}` sends nothing: there is nothing to attack")
    return plan


def replayed(path: Path, rounds: int, root: Path | None = None, on_step: Step = silent) -> tuple[Case, Shadow]:
    """The first rounds of a run, and a function that plays them with other training nodes."""
    plan = planned(path)
    ready = prepare(plan, root, step=on_step)
    RunDirectory(path).check_data(ready.graph.digest(), ready.partition.digest)
    on_step("playing", 0, None)
    case, shadow = played(plan, ready, rounds)
    if not case.notebook.told and not case.notebook.first:
        raise FedpubError(
            f"nothing of a client was seen in {rounds} rounds of {path}; look at more of them with `rounds`"
        )
    return case, shadow


def played(plan: Plan, ready: Prepared, rounds: int) -> tuple[Case, Shadow]:
    """The first rounds of a plan on its data."""
    plan = plan.related(ready.federation.num_relations)
    made = set_up(plan.algorithm, plan.context, ready.federation)
    federation = made.extend(ready.federation) if made else ready.federation
    rounds = min(rounds, plan.rounds)

    def shadow(other: Federation) -> Case:
        return play(plan, other, rounds)

    truth = Truth(ready.federation.subgraphs, federation.num_classes)
    return replace(play(plan, federation, rounds), truth=truth), shadow


def play(plan: Plan, federation: Federation, rounds: int) -> Case:
    """Rounds from the first one with someone who takes notes."""
    notebook = Notebook()
    federation = replace(federation)  # whose stacks are gone with it
    how = (plan.algorithm, plan.context, federation, rounds, plan.fraction, plan.failures)
    *_, last = simulate(*how, observe=notebook)
    names = [str(client) for client in range(federation.num_clients)]
    personal = tree_map(lambda leaf: leaf.cpu().clone(), plan.algorithm.personal(last.snapshot.clients))
    return Case(plan, notebook, names, federation.num_classes, federation=federation, personal=personal)
