"""Container, Kubernetes and systemd files: they are valid, hardened, and start fedpub with flags that exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from fedpub.cli import action
from fedpub.cli.flags import parser
from fedpub.federation.requests import Terms
from fedpub.flower.coordinator_view import CoordinatorView
from fedpub.flower.monitor import Monitor
from fedpub.flower.processes import GRACE, free_port, start, stop
from fedpub.flower.status import status_of

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; it comes with fedpub[docs]")
ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SITES = ("hospital-a", "hospital-b", "hospital-c")
UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))
KUBERNETES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
SETUP = ROOT / "examples" / "hospitals" / "setup.sh"


def documents() -> list[dict[str, Any]]:
    return [one for path in KUBERNETES for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def pods() -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in documents() if one["kind"] in ("StatefulSet", "Deployment")]


def unit(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if "=" in line and not line.startswith("#")]
    return [(name, value) for name, _, value in pairs]


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Where fedpub is started, and with which words."""
    for name, service in COMPOSE["services"].items():
        if service["command"]:
            yield f"compose.yaml {name}", service["command"]
    for pod in pods():
        for container in pod["containers"]:
            yield f"kubernetes {container['name']}", container["args"]
    for path in UNITS:
        yield path.name, shlex.split(dict(unit(path))["ExecStart"])[1:]
    text = SETUP.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^ *(fedpub .*)$", text, flags=re.M):
        yield f"setup.sh {line[:30]}", shlex.split(re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", line))[1:]


LINES = list(command_lines())


@pytest.mark.parametrize(("place", "words"), LINES, ids=[place for place, _ in LINES])
def test_the_real_command_line_takes_every_command(place, words):
    verb, rest = " ".join(words[:2]), words[2:]
    found = parser(action(verb), rest)
    flags = {name: one for one in found._actions for name in one.option_strings}
    typed = [word for word in rest if word.startswith("--")]
    assert typed, place
    assert set(typed) <= set(flags), f"{place}: {set(typed) - set(flags)}"


def test_units_and_containers_are_all_there():
    assert len(LINES) == 4 + 2 + 2 + 5
    assert [path.name for path in UNITS] == ["fedpub-coordinator.service", "fedpub-site@.service"]


def test_what_supervises_a_coordinator_or_a_site_waits_longer_than_it_waits_for_its_own_processes():
    waits = {path.name: dict(unit(path))["TimeoutStopSec"] for path in UNITS}
    waits |= {name: one["stop_grace_period"] for name, one in COMPOSE["services"].items() if "restart" in one}
    waits |= {pod["containers"][0]["name"]: str(pod["terminationGracePeriodSeconds"]) for pod in pods()}
    assert set(waits) >= {"fedpub-coordinator.service", "coordinator", "site", *SITES}
    short = {name: wait for name, wait in waits.items() if float(wait.removesuffix("s")) < 1.5 * GRACE}
    assert not short


# Messages and memory


def mebibytes(text: str) -> int:
    """Of 2g, 4Gi or 8G."""
    return int(text.rstrip("iGg")) * 1024


def largest(words: list[str]) -> int:
    return int(words[words.index("--max-message") + 1]) if "--max-message" in words else Terms().max_message


def test_the_largest_message_fits_into_the_memory_of_the_coordinator():
    """The gate needs about four times as much, and should not take more than half of all."""
    (setup,) = [
        words for place, words in LINES if place.startswith("setup.sh") and words[:2] == ["coordinator", "init"]
    ]
    docs = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^fedpub (coordinator init .*)$", docs.partition("## Kubernetes")[2], flags=re.M)
    (pod,) = [one for one in pods() for container in one["containers"] if container["name"] == "coordinator"]
    systemd = dict(unit(ROOT / "examples" / "systemd" / "fedpub-coordinator.service"))
    found = {
        "compose": (largest(setup), COMPOSE["services"]["coordinator"]["mem_limit"]),
        "kubernetes": (largest(shlex.split(line)), pod["containers"][0]["resources"]["limits"]["memory"]),
        "systemd": (Terms().max_message, systemd["MemoryMax"]),
    }
    assert not {name: pair for name, pair in found.items() if 4 * pair[0] > mebibytes(pair[1]) / 2}


# Containers


def test_every_container_is_hardened_and_bounded():
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"] == "10001:10001", name
        assert service["mem_limit"], name
        assert service["image"] == "fedpub", name


def test_a_container_sees_its_own_folder_and_sites_reach_the_coordinator_only():
    services = COMPOSE["services"]
    assert services["coordinator"]["volumes"] == ["coordinator:/data/coordinator"]
    assert services["setup"]["network_mode"] == "none"
    for site in SITES:
        assert services[site]["volumes"] == [f"{site}:/data/{site}"]
        assert services[site]["networks"] == [site]
    assert services["coordinator"]["networks"] == list(SITES)
    assert all(network == {"internal": True} for network in COMPOSE["networks"].values())
    assert not any("ports" in service for service in services.values())


def dockerfile() -> list[str]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_the_image_has_one_user_without_rights_and_the_pinned_packages():
    lines = dockerfile()
    words = {line.split()[0] for line in lines}
    assert words <= {
        "ARG",
        "FROM",
        "ENV",
        "RUN",
        "WORKDIR",
        "COPY",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
        "CMD",
        "STOPSIGNAL",
        "ENTRYPOINT",
    }
    last = lines[[i for i, line in enumerate(lines) if line.startswith("FROM")][-1] :]
    assert "USER 10001:10001" in last
    assert not any(line.startswith("RUN") for line in last[last.index("USER 10001:10001") :])
    assert 'ENTRYPOINT ["fedpub"]' in last
    assert all("--constraint constraints.txt" in line for line in lines if "pip install" in line)
    for mounted in ("coordinator", *SITES):
        assert f"/data/{mounted}" in next(line for line in last if "install --directory" in line)
    monitored = [service["command"] for service in COMPOSE["services"].values() if service["command"]]
    assert all(command[command.index("--monitor") + 1] == "9464" for command in monitored)


def test_the_health_check_of_the_image_asks_healthz():
    (check,) = [line.partition(" CMD ")[2] for line in dockerfile() if line.startswith("HEALTHCHECK")]
    python, *words = json.loads(check)
    assert python == "python"
    view = CoordinatorView()
    env = os.environ | {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    with Monitor("0", view) as monitor:
        port = str(monitor.place).rpartition(":")[2].removesuffix("/metrics")
        command = [sys.executable, *(word.replace("9464", port) for word in words)]
        assert subprocess.run(command, env=env, timeout=60).returncode == 0
        view.is_serving = lambda: False
        assert subprocess.run(command, env=env, timeout=60).returncode == 1


def test_what_the_image_is_made_of_is_in_the_build_s_context():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = {
        word
        for line in dockerfile()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert copied == kept
    assert all((ROOT / name).exists() for name in kept)


# Kubernetes


def test_pods_are_restricted_and_probed():
    assert len(pods()) == 2
    for pod in pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            ports = {port["name"] for port in container["ports"]}
            probes = [container[name] for name in container if name.endswith("Probe")]
            probed = {
                one["port"] for probe in probes for kind, one in probe.items() if kind in ("httpGet", "tcpSocket")
            }
            assert probed
            assert probed <= ports
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            claims = {
                one["metadata"]["name"]
                for doc in documents()
                for one in doc.get("spec", {}).get("volumeClaimTemplates", [])
            }
            assert mounts <= {volume["name"] for volume in pod["volumes"]} | claims


def test_a_site_that_cannot_reach_its_coordinator_is_not_restarted():
    (site,) = [one for pod in pods() for one in pod["containers"] if one["name"] == "site"]
    assert "httpGet" not in site["livenessProbe"]


def test_nothing_is_reachable_that_is_not_named():
    policies = {one["metadata"]["name"]: one["spec"] for one in documents() if one["kind"] == "NetworkPolicy"}
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["coordinator"]["ingress"][0]["ports"] == [{"port": 9443}]


def test_kustomize_puts_it_together():
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    words = ["kubectl", "kustomize", str(ROOT / "examples" / "kubernetes")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = list(yaml.safe_load_all(done.stdout))
    assert len(found) == len(documents()) - 1
    assert all(one["metadata"].get("namespace") == "fedpub" for one in found if one["kind"] != "Namespace")


# systemd


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_hardened_and_restart_after_every_failure(path):
    found = dict(unit(path))
    assert found["Restart"] == "on-failure"
    assert "RestartPreventExitStatus" not in found, "status 2 is fixed elsewhere, and the unit continues by itself"
    assert (found["NoNewPrivileges"], found["ProtectSystem"], found["PrivateTmp"]) == ("yes", "strict", "yes")
    assert found["ReadWritePaths"] == found["WorkingDirectory"]
    assert found["User"] == "fedpub"
    assert {"MemoryMax", "LimitNOFILE"} <= found.keys()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong(path, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / path.name.replace("@", "@a")
    program = dict(unit(path))["ExecStart"].split()[0]
    copy.write_text(path.read_text(encoding="utf-8").replace(program, "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert copy.name not in done.stderr, done.stderr
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(copy)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


# The containers' commands as processes, in the order of the services


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")
@pytest.mark.timeout(300)
def test_what_the_containers_do_is_a_federation(tmp_path):
    data, port = tmp_path / "data", free_port()
    for name in ("coordinator", *SITES):
        (data / name).mkdir(parents=True)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, words in (("fedpub", f'"{sys.executable}" -m fedpub "$@"'), ("python", f'"{sys.executable}" "$@"')):
        (bin_ / name).write_text(f"#!/bin/sh\nexec {words}\n")
        (bin_ / name).chmod(0o755)
    more = {"PATH": f"{bin_}:{os.environ['PATH']}", "ROUNDS": "2", "COORDINATOR": "localhost", "PORT": str(port)}
    env = os.environ | more | {"OMP_NUM_THREADS": "1"}
    words = [*COMPOSE["services"]["setup"]["entrypoint"][:-2], str(SETUP), str(data)]
    for expected in ("hospital-c is admitted", "set up already"):
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout

    def command(name: str) -> list[str]:
        given = COMPOSE["services"][name]["command"]
        placed = [word.replace("/data/", f"{data}/") for word in given]
        return [str(bin_ / "fedpub"), *(str(free_port()) if word == "9464" else word for word in placed)]

    running = {}
    try:
        for name in ("coordinator", *SITES):
            running[name] = start(command(name), tmp_path / f"{name}.log", more | {"OMP_NUM_THREADS": "1"})
        for name, process in running.items():
            assert process.wait(200) == 0, (tmp_path / f"{name}.log").read_text()
    finally:
        stop([*running.values()])
    found = status_of(data / "coordinator" / "fed")
    assert (found["state"], [site["rounds"] for site in found["sites"]]) == ("finished", [2, 2, 2])
    assert all((data / site / "site" / "model").is_dir() for site in SITES)
