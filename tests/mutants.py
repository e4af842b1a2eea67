"""Deliberate defects, one at a time, each with the tests that must notice it: `make mutants`.

A test that cannot fail guards nothing. Every line of `TABLE` is a small wrong change of a source file; it is made in a
copy, the selected tests run there, and one of them has to fail. Add a line for every rule that a test of yours guards:
in the part of its area, so that others who add lines do not meet you there.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("src") / "fedpub"
LIMIT = 300  # seconds for the selected tests; a defect that makes them hang is noticed, too


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # below src/fedpub
    old: str  # occurs exactly once there
    new: str
    tests: str  # files or tests below tests/, separated by blanks
    unnoticed: str = ""  # why it is right that nothing notices this one

    def apply(self, source: Path) -> str:
        """Make the change in a copy of the sources; what the file was before."""
        path = source / self.file
        whole = path.read_text(encoding="utf-8")
        assert whole.count(self.old) == 1, f"{self.name}: the old text occurs {whole.count(self.old)} times"
        path.write_text(whole.replace(self.old, self.new), encoding="utf-8")
        return whole


M = Mutant
TABLE = (
    # algorithms
    M(
        "alpha-transposed",
        "algorithms/fedpub.py",
        "mean = average_active(alpha_KK, tree",
        "mean = average_active(alpha_KK.T.contiguous(), tree",
        "test_algorithms.py",
    ),
    M(
        "communities-threshold-above",
        "algorithms/fedpub.py",
        "threshold = 0.5 if",
        "threshold = 0.501 if",
        "test_algorithms.py",
    ),
    M(
        "communities-threshold-below",
        "algorithms/fedpub.py",
        "threshold = 0.5 if",
        "threshold = 0.499 if",
        "test_algorithms.py",
    ),
    M(
        "plus-mean-over-unknown",
        "algorithms/fedpub_plus.py",
        "/ known_K.sum().clamp(min=1)",
        "/ len(known_K)",
        "test_fedpub_plus.py",
    ),
    M(
        "plus-mean-of-wrong-clients",
        "algorithms/fedpub_plus.py",
        'update({ALONE + "val": server[ALONE + "val"]}, ids, claimed)',
        'update({ALONE + "val": server[ALONE + "val"]}, torch.arange(len(ids)), claimed)',
        "test_fedpub_plus.py",
    ),
    # similarity, rng
    M(
        "feature-proxy-same-draw",
        "similarity.py",
        'numpy_stream(seed, "proxy", "features", client)',
        'numpy_stream(seed, "proxy", "features")',
        "test_similarity.py",
    ),
    M("neighbours-block-offset", "similarity.py", "ranked[own, own + start]", "ranked[own, own]", "test_similarity.py"),
    M("dropout-floor", "rng.py", "threshold = round(p * 256)", "threshold = int(p * 256)", "test_rng.py"),
    M("counter-from-zero", "rng.py", "_mix64((counter + 1) * _GOLDEN)", "_mix64(counter * _GOLDEN)", "test_rng.py"),
    # data
    M(
        "overlap-odd-node",
        "data/partition.py",
        "half = (len(community) + sample % 2) // 2",
        "half = len(community) // 2",
        "test_partition.py",
    ),
    M(
        "overlap-third",
        "data/partition.py",
        "half = (len(community) + sample % 2) // 2",
        "half = (len(community) + sample % 2) // 3",
        "test_partition.py",
    ),
    M(
        "merge-without-room",
        "data/partition.py",
        "fits = np.flatnonzero(room >= len(piece))",
        "fits = np.arange(clients)",
        "test_partition.py",
    ),
    M(
        "merge-room-never-less",
        "data/partition.py",
        "room[client] -= len(piece)",
        "pass",
        "test_partition.py",
    ),
    M(
        "merge-anywhere-when-full",
        "data/partition.py",
        "fits = np.flatnonzero(room == room.max())",
        "fits = np.arange(clients)",
        "test_partition.py",
    ),
    M(
        "merge-empty-handed",
        "data/partition.py",
        "if index < clients:",
        "if False:",
        "test_partition.py",
    ),
    # models, tasks
    M(
        "columns-wrong-p",
        "models/columns.py",
        "replace(dropout, p=self.p).columns",
        "dropout.columns",
        "test_fedpub_plus.py test_models.py",
    ),
    M(
        "f1-over-true-classes",
        "tasks/node_classification.py",
        "(either > 0).sum(1)",
        "(confusion_RCC.sum(2) > 0).sum(1)",
        "test_algorithms.py test_simulate.py",
    ),
    # engine: simulate
    M(
        "weights-unchecked",
        "engine/simulate.py",
        '_check_finite("sum of all weights", found["total"], torch.arange(len(everyone)), number)',
        "pass",
        "test_simulate.py",
    ),
    M(
        "sparsity-of-both-models",
        "engine/simulate.py",
        "leaf.dim() >= 3 and not name.startswith(SECOND)",
        "leaf.dim() >= 3",
        "test_simulate.py test_fedpub_plus.py",
    ),
    # engine: site
    # engine: federate
    # engine: joining, refusal, wire, setup
    # engine: robust
    # flower
    # results, report
    M(
        "report-pairs-scrambled",
        "report/summary.py",
        "np.array([two[seed] for seed in common])",
        "np.array([two[seed] for seed in reversed(common)])",
        "test_report.py",
    ),
    M(
        "report-averages-scrambled",
        "report/summary.py",
        "common = sorted(values[label].keys() & values[best].keys())",
        "common = list(values[label].keys() & values[best].keys())",
        "test_report.py",
    ),
    # paper
    M(
        "paper-reported-splits",
        "paper/beyond.py",
        "REPORTED_ON = 0, (7, 8, 9)",
        "REPORTED_ON = 0, (0, 1, 2)",
        "test_paper.py",
    ),
    M(
        "paper-ingredients-by-test",
        "paper/beyond.py",
        'value=lambda summary: summary["val"],\n        rows_quick=("FED-PUB",',
        'value=lambda summary: summary["test"],\n        rows_quick=("FED-PUB",',
        "test_paper.py",
    ),
    M(
        "paper-round-off-by-one",
        "paper/variants.py",
        "run[min(wanted, len(run)) - 1]",
        "run[min(wanted, len(run) - 1)]",
        "test_paper.py",
    ),
    M(
        "paper-bytes-down",
        "paper/costs.py",
        'up + float(np.mean([one["bytes_down"] for one in summaries]))',
        "up",
        "test_paper.py",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", action="append", help="only defects whose name contains this")
    parser.add_argument("--list", action="store_true", help="list the defects and run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    asked = parser.parse_args()
    chosen = [one for one in TABLE if not asked.only or any(part in one.name for part in asked.only)]
    if asked.list or not chosen:
        print("\n".join(f"{one.name:40} {one.file:32} {one.tests}" for one in chosen) or "no defect has such a name")
        return 0 if chosen else 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        desks: queue.Queue[Path] = queue.Queue()
        for number in range(asked.jobs):
            desk = Path(folder) / str(number)
            shutil.copytree(ROOT / "src", desk / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            desks.put(desk)
        selected = sorted({test for one in chosen for test in one.tests.split()})
        if (found := _tested(desks.queue[0], selected)) != "unnoticed":
            print(f"the tests fail, or were not found, without any defect ({found}); mend that first")
            return 2

        def tried(one: Mutant) -> str:
            desk = desks.get()
            path = desk / SOURCE / one.file
            try:
                whole = one.apply(desk / SOURCE)
            except (AssertionError, OSError) as error:
                desks.put(desk)
                return f"error: {error}"
            _forget(path)
            found = _tested(desk, one.tests.split())
            path.write_text(whole, encoding="utf-8")
            _forget(path)
            desks.put(desk)
            return found

        counts = {"noticed": 0, "unnoticed": 0, "accepted": 0, "error": 0}
        with ThreadPoolExecutor(asked.jobs) as pool:
            for one, found in zip(chosen, pool.map(tried, chosen), strict=True):
                if found == "unnoticed" and one.unnoticed:
                    found = f"accepted: {one.unnoticed}"
                counts[found.split(":")[0]] += 1
                print(f"{one.name:40} {found}", flush=True)
    print(
        f"{counts['noticed']} of {len(chosen)} noticed, {counts['unnoticed']} unnoticed, {counts['accepted']} accepted "
        f"as unnoticed, {counts['error']} errors, {time.monotonic() - began:.0f} s"
    )
    return 1 if counts["unnoticed"] or counts["error"] else 0


def _tested(desk: Path, tests: list[str]) -> str:
    """Run tests with the sources at a desk."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--timeout=120"]
    environment = {**os.environ, "PYTHONPATH": str(desk / "src"), "CI": "1", "OMP_NUM_THREADS": "1"}
    environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(desk / "hypothesis")
    try:
        done = subprocess.run(
            [*words, *(str(ROOT / "tests" / test) for test in tests)],
            cwd=ROOT,
            env=environment,
            timeout=LIMIT,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "noticed"
    # 0 all passed, 1 one failed; anything else is no answer: a test that is not there, a file that cannot be imported.
    said = {0: "unnoticed", 1: "noticed"}.get(done.returncode)
    return said or f"error: pytest ends with {done.returncode}: " + " ".join(done.stdout.split()[-25:])


def _forget(path: Path) -> None:
    """Compiled files are told apart by size and seconds, which two versions may share."""
    for made in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        made.unlink()


if __name__ == "__main__":
    sys.exit(main())
