"""The ranges of an experiment's settings."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import torch

from fedpub.algorithms.fedpub_plus.standing import FUNCTION
from fedpub.algorithms.measures import EMBEDDING
from fedpub.data.clients.split import Ratios
from fedpub.errors import FedpubError, unknown
from fedpub.models import MODELS, Hops
from fedpub.tasks import TASKS

if TYPE_CHECKING:
    from fedpub.experiment.plan import Plan
    from fedpub.experiment.spec import Experiment


MOST_HOPS = 10
LEAST_GROUP = 3  # in a secure sum


def check_ranges(plan: Plan) -> None:
    for name in ("rounds", "epochs", "hidden"):
        if getattr(plan, name) < 1:
            raise FedpubError(f"`{name}={getattr(plan, name)}` is not possible; give 1 or more")
    for name, most in (("hops", MOST_HOPS), ("layers", 2)):
        if not 1 <= getattr(plan.experiment, name) <= most:
            raise FedpubError(f"`{name}={getattr(plan.experiment, name)}` is not possible; give 1 to {most}")
    if plan.batch_size < 0:
        raise FedpubError(f"`batch_size={plan.batch_size}` is not possible; give 0 or more")
    if plan.batch_size and (not plan.model.independent or plan.task.of_pairs):
        of = plan.experiment.task if plan.model.independent else f"the model {plan.experiment.model}"
        raise FedpubError(
            f"`batch_size={plan.batch_size}` is not possible for {of}, which needs all nodes at once; leave it out, or "
            "use `model=hops` to classify nodes"
        )
    if not 0 < plan.fraction <= 1:
        raise FedpubError(f"`fraction={plan.fraction}` is not possible; give a share above 0, up to 1")
    for name, low, high in (("dropout", 0, 0.99), ("failures", 0, 1)):
        if not low <= getattr(plan, name) <= high:
            raise FedpubError(f"`{name}={getattr(plan, name)}` is outside {low} to {high}")
    if plan.embedding_noise < 0:
        raise FedpubError(f"`embedding_noise={plan.embedding_noise}` is not possible; give 0 or more")
    if plan.embedding_noise and not {EMBEDDING, FUNCTION} & plan.algorithm.uploads:
        raise FedpubError(
            f"`embedding_noise={plan.embedding_noise}` has no effect: no functional embedding leaves a client of "
            f"{plan.experiment.method}; leave it out"
        )
    if plan.weight_decay < 0:
        raise FedpubError(f"`weight_decay={plan.weight_decay}` is not possible; give 0 or more")
    if plan.lr <= 0:
        raise FedpubError(f"`lr={plan.lr}` is not possible; give a positive number, such as 0.01")


def check_secure(plan: Plan) -> None:
    """Raise an error if a setting contradicts sums over groups."""
    experiment = plan.experiment
    if experiment.min_group < 1:
        raise FedpubError(f"`min_group={experiment.min_group}` is not possible; give 1 or more")
    if not experiment.secure:
        return
    if experiment.min_group < LEAST_GROUP:
        raise FedpubError(
            f"`min_group={experiment.min_group}` is not possible with `secure`: of a sum over two, each knows the "
            f"other's part; give {LEAST_GROUP} or more"
        )
    if experiment.defence in ("clip", "median"):
        raise FedpubError(
            f"`defence={experiment.defence}` compares the uploads of single clients, which `secure` hides; use guard, "
            "which every client applies itself, or none"
        )
    if experiment.clients is not None and round(experiment.fraction * experiment.clients) < experiment.min_group:
        part = f" with `fraction={experiment.fraction}`" if experiment.fraction < 1 else ""
        raise FedpubError(
            f"`clients={experiment.clients}`{part} are fewer than `min_group={experiment.min_group}`: there is no sum"
        )


def check_task_settings(experiment: Experiment) -> None:
    """Raise an error if a setting was changed that only other tasks have, or the metric is not one of the task's."""
    choices = TASKS[experiment.task].metric_choices
    if experiment.metric is not None and experiment.metric not in choices:
        way = f"give {' or '.join(choices)}" if choices else "leave it out"
        raise FedpubError(f"`metric={experiment.metric}` does not fit {experiment.task}; {way}")
    plain = type(experiment)()
    for owner, task in TASKS.items():
        for name in task.settings:
            value = getattr(experiment, name)
            if value != getattr(plain, name) and name not in TASKS[experiment.task].settings:
                raise FedpubError(f"`{name}={value}` has no effect on {experiment.task}; add `task={owner}`")


def check_split(experiment: Experiment, usual: Ratios) -> None:
    """Raise an error if a setting of the split was changed that has no effect."""
    origin = experiment.split
    if origin != "default" and TASKS[experiment.task].of_pairs:
        raise FedpubError(f"`split={origin}` has no effect on {experiment.task}, which splits edges; leave it out")
    if origin in ("own", "published") and experiment.ratios != usual:
        ratios = " ".join(map(str, experiment.ratios or ()))
        raise FedpubError(f"`ratios={ratios}` has no effect on `split={origin}`; leave one of them out")


def check_model_settings(experiment: Experiment) -> None:
    """Raise an error if a setting was changed that only other models have."""
    plain, known = type(experiment)(), {one.name for one in fields(MODELS.get(str(experiment.model), Hops))}
    for name in ("hops", "layers"):
        value = getattr(experiment, name)
        if value != getattr(plain, name) and name not in known:
            raise FedpubError(f"`{name}={value}` has no effect on the model {experiment.model}; add `model=hops`")


def checked_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, ("cpu", "cuda")) from None
    if device.type not in ("cpu", "cuda"):
        raise unknown("device", name, ("cpu", "cuda"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise FedpubError("`device=cuda` is not available: this torch sees no GPU; use `device=cpu`")
    return device
