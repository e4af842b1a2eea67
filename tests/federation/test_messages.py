"""Messages of a hostile coordinator at a site: whatever they hold is answered or refused, and the next one is heard."""

from __future__ import annotations

import functools
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_federation import RUN, coordinator, number_of, small

from fedpub.core.message import Message
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.part import OnePiece
from fedpub.federation.site import Site
from fedpub.federation.validate.fields import ASKED
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.store.directory import read_rows

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
) | st.sampled_from([math.inf, -math.inf, math.nan, 2**63, -1, 10**400, "9" * 5000, "../..", 1.0, True, "fedavg"])


@functools.cache
def messages() -> tuple[Path, dict[str, Envelope]]:
    """A folder of a site that has begun, and a good message of every kind."""
    folder = Path(tempfile.mkdtemp(prefix="fedpub-messages-"))
    experiment = small("fedavg", rounds=3)
    sites = InProcessSites(folder, experiment)
    leader, seen = coordinator(sites, experiment), {}

    def watch(asked, deadline):
        seen.update({decode(envelope).kind: decode(envelope) for envelope in asked.values()})
        return sites(asked, deadline)

    leader.requests.exchange = watch
    known = leader.prepare()
    w0 = {name: leaf.unsqueeze(0) for name, leaf in leader.first_weights(known).items()}
    held = {name: seen["begin"].fields[name] for name in ("experiment", "client", "classes", "precision", "sites")}
    seen["round"] = Envelope("round", {"run": RUN, "round": 1, "base": 0, "best": 0}, Message.of({"weights": w0}))
    seen["finish"] = Envelope("finish", {"run": RUN, "base": 0, "best": 0})
    seen["setup"] = Envelope("setup", {"run": RUN, "step": 0})
    seen["ready"] = Envelope("ready", {"run": RUN})
    seen["join"] = Envelope(
        "join", {"run": RUN, "epochs": 20, "step": "near", "nearest": {}, **held}, Message.of({"weights": w0})
    )
    keys = {"names": ["site-0"], "keys": ["00" * 32], "signatures": ["00" * 64]}
    seen["peers"] = Envelope("peers", {"run": RUN, **keys})
    sums = {"run": RUN, "round": 0, "attempt": 1, "group": 0, "members": [0, 1, 2]}
    lists = {"alive": [0, 1, 2], "survivors": [0, 1, 2]}
    for kind, named in (("shares", ()), ("masked", ("alive",)), ("confirm", lists), ("reveal", lists)):
        seen[kind] = Envelope(kind, sums | {name: lists[name] for name in named})
    return folder / "site-0", seen


def site_at(folder: Path) -> Site:
    return Site(folder, "site-0", lambda: OnePiece(folder / "piece.safetensors"))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_the_fields_hold_is_answered_or_refused(data):
    folder, good = messages()
    site = site_at(folder)
    kind = data.draw(st.sampled_from(sorted(good)))
    fields = dict(good[kind].fields)
    name = data.draw(st.sampled_from(["run", *ASKED[kind]]))
    fields[name] = data.draw(ANYTHING)
    if data.draw(st.booleans()):
        del fields[name]
    try:
        envelope = encode(replace(good[kind], fields=fields, message=Message()))
    except ValueError:
        return
    answer = decode(site.answer(envelope))
    assert answer.kind in ("refused", "lost", "hello", "begun", "ready", "finished")
    if answer.kind == "refused":
        assert 0 < len(answer.fields["reason"]) <= 200
    assert decode(site.answer(encode(good["hello"]))).kind == "hello"


@pytest.mark.parametrize("kind", sorted(ASKED))
@pytest.mark.parametrize("value", [math.inf, math.nan, 10**400, 2**63, -1, True, 1.0, "1", None, [], {}])
def test_no_number_of_another_kind_is_taken_for_one(kind, value):
    folder, good = messages()
    for name in {"round", "base", "best", "step", "client", "attempt", "epochs"} & ASKED[kind].keys():
        envelope = replace(good[kind], fields={**good[kind].fields, name: value})
        answer = decode(site_at(folder).answer(encode(envelope)))
        assert answer.kind == "refused"
        assert name in answer.fields["reason"]


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_what_is_no_message_is_refused(data):
    folder, _ = messages()
    assert decode(site_at(folder).answer(data)).kind == "refused"


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"weights": torch.zeros(1, 3)},
        {"weights": {"conv1.weight": torch.zeros(1, 3)}},
        {"weights": {}, "size": torch.tensor([3])},
    ],
)
def test_a_round_with_other_tensors_is_refused(message):
    folder, good = messages()
    assert decode(site_at(folder).answer(encode(replace(good["round"], message=Message.of(message))))).kind == "refused"


def test_an_error_nobody_thought_of_is_refused_too(monkeypatch):
    folder, good = messages()
    site = site_at(folder)
    monkeypatch.setattr(Site, "part", lambda *_: 1 / 0)
    answer = decode(site.answer(encode(good["ready"])))
    assert (answer.kind, answer.fields["reason"]) == ("refused", "division by zero")


def test_a_site_whose_state_is_damaged_begins_anew(tmp_path):
    """A flipped bit in its weights is not trained on."""
    experiment, events = small("fedpub", rounds=4), []
    sites = InProcessSites(tmp_path / "sites", experiment)

    def flips(asked, deadline):
        if 3 in number_of(asked) and not events:
            path = tmp_path / "sites" / "site-1" / "runs" / RUN / "round-2.safetensors"
            whole = bytearray(path.read_bytes())
            whole[-40] ^= 64
            path.write_bytes(bytes(whole))
        return sites(asked, deadline)

    play(coordinator(sites, experiment, exchange=flips, events=events), tmp_path / "deployed")
    assert [event[:3] for event in events] == [(1, "began anew", 3), (1, "left out", 3)]
    assert events[0][3] == "site 'site-1' cannot read its round-2.safetensors, which is damaged"
    assert [row.clients["took_part"] for row in read_rows(tmp_path / "deployed")][2:] == [[1, 0, 1, 1], [1, 1, 1, 1]]
