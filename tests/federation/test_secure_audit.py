"""What a site says of itself where its upload goes into a secure sum: what is in the clear, and what is not."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from test_federation import coordinator, small

from fedpub.cli.audit import _show_found
from fedpub.core.tensor_files import read_tensors
from fedpub.core.tree import tensor
from fedpub.federation.audit import sent_by, would_send
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.wire import decode

CLIENTS = 3


@pytest.fixture(scope="module")
def experiment():
    return small("fedpub", options={"communities": "explicit"}, secure=True, clients=CLIENTS, rounds=1, dtype="float32")


@pytest.fixture(scope="module")
def sites(experiment, tmp_path_factory):
    return InProcessSites(tmp_path_factory.mktemp("sites"), experiment)


@pytest.fixture(scope="module")
def masked(sites, experiment, tmp_path_factory) -> int:
    """The bytes of the vector that the first site has sent in a run of one round."""
    seen = []

    def watch(messages, deadline):
        answers = sites(messages, deadline)
        told = [one for one in map(decode, answers.values()) if one.kind == "masked" and one.fields["round"]]
        seen.extend(tensor(one.message["masked"]).numel() for one in told)
        return answers

    play(coordinator(sites, experiment, exchange=watch), tmp_path_factory.mktemp("run") / "run")
    assert len({*seen}) == 1
    return seen[0]


def test_the_last_answer_is_what_was_in_the_clear_and_the_length_of_what_was_masked(sites, masked):
    found = would_send(sites.site(0), None)
    assert [part.name for part in found.parts] == ["header", "embedding"]
    assert found.masked == masked
    assert {"weights/conv1.weight", "masks/conv1.weight"} <= {*found.stays}
    assert not [name for name in found.stays if name.startswith("vector")], "that part of the state has left, masked"


@pytest.mark.parametrize(("clients", "bits"), [(CLIENTS, 16), (100, 24)])
def test_before_a_run_too(clients, bits, sites, masked, experiment, tmp_path):
    """Words of more sites are longer; counts have 8 bits, numbers 64."""
    file = tmp_path / "config.json"
    file.write_text(replace(experiment.resolve().experiment, clients=clients).to_json())
    found = would_send(sites.site(0), file)
    steps = sum(tensor(part).numel() for part in _weights(sites.site(0)).values())
    assert found.masked == masked + steps * (bits - 16) // 8
    assert [part.name for part in found.parts] == ["header", "embedding"]


def _weights(site):
    flat = read_tensors(sent_by(site)[-1])[0]
    return {name: leaf for name, leaf in flat.items() if name.startswith("state/weights/")}


def test_nothing_is_masked_in_a_plain_run(sites, experiment, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(experiment.resolve().experiment.to_json()) | {"secure": False}))
    found = would_send(sites.site(0), file)
    assert found.masked == 0
    assert "weights/conv1.weight" in {part.name for part in found.parts}
    assert "masked" not in shown(found)


def shown(found) -> str:
    text = io.StringIO()
    _show_found(Console(width=200, file=text), found)
    return text.getvalue()


def test_the_verb_says_how_much_is_masked(sites, masked):
    assert f"masked, in another message: {masked:,} bytes" in shown(would_send(sites.site(0), None))
