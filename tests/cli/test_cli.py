from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys

import pytest

from fedpub import __version__
from fedpub.cli import VERBS, action, main


def test_version_and_overview(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedpub {__version__}\n"
    assert main([]) == 0
    overview = capsys.readouterr().out
    assert all(verb in overview for verb in VERBS)
    assert main(["data"]) == 0
    assert "data stats" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--help"], ["completion", "bash"], ["reproduce", "--list"]])
def test_what_computes_nothing_imports_nothing_heavy(words):
    code = f"import sys, fedpub.cli; fedpub.cli.main({words}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_help_for_a_verb(capsys):
    texts = []
    for words in (["help", "data", "stats"], ["data", "stats", "--help"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert main(["help", "data"]) == 0
    assert "data stats" in capsys.readouterr().out


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_help_with_one_example(verb, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*verb.split(), "--help"])
    assert caught.value.code == 0
    assert len(re.findall(r"Example: fedpub ", capsys.readouterr().out)) == 1


def example_of(verb: str) -> list[str]:
    example = re.search(r"Example: (fedpub .*(?:\n {8,}.*)*)", action(verb).__doc__).group(1)
    return shlex.split(" ".join(example.split()))[1:]


# Some serve until they are ended, those of a federation need one: tests/flower has them.
ELSEWHERE = ("watch", "deploy local", "coordinator", "site", "status", "audit")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if not verb.startswith(ELSEWHERE)])
def test_every_example_works(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_tables(tmp_path)
    if verb in ("attack", "predict", "report"):
        assert main(["run", "--quiet", "--method", "fedavg", "--rounds", "2", "--out", "runs/first"]) == 0
    assert main(example_of(verb)) == 0


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])  # ignored: as a script's background jobs begin
def test_the_example_that_watches_ends_with_an_interruption(tmp_path, before):
    assert (
        main(["run", "--quiet", "--method", "fedavg", "--rounds", "2", "--out", str(tmp_path / "runs" / "first")]) == 0
    )
    command = [sys.executable, "-u", "-m", "fedpub", *example_of("watch")]
    command = [sys.executable, "-c", BEGUN.format(before=int(before)), *command]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as watching:
        assert "http://127.0.0.1:" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        try:
            assert watching.wait(timeout=60) == 0
        finally:
            watching.kill()


BEGUN = "import os, signal, sys; signal.signal(signal.SIGINT, {before}); os.execv(sys.argv[1], sys.argv[1:])"


def make_tables(folder) -> None:
    """The files that the example of `data import` speaks of."""
    (folder / "nodes.csv").write_text("id,age,city,label\nana,31,Rome,yes\nbob,45,Oslo,no\neve,27,Rome,yes\n")
    (folder / "edges.csv").write_text("source,target\nana,bob\nbob,eve\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dta"], "unknown command 'dta': did you mean data"),
        (["data", "stast"], "did you mean stats"),
        (["data", "stats", "--dataset", "communitys", "--clients", "2"], "did you mean communities"),
        (["data", "stats", "--scenario", "disjiont"], "did you mean disjoint"),
        (["data", "partition", "--scenario", "overlapping", "--clients", "7"], "use 5 or 10"),
        (["run", "--method", "fedavg", "--tau", "5"], "--tau is an option of fedpub, not of fedavg"),
        (["run", "--method=fedper", "--no-masks"], "--masks is an option of fedpub and fedpub-plus, not of fedper"),
        (["run", "--method", "fedavg", "--method=local"], "--method is given twice"),
        (["compare", "--methods", "local", "--methods", "fedavg"], "--methods is given twice"),
        (["run", "--max-memory", "4", "--max_memory", "5"], "--max-memory is given twice"),
        (["run", "--masks", "--no-masks"], "--masks and --no-masks contradict each other"),
        (["run", "--weight-decay", "-1"], "--weight-decay -1.0 is not possible"),
        (["run", "--method", "fedsage+", "--generated", "0"], "--generated 0 leaves nothing to mend with"),
        (["run", "--neighbours", "2", "--no-similarity"], "or --measure, --communities and --no-similarity"),
    ],
)
def test_bad_input_is_one_sentence_and_status_two(words, said, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_an_unknown_flag_exits_with_two(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["data", "stats", "--clents", "3"])
    assert caught.value.code == 2
    assert "--clients" in capsys.readouterr().err
