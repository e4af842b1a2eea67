"""Shows a site what leaves it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.protocol import NeedsSetup
from fedpub.core.message import Message
from fedpub.core.tensor_files import read_tensors
from fedpub.core.tree import pack
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.secure.at_site import VECTOR, WORDS
from fedpub.federation.site import RUN, Site
from fedpub.federation.wire import Envelope, Part, decode, describe, encode

SHOWN = 3  # values of each tensor


@dataclass(frozen=True, eq=False)
class Found:
    title: str
    parts: list[Part]
    values: Mapping[str, str]
    fields: Mapping[str, Any]
    message: Message
    size: int
    stays: list[str]
    masked: int
    """Bytes of the vector that goes masked into a secure sum, besides."""


def would_send(site: Site, experiment: Path | None) -> Found:
    """The site's last answer or, given an experiment, its first one, computed here and not sent."""
    if experiment is None:
        return _last(site)
    wanted = Experiment.read(experiment)
    with tempfile.TemporaryDirectory() as folder:
        trial, run = Site(Path(folder), site.name, lambda: site.source, identity=site.identity), "0" * 16
        held = {"experiment": wanted.to_json(), "client": 0, "classes": list(site.source.classes)}
        held |= {"precision": "exact", "sites": (wanted.secure and wanted.clients) or 1}  # words are as long as needed
        _good(trial.answer(encode(Envelope("begin", {"run": run, "attempt": 0, **held}))))
        part = trial.part(run)
        if isinstance(part.algorithm, NeedsSetup):
            setup = part.algorithm.setup()
            message = setup.send(setup.init_server(1), 0, 0)
            answer = trial.answer(encode(Envelope("setup", {"run": run, "step": 0}, message)))
            return _found(_good(answer), f"what {site.name} would send before the first round of {wanted.method}", {})
        server = part.algorithm.init_server(part.w0, 1)
        message = part.algorithm.send(server, torch.tensor([0]))
        fields = {"run": run, "round": 1, "base": 0, "best": 0}
        fields |= {"examples": part.own.num_train} if wanted.secure else {}
        answer = trial.answer(encode(Envelope("round", fields, message)))
        state = pack(part.load("round-1")[0])
        return _found(_good(answer), f"what {site.name} would send in the first round of {wanted.method}", state)


def _last(site: Site) -> Found:
    answers = sent_by(site)
    if not answers:
        raise FedpubError(
            f"site {site.name!r} has sent nothing yet; see what it would send with `experiment=config.json`"
        )
    flat, _ = read_tensors(answers[-1])
    what = re.sub("-", " ", answers[-1].stem)
    state = {name.removeprefix("state/"): leaf for name, leaf in flat.items() if name.startswith("state/")}
    answer = flat["answer"].numpy().tobytes()
    return _found(answer, f"what {site.name} sent for {what} of the run {answers[-1].parent.name}", state)


def sent_by(site: Site) -> list[Path]:
    """The files of what the site has sent, the last one last."""
    kept = [path for path in (site.folder / "runs").glob("*/*.safetensors") if RUN.fullmatch(path.parent.name)]
    sent = [path for path in kept if not path.stem.endswith("round-0")]
    return sorted(sent, key=lambda path: path.stat().st_mtime)


def _good(answer: bytes) -> bytes:
    if (envelope := decode(answer)).kind in ("refused", "lost"):
        raise FedpubError(f"the site could not take part in that run: {envelope.fields.get('reason')}")
    return answer


def _found(answer: bytes, title: str, state: Mapping[str, Tensor]) -> Found:
    envelope = decode(answer)
    values = {name: _first(value) for name, value in pack(envelope.message.flat()).items()}
    left = sorted(name for name in state if name not in values and not name.startswith(f"{VECTOR}/"))
    masked = state[f"{VECTOR}/{WORDS}"].numel() if f"{VECTOR}/{WORDS}" in state else 0
    return Found(title, describe(answer), values, envelope.fields, envelope.message, len(answer), left, masked)


def _first(value: Tensor) -> str:
    return " ".join(f"{number:.4g}" for number in value.flatten()[:SHOWN].double().tolist())
