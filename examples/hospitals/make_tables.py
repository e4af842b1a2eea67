"""Tables of three fictional hospitals, from a seed: patients and which of them were treated together.

    python make_tables.py FOLDER

FOLDER gets hospital-a.csv, hospital-b.csv and hospital-c.csv with a row per patient, and as many files of contacts.
The two city hospitals a and b see the same diseases. In the mountain clinic c the same laboratory values mean another
diagnosis, so that one averaged model fits nobody. The last patients of each have no diagnosis yet: those are to be
predicted.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

DIAGNOSES = ("angina", "arrhythmia", "healthy")
WARDS = ("east", "north", "west")
PATIENTS, NEW = 160, 20
CONTACTS = 3  # a patient's, on average
SHARES = {"hospital-a": (0.5, 0.3, 0.2), "hospital-b": (0.45, 0.25, 0.3), "hospital-c": (0.2, 0.5, 0.3)}
# What the laboratory finds with each diagnosis: heart rate, systolic pressure, troponin.
CITY = {"angina": (78, 150, 0.30), "arrhythmia": (110, 128, 0.12), "healthy": (72, 122, 0.08)}
MOUNTAIN = {"angina": (110, 128, 0.12), "arrhythmia": (72, 122, 0.08), "healthy": (78, 150, 0.30)}
SPREAD = (22, 18, 0.14)


def hospital(name: str, seed: int = 0) -> tuple[list[dict[str, object]], list[tuple[str, str]]]:
    """Its patients and its contacts."""
    rng = np.random.default_rng([seed, sum(name.encode())])
    found = rng.choice(DIAGNOSES, size=PATIENTS, p=SHARES[name])
    typical = MOUNTAIN if name == "hospital-c" else CITY
    rows: list[dict[str, object]] = []
    for number, diagnosis in enumerate(found):
        rate, pressure, troponin = rng.normal(typical[diagnosis], SPREAD)
        rows.append(
            {
                "id": f"{name[-1]}{number:03d}",
                "age": int(rng.integers(25, 90)),
                "smoker": str(bool(rng.random() < 0.3)).lower(),
                "ward": rng.choice(WARDS),
                "heart_rate": round(rate, 1),
                "systolic": round(pressure, 1),
                "troponin": round(abs(troponin), 3),
                "diagnosis": diagnosis if number < PATIENTS - NEW else "",
            }
        )
    # Who was treated together: mostly patients with the same disease.
    pairs = set()
    while len(pairs) < PATIENTS * CONTACTS // 2:
        one, other = sorted(rng.integers(PATIENTS, size=2).tolist())
        if one != other and (found[one] == found[other] or rng.random() < 0.15):
            pairs.add((one, other))
    return rows, [(str(rows[one]["id"]), str(rows[other]["id"])) for one, other in sorted(pairs)]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHARES:
        patients, contacts = hospital(name)
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(patients[0]))
            writer.writeheader()
            writer.writerows(patients)
        with (folder / f"{name}-contacts.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("source", "target"), *contacts])
        print(f"{name}: {len(patients)} patients, {len(contacts)} contacts")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
