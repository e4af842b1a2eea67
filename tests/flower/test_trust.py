"""The sites that a site trusts: the file, the verb, and what is said at a start."""

from __future__ import annotations

import io
import json
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_cli import example_of

from fedpub.cli import main
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.policy import Policy
from fedpub.federation.requests import Terms
from fedpub.federation.secure.run_keys import checked, key_text, public_half, run_key
from fedpub.flower.keys import fingerprint, make_site_key, public_line, read_admitted
from fedpub.flower.local import lay_out
from fedpub.flower.peers import FILE, read_peers
from fedpub.flower.sites import SiteConfig, open_site
from small import refused

RUN = "5f0c1a9be2d34708"
NAMES = ("hospital-a", "hospital-b", "hospital-c")


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph_file: str) -> Path:
    """A current folder with three sites and their .pub files; on a terminal, all is confirmed."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        config = SiteConfig(name, "localhost:1", str(Path(graph_file).resolve()))
        config.save(Path(name))
        Path(f"{name}.pub").write_text(f"{make_site_key(config.key(Path(name)))}\n")
    return tmp_path


def print_of(name: str) -> str:
    return fingerprint(Path(f"{name}.pub").read_text())


def renewed(name: str) -> str:
    """A new key of a site, in its .pub file; the fingerprint of the old one."""
    old = print_of(name)
    key = Path(f"{name}-new.key")
    Path(f"{name}.pub").write_text(f"{make_site_key(key).rsplit(' ', 1)[0]} {name}\n")
    return old


def trusted(folder: str = "hospital-a") -> list[str]:
    return [*read_admitted(Path(folder) / FILE)]


def typing(answer: str) -> SimpleNamespace:
    """A terminal at which someone types this."""
    return SimpleNamespace(isatty=lambda: True, readline=io.StringIO(answer).readline)


# The verb


def test_keys_are_listed_with_fingerprints_that_people_can_read_out(hospitals, capsys):
    assert main(["site", "trust", "hospital-a"]) == 0
    said = capsys.readouterr().out
    assert print_of("hospital-a") in said
    assert "no other site is trusted yet" in said
    assert not (Path("hospital-a") / FILE).exists(), "a look changes nothing"
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "hospital-c.pub", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "site": "hospital-a",
        "fingerprint": print_of("hospital-a"),
        "peers": {name: print_of(name) for name in NAMES[1:]},
    }
    assert main(["site", "trust", "hospital-a"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(words[0], words[-1]) for words in lines] == [(name, print_of(name)) for name in NAMES]


def test_the_list_is_like_the_admission_list_and_private(hospitals):
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "--yes"]) == 0
    path = Path("hospital-a") / FILE
    line = " ".join(Path("hospital-b.pub").read_text().split()[:2])
    assert path.read_text() == f"hospital-b {line}\n"
    assert read_peers(Path("hospital-a"), "hospital-a", Path("hospital-a/hospital-a.key")) == {"hospital-b": line}
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text(f"# by phone, 3 May\n{path.read_text()}")
    assert main(["site", "trust", "hospital-a", "hospital-c.pub", "--yes"]) == 0
    assert path.read_text().startswith(f"# by phone, 3 May\nhospital-b {line}\nhospital-c "), "comments and order stay"


@pytest.mark.parametrize(
    ("answer", "taken"), [("y\n", True), ("Yes\n", True), ("\n", False), ("no\n", False), ("", False)]
)
def test_people_are_asked_before_a_key_is_trusted(answer, taken, hospitals, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", typing(answer))
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "hospital-c.pub"]) == (0 if taken else 2)
    said = capsys.readouterr().err
    assert f"hospital-b: {print_of('hospital-b')}" in said
    assert f"hospital-c: {print_of('hospital-c')}" in said
    assert "[y/N]" in said
    assert trusted() == ([*NAMES[1:]] if taken else [])
    assert ("nothing was changed" in said) != taken


def test_without_a_terminal_nothing_is_trusted_unasked(hospitals, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    said = refused(["site", "trust", "hospital-a", "hospital-b.pub"], capsys)
    assert "then add --yes" in said
    assert print_of("hospital-b") in said
    assert trusted() == []


def test_the_example_of_the_verb(hospitals, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", typing("y\n"))
    assert main(example_of("site trust")) == 0
    assert trusted() == [*NAMES[1:]]


def test_what_is_trusted_already_is_no_question(hospitals, monkeypatch):
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "--yes"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    before = (Path("hospital-a") / FILE).read_text()
    assert main(["site", "trust", "hospital-a", "hospital-b.pub"]) == 0
    assert (Path("hospital-a") / FILE).read_text() == before


def test_a_site_has_another_key_only_if_people_say_so(hospitals, capsys):
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "hospital-c.pub", "--yes"]) == 0
    old = renewed("hospital-b")
    said = refused(["site", "trust", "hospital-a", "hospital-b.pub", "--yes"], capsys)
    assert old in said
    assert print_of("hospital-b") in said
    assert "--replace" in said
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "--yes", "--replace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["peers"] == {name: print_of(name) for name in NAMES[1:]}
    assert trusted() == [*NAMES[1:]], "in its old place"


def test_a_site_is_trusted_no_longer(hospitals, capsys):
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "hospital-c.pub", "--yes"]) == 0
    assert main(["site", "trust", "hospital-a", "--remove", "hospital-b"]) == 0
    assert trusted() == ["hospital-c"]
    assert "unknown site 'hospital-b': did you mean hospital-c" in refused(
        ["site", "trust", "hospital-a", "--remove", "hospital-b"], capsys
    )
    assert "contradict" in refused(["site", "trust", "hospital-a", "hospital-b.pub", "--remove", "hospital-c"], capsys)
    assert main(["site", "trust", "hospital-a", "--remove", "hospital-c"]) == 0
    assert "trusts no other yet" in refused(["site", "trust", "hospital-a", "--remove", "hospital-c"], capsys)


def test_a_wrong_key_changes_nothing(hospitals, capsys):
    """Also none of the right ones beside it."""
    Path("twin.pub").write_text(Path("hospital-b.pub").read_text().replace(" hospital-b", " twin"))
    Path("other").mkdir()
    other = Path("hospital-b.pub").read_text()
    renewed("hospital-c")
    Path("other/hospital-b.pub").write_text(Path("hospital-c.pub").read_text().replace(" hospital-c", " hospital-b"))
    Path("empty.pub").write_text("")
    Path("named.pub").write_text(other.replace(" hospital-b", " hospital-a"))
    for wrong, words in (
        ("hospital-a.pub", "hospital-a is this site itself"),
        ("named.pub", "hospital-a is this site's own name, with another key"),
        ("twin.pub", "twin and hospital-b have the same key"),
        ("other/hospital-b.pub", "several keys of hospital-b"),
        ("empty.pub", "no keys in empty.pub"),
        ("none.pub", "there is no file none.pub"),
        ("hospital-a/site.json", "cannot be a site's name"),
    ):
        assert words in refused(["site", "trust", "hospital-a", "hospital-b.pub", wrong, "--yes"], capsys), wrong
        assert not (Path("hospital-a") / FILE).exists()
    assert "not a site's folder" in refused(["site", "trust", "nowhere", "hospital-b.pub", "--yes"], capsys)


def test_a_list_with_this_site_in_it_is_a_sentence(hospitals, capsys):
    """Someone has copied the coordinator's list."""
    line = " ".join(Path("hospital-a.pub").read_text().split()[:2])
    for name, words in (("hospital-a", "is this site itself"), ("hospital-z", "hospital-z is this site itself")):
        (Path("hospital-a") / FILE).write_text(f"{name} {line}\n")
        assert words in refused(["site", "trust", "hospital-a"], capsys)
    assert main(["site", "start", "--folder", "hospital-a", "--no-wait"]) == 2
    assert "remove that line of" in capsys.readouterr().err


