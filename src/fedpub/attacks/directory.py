"""All attacks on a run directory or a coordinator's folder, and the file that keeps what they found."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from fedpub.attacks.battery import attack
from fedpub.attacks.case import Case
from fedpub.attacks.nodes import Shadow, attack_nodes
from fedpub.attacks.recorded import from_folder
from fedpub.attacks.replay import replayed
from fedpub.core.files import write_text
from fedpub.core.steps import Step, silent
from fedpub.errors import FedpubError
from fedpub.flower.folder import CONFIG
from fedpub.report.attacked import FILE, FORMAT

ROUNDS, SHADOWS = 30, 8
Target = Literal["both", "uploaded", "personal"]


def attack_directory(
    path: Path,
    rounds: int = ROUNDS,
    shadows: int = SHADOWS,
    target: Target = "both",
    pieces: Path | None = None,
    root: Path | None = None,
    on_step: Step = silent,
) -> dict[str, Any]:
    """What was found, which is also written to attack.json in the folder."""
    if rounds < 1:
        raise FedpubError(f"`rounds={rounds}` is not possible; give 1 or more")
    if shadows < 0:
        raise FedpubError(f"`shadows={shadows}` is not possible; give 0 for no shadow models, or more")
    deployed = (path / CONFIG).is_file()
    if pieces is not None and not deployed:
        raise FedpubError(
            f"`pieces={pieces}` is for a coordinator's folder, and {path} is a run directory; leave it out"
        )
    case, shadow = from_folder(path, pieces, rounds) if deployed else replayed(path, rounds, root, on_step)
    on_step("attacking", 0, None)
    findings = all_findings(case, shadow, shadows, target)
    plan, last = case.plan, max((own.round for own in case.notebook.last.values()), default=0)
    found = {
        "format": FORMAT,
        "command": f"fedpub attack {path} --rounds {rounds} --shadows {shadows} --target {target}",
        "method": plan.experiment.method,
        "dataset": plan.experiment.dataset,
        "seed": plan.seed,
        "rounds": min(rounds, plan.rounds) if not deployed else last,
        "shadows": shadows,
        "secure": case.secure,
        "clients": case.names,
        "findings": findings,
    }
    write_text(path / FILE, json.dumps(found, indent=2) + "\n")
    return found


def all_findings(case: Case, shadow: Shadow | None, shadows: int, target: Target = "both") -> list[dict[str, Any]]:
    """Of every attack, in a form that JSON can hold."""
    targets = ("uploaded", "personal") if target == "both" else (target,)
    findings = [*attack(case), *attack_nodes(case, shadow if shadows else None, shadows, targets)]
    return [_plain(asdict(one) | {"verdict": one.verdict}) for one in findings]


def _plain(value: Any) -> Any:
    """Without NaN, which JSON lacks."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
