"""Whether a change of the code changed a result: experiments of every kind, as bytes, before and after.

    python tests/unchanged.py record FOLDER      with the code as it was
    python tests/unchanged.py check FOLDER       with the code as it is; names every difference

What is compared: `summary.json` and `clients.csv` without times, and `models.safetensors`. Both times on the same
machine, with the same packages and OMP_NUM_THREADS. With FEDPUB_DATA the real graphs are among the data.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

METHODS = ("local", "fedavg", "fedprox", "fedper", "fedgnn", "fedsage", "gcfl", "oracle", "fedpub", "fedpub-plus")
SMALL = "--clients 6 --hidden 16 --rounds 4 --seed 3"
COMMUNITIES = f"--dataset communities {SMALL}"
EXPERIMENTS = {
    **{f"nodes-{method}": f"{COMMUNITIES} --epochs 2 --method {method}" for method in METHODS},
    **{f"double-{method}": f"{COMMUNITIES} --dtype float64 --method {method}" for method in METHODS},
    **{
        f"links-{method}": f"{COMMUNITIES} --task link-prediction --epochs 3 --method {method}"
        for method in ("local", "fedavg", "fedper", "gcfl", "fedpub", "fedpub-plus")
    },
    "links-mlp": f"{COMMUNITIES} --task link-prediction --decoder mlp --epochs 3 --method fedpub",
    **{
        f"part-{method}": f"{COMMUNITIES} --fraction 0.5 --failures 0.2 --rounds 6 --method {method}"
        for method in ("fedavg", "fedper", "gcfl", "fedpub", "fedpub-plus")
    },
    "overlapping": f"--dataset communities --scenario overlapping {SMALL} --clients 10 --method fedpub",
    "overlapping-fedgnn": f"--dataset communities --scenario overlapping {SMALL} --clients 10 --method fedgnn",
    "natural": "--dataset communities-5-15 --hidden 16 --rounds 3 --method fedpub",
    "sage": f"{COMMUNITIES} --model sage --method fedpub",
    "twin": f"{COMMUNITIES} --model twin --method fedpub --dtype float64",
    "chunks": f"{COMMUNITIES} --method fedpub-plus --chunk 2",
    "memory": f"{COMMUNITIES} --method fedpub --max-memory 1.5 --dtype float64",
    "official": f"{COMMUNITIES} --method fedpub --official --epochs 2",
    "pruned": f"{COMMUNITIES} --method fedpub --mask-lr 10 --lambda1 6 --rounds 8",
    **{
        f"measure-{measure}": f"{COMMUNITIES} --method fedpub --measure {measure}"
        for measure in ("parameter", "gradient", "label")
    },
    **{f"proxy-{proxy}": f"{COMMUNITIES} --method fedpub --proxy {proxy}" for proxy in ("er", "one", "feature")},
    "embedded-by-server": f"{COMMUNITIES} --method fedpub --embedding server",
    "explicit": f"{COMMUNITIES} --method fedpub --communities explicit",
    "neighbours": f"{COMMUNITIES} --method fedpub --neighbours 3",
    "no-masks": f"{COMMUNITIES} --method fedpub --no-masks --no-similarity",
    **{
        f"defence-{defence}": f"{COMMUNITIES} --method fedpub --defence {defence}"
        for defence in ("none", "clip", "median", "guard")
    },
}
REAL = {
    **{
        f"cora-{method}": f"--dataset cora --clients 5 --hidden 32 --rounds 4 --method {method}"
        for method in ("local", "fedavg", "fedsage", "fedpub", "fedpub-plus")
    },
    "cora-links": "--dataset cora --clients 3 --hidden 32 --rounds 2 --epochs 3 --task link-prediction",
    "cora-overlapping": "--dataset cora --scenario overlapping --clients 10 --hidden 32 --rounds 2",
}
DEPLOY = "--dataset communities --scenario disjoint --sites 3 --hidden 16 --rounds 3 --dtype float64"
DEPLOYED = {
    "deployed-fedpub": f"{DEPLOY} --method fedpub",
    "deployed-fedsage": f"{DEPLOY} --method fedsage",
}
TIMES = ("seconds", "setup_seconds")


def main(task: str, folder: Path) -> int:
    kept = folder / "unchanged.json"
    before = json.loads(kept.read_text()) if kept.is_file() else {}
    wrong = []
    for name, run in _runs().items():
        if task == "record" and name in before:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            found = run(Path(scratch) / name)
        if task == "record":
            folder.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(before | {name: found}, indent=1) + "\n")
            before = json.loads(kept.read_text())
        else:
            wrong += [f"{name}: {file} differs" for file in before[name] if found[file] != before[name][file]]
            print(name, "differs" if wrong and wrong[-1].startswith(f"{name}:") else "is the same", flush=True)
    print("\n".join(wrong) or f"{len(before)} experiments, no difference")
    return 1 if wrong else 0


def _runs() -> dict[str, Callable[[Path], dict[str, str]]]:
    flags = EXPERIMENTS | (REAL if os.environ.get("FEDPUB_DATA") else {})
    runs: dict[str, Callable[[Path], dict[str, str]]] = {
        name: partial(_run, ["run", "--quiet", *_words(words)]) for name, words in flags.items()
    }
    runs["resumed"] = _resumed
    return runs | {
        name: partial(_run, ["deploy", "local", "--quiet", *_words(words)]) for name, words in DEPLOYED.items()
    }


def _fedpub(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "fedpub", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"fedpub {' '.join(words)}: {done.stderr}")


def _words(flags: str) -> list[str]:
    """A flag that is given again replaces the earlier one."""
    given = dict.fromkeys(flags.replace(" --", "\n--").splitlines())
    last = {one.split()[0]: one for one in given}
    return " ".join(last.values()).split()


def _run(words: list[str], out: Path) -> dict[str, str]:
    _fedpub(*words, "--out", str(out))
    return _digests(out)


def _resumed(out: Path) -> dict[str, str]:
    """A run that is interrupted by Ctrl-C in its middle and resumed."""
    words = ["run", *_words(f"{COMMUNITIES} --rounds 400 --method fedpub --quiet --out {out}")]
    process = subprocess.Popen([sys.executable, "-m", "fedpub", *words], stderr=subprocess.DEVNULL)
    while not (out / "rounds.csv").is_file() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    if not process.wait() or (out / "summary.json").is_file():
        raise SystemExit("the run that was to be interrupted was too fast")
    _fedpub("run", "--resume", str(out), "--quiet")
    return _digests(out)


def _digests(out: Path) -> dict[str, str]:
    summary = json.loads((out / "summary.json").read_text())
    with (out / "clients.csv").open() as file:
        rows = [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)]
    timeless = {name: value for name, value in summary.items() if name not in TIMES}
    texts = {"summary.json": json.dumps(timeless).encode(), "clients.csv": json.dumps(rows).encode()}
    texts["models.safetensors"] = (out / "models.safetensors").read_bytes()
    return {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
