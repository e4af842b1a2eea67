"""The file `deploy.txt` beside this one: all that a coordinator or a site installs, with published hashes: `make lock`.

The versions are those of constraints.txt, which cannot have hashes: pip would demand one of the checkout as well.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT, LOCK = HERE.parent, HERE / "deploy.txt"
OF_TORCH = ("torch==", "cuda-", "nvidia-", "triton==")  # a version has several builds, for CPUs and for GPUs
BUILDS = "setuptools"  # builds fedpub itself from a checkout
HEADER = """\
# What `fedpub[deploy]` needs, with the hashes of all published files: docs/deployment.md, "Installing with hashes".
# torch is not listed: which of its builds is right depends on the machine. Made from constraints.txt by `make lock`.
"""


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of every pinned package."""
    found: dict[str, tuple[str, list[str]]] = {}
    for block in re.split(r"\n(?=\S)", text):
        if pin := re.match(r"([\w.-]+)==([^\s;\\]+)", block):
            found[normal(pin[1])] = pin[2], re.findall(r"--hash=(\S+)", block)
    return found


def lock(resolved: str, constraints: str) -> str:
    """The file, from what the resolver found: without torch and its libraries; all else has to be pinned."""
    known = pins(constraints)
    kept = [one for one in re.split(r"\n(?=\S)", resolved.strip()) if not one.startswith(OF_TORCH)]
    for name, (version, _) in pins("\n".join(kept)).items():
        if name not in known or known[name][0] != version:
            sys.exit(f"{name}=={version} is not in constraints.txt; pin it there, then make lock")
    return HEADER + "".join(f"{one}\n" for one in kept)


def main() -> None:
    words = ["uv", "pip", "compile", "pyproject.toml", "-", "--extra", "deploy", "--constraint", "constraints.txt"]
    form = ["--generate-hashes", "--universal", "--no-header", "--no-annotate", "--quiet", "--no-config"]
    made = subprocess.run([*words, *form], cwd=ROOT, input=BUILDS, stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        sys.exit(f"uv could not resolve the packages of fedpub[deploy] (status {made.returncode}): its reason is above")
    LOCK.write_text(lock(made.stdout, (ROOT / "constraints.txt").read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
