"""What a site takes part in: `policy.json` in its folder, written by its owner and read again when it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedpub.algorithms import METHODS
from fedpub.core.files import write_text
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.checks import LEAST_GROUP
from fedpub.federation.wire_header import PRECISIONS

FILE = "policy.json"


@dataclass(frozen=True)
class Policy:
    """The limits of a site; None is no limit."""

    methods: tuple[str, ...] | None = None
    """Methods that the site takes part in."""
    uploads: tuple[str, ...] | None = None
    """Parts of messages that may leave the site, as methods declare them."""
    min_other_sites: int | None = None
    """Sites that must take part besides this one, by what the coordinator says."""
    rounds_per_day: int | None = None
    """Rounds that are answered within 24 hours."""
    runs_per_day: int | None = None
    """Runs that are begun or joined within 24 hours."""
    precisions: tuple[str, ...] | None = None
    """Precisions of uploads."""
    secure: bool | None = None
    """True for runs with secure aggregation only."""
    min_group: int | None = None
    """Smallest group of sites in whose sums this one's upload is hidden; in other runs it is in the clear."""
    experiment: Experiment | None = None
    """The agreed experiment: the site takes part in nothing else."""

    def check(self, plan: Plan, sites: int, precision: str) -> None:
        """Raise an error unless a run is within the policy; `sites` take part in it, with this one."""
        experiment = plan.experiment
        if self.methods is not None and experiment.method not in self.methods:
            raise _outside("methods", f"the method {experiment.method}", _list(self.methods))
        extra = sorted(plan.algorithm.uploads - {*self.uploads}) if self.uploads is not None else []
        if self.uploads is not None and extra:
            raise _outside("uploads", f"sending {_list(extra)} with {experiment.method}", _list(self.uploads))
        if self.min_other_sites is not None and sites - 1 < self.min_other_sites:
            raise _outside("min_other_sites", f"a run with {sites - 1} other sites", str(self.min_other_sites))
        if self.precisions is not None and precision not in self.precisions:
            raise _outside("precisions", f"the precision {precision}", _list(self.precisions))
        if self.secure and not experiment.secure:
            raise _outside("secure", "a run without secure aggregation", "true")
        self._check_group(experiment)
        check_agreed(experiment, self.experiment)

    def _check_group(self, experiment: Experiment) -> None:
        """In a run without secure aggregation the coordinator gets the upload of this site alone."""
        if self.min_group is None:
            return
        if not experiment.secure:
            raise _outside("min_group", "a run without secure aggregation, with no group at all,", self.min_group)
        smallest = max(experiment.min_group, LEAST_GROUP)
        if smallest < self.min_group:
            raise _outside("min_group", f"a run with sums over groups of {smallest} sites", self.min_group)

    def check_new_round(self, answered: int) -> None:
        """Raise an error unless one more round may be answered; `answered`: those of the last 24 hours."""
        if self.rounds_per_day is not None and answered >= self.rounds_per_day:
            raise _outside("rounds_per_day", f"one more round after {answered} within 24 hours", self.rounds_per_day)

    def check_new_run(self, begun: int) -> None:
        """The same of runs."""
        if self.runs_per_day is not None and begun >= self.runs_per_day:
            raise _outside("runs_per_day", f"one more run after {begun} within 24 hours", self.runs_per_day)

    def save(self, folder: Path) -> None:
        write_text(folder / FILE, json.dumps(self.to_dict(), indent=2) + "\n")

    def to_dict(self) -> dict[str, Any]:
        held = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return held | {"experiment": self.experiment and json.loads(self.experiment.to_json())}

    @staticmethod
    def load(folder: Path) -> Policy:
        """The policy of a site's folder, which has no limits where the file is missing."""
        return Policy.read(folder) or Policy()

    @staticmethod
    def read(folder: Path) -> Policy | None:
        """The policy of a site's folder; None where the file is missing."""
        path = folder / FILE
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(held, dict):
                raise ValueError("it is not a JSON object")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise FedpubError(f"{path} cannot be read ({error}); repair it; null is no limit") from error
        return Policy.of(held, path)

    @staticmethod
    def of(held: Mapping[str, Any], place: Path | str) -> Policy:
        """A policy from plain values, checked; `place` is for the error."""
        for name in held:
            if name not in SETTINGS:
                raise FedpubError(f"{place}: {unknown('setting', name, SETTINGS)}")
        found = {name: _valid(name, value, place) for name, value in held.items() if value is not None}
        return Policy(**found)


SETTINGS = tuple(one.name for one in fields(Policy))
_LEAST = {"min_other_sites": 0, "rounds_per_day": 0, "runs_per_day": 0, "min_group": LEAST_GROUP}
_KNOWN = {"methods": tuple(METHODS), "precisions": PRECISIONS}


def _valid(name: str, value: Any, place: Path | str) -> Any:
    if name == "experiment":
        if not isinstance(value, dict):
            raise FedpubError(f"{place}: experiment is {value!r}, not what a config.json holds")
        asked = Experiment.from_json(json.dumps(value), Path(f"the experiment in {place}"))
        return replace(asked, device="cpu").resolve().experiment
    if name == "secure":
        if value is not True:
            raise FedpubError(f"{place}: secure is {value!r}; give true, or null for no limit")
        return value
    if name in _LEAST:
        if type(value) is not int or value < _LEAST[name]:
            least = _LEAST[name]
            raise FedpubError(
                f"{place}: {name} is {value!r}; give a whole number from {least} on, or null for no limit"
            )
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise FedpubError(f"{place}: {name} is {value!r}; give a list of names, or null for no limit")
    for one in value:
        if one not in _KNOWN.get(name, value):
            raise FedpubError(f"{place}: {unknown(name.removesuffix('s'), one, _KNOWN[name])}")
    return tuple(value)


def check_agreed(asked: Experiment, agreed: Experiment | None) -> None:
    """Raise an error unless the coordinator asks for what was agreed; name of the graph and device may differ."""
    if agreed is None:
        return
    theirs, ours = ({**vars(one), **one.options} for one in (asked, agreed))
    for name in {**ours, **theirs}:
        if name not in ("dataset", "device", "options") and theirs.get(name) != ours.get(name):
            raise FedpubError(
                f"the coordinator asks for {name} {theirs.get(name)!r}, but this site has agreed to "
                f"{ours.get(name)!r}; settle it with the coordinator, then start the site with the agreed "
                "`experiment`"
            )


def _outside(setting: str, what: str, limit: object) -> FedpubError:
    return FedpubError(f"{what} is outside this site's policy ({setting}: {limit}), which only its owner can change")


def _list(names: Any) -> str:
    return ", ".join(names) or "empty"
