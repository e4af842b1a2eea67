"""The ranges of an experiment's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpub.errors import FedpubError, unknown
from fedpub.tasks import TASKS

if TYPE_CHECKING:
    from fedpub.experiment.plan import Plan
    from fedpub.experiment.spec import Experiment


def check_ranges(plan: Plan) -> None:
    for name in ("rounds", "epochs", "hidden"):
        if getattr(plan, name) < 1:
            raise FedpubError(f"`{name}={getattr(plan, name)}` is not possible; give 1 or more")
    if not 0 < plan.fraction <= 1:
        raise FedpubError(f"`fraction={plan.fraction}` is not possible; give a share above 0, up to 1")
    for name, low, high in (("dropout", 0, 0.99), ("failures", 0, 1)):
        if not low <= getattr(plan, name) <= high:
            raise FedpubError(f"`{name}={getattr(plan, name)}` is outside {low} to {high}")
    if plan.weight_decay < 0:
        raise FedpubError(f"`weight_decay={plan.weight_decay}` is not possible; give 0 or more")
    if plan.lr <= 0:
        raise FedpubError(f"`lr={plan.lr}` is not possible; give a positive number, such as 0.01")


def check_task_settings(experiment: Experiment) -> None:
    """Raise an error if a setting was changed that only other tasks have."""
    plain = type(experiment)()
    for owner, task in TASKS.items():
        for name in task.settings:
            value = getattr(experiment, name)
            if value != getattr(plain, name) and name not in TASKS[experiment.task].settings:
                raise FedpubError(f"`{name}={value}` has no effect on {experiment.task}; add `task={owner}`")


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
