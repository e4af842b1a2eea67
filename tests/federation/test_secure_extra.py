"""Simulations need no cryptography: its library is an extra."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cryptography", "flwr"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import fedpub.paper.recipes, fedpub.federation.coordinator, fedpub.federation.site
import fedpub
found = fedpub.run("communities", clients=5, method="fedavg", rounds=1, hidden=8, secure=True, progress=False)
print(found.summary["rounds"])
"""


def test_a_plain_installation_simulates_secure_runs():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1"