# The identity


def test_sites_that_people_have_introduced_check_each_other(hospitals):
    """As open_site makes it, from the files in the folders; the list is read when it is needed."""
    for name in NAMES:
        others = [f"{other}.pub" for other in NAMES if other != name]
        assert main(["site", "trust", name, *others, "--yes"]) == 0
    found = {name: open_site(Path(name)).identity for name in NAMES}
    keys = [public_half(run_key(Path(name) / "runs" / RUN)) for name in NAMES]
    signatures = [found[name].sign(key_text(RUN, name, key)) for name, key in zip(NAMES, keys, strict=True)]
    for name, own in zip(NAMES, keys, strict=True):
        checked(found[name], RUN, NAMES, keys, signatures, own)
    assert main(["site", "trust", "hospital-a", "--remove", "hospital-c"]) == 0
    with pytest.raises(FedpubError, match="does not know hospital-c"):
        checked(found["hospital-a"], RUN, NAMES, keys, signatures, keys[0])


def test_sites_on_one_machine_trust_each_other(tmp_path):
    plan = Experiment(clients=3, method="fedavg", secure=True).resolve()
    _, sites = lay_out(tmp_path, prepare(plan), plan, Terms(), tmp_path / "out")
    for folder in sites:
        peers = open_site(folder).identity.peers()
        assert {*peers, folder.name} == {other.name for other in sites}
        for other in sites:
            if other != folder:
                assert peers[other.name] == " ".join(public_line(other / f"{other.name}.key").split()[:2])


# What is said


def started(capsys) -> str:
    """What a site says before it looks for its coordinator, which is not there."""
    assert main(["site", "start", "--folder", "hospital-a", "--no-wait"]) == 2
    return capsys.readouterr().out


def test_a_site_says_at_its_start_how_many_it_trusts(hospitals, capsys):
    assert "trust" not in started(capsys), "a site that needs none is not bothered"
    Policy(secure=True).save(Path("hospital-a"))
    assert "hospital-a: trusts no other site yet; get the .pub files" in started(capsys)
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "--yes"]) == 0
    assert "hospital-a: trusts 1 other site in secure" in started(capsys)
    assert main(["site", "trust", "hospital-a", "hospital-c.pub", "--yes"]) == 0
    assert "hospital-a: trusts 2 other sites in secure" in started(capsys)
    assert main(["site", "trust", "hospital-a", "--remove", "hospital-c"]) == 0
    (Path("hospital-a") / FILE).write_text("hospital-b\n")
    assert main(["site", "start", "--folder", "hospital-a", "--no-wait"]) == 2
    place = Path("hospital-a").resolve() / FILE
    assert f"line 1 of {place}: there is no ecdsa-sha2-nistp384 key" in capsys.readouterr().err


def test_a_new_key_is_to_be_given_to_the_others_too(hospitals, capsys):
    assert main(["site", "rotate", "--folder", "hospital-a"]) == 0
    assert "trust" not in capsys.readouterr().out
    assert main(["site", "trust", "hospital-a", "hospital-b.pub", "--yes"]) == 0
    capsys.readouterr()
    assert main(["site", "rotate", "--folder", "hospital-a"]) == 0
    assert "fedpub site trust FOLDER hospital-a.pub --replace" in capsys.readouterr().out
