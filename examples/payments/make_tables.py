"""Accounts and payments of ten fictional banks, from a seed.

    python make_tables.py FOLDER --accounts 1000000 --format parquet

FOLDER gets accounts.parquet with a row per account and payments.parquet with ten payments per account (or .csv). One
account in 200 is fraudulent. Fraud looks alike at all banks, but every bank has only a few known cases, and its own
customers: incomes, ages and habits differ. Some cells are empty, amounts differ by orders of magnitude, and a tenth of
the payments goes to another bank.

Axes: N accounts, E payments.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

BANKS = tuple(f"bank-{letter}" for letter in "abcdefghij")
FRAUD, PAYMENTS = 0.005, 10  # the share of accounts, and payments per account
HABITS = 26  # columns about how an account is used; fraud shifts every second of them a little
SHIFT = 0.45
FIRST, LAST = np.datetime64("2022-01-01"), np.datetime64("2025-01-01")  # when accounts were opened
SEGMENTS, CHANNELS, KINDS = ("private", "student", "business"), ("branch", "web", "app"), ("card", "cash", "transfer")
OUTSIDE = 0.1  # the share of payments to another bank
RING = 0.5  # the share of a fraudulent account's payments that go to another one


def tables(accounts: int, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    bank_N = np.sort(rng.choice(len(BANKS), accounts, p=_sizes()))
    fraud_N = rng.random(accounts) < FRAUD
    return _accounts(rng, bank_N, fraud_N), _payments(rng, bank_N, fraud_N)


def _sizes() -> np.ndarray[Any, Any]:
    """The largest bank has four times the accounts of the smallest."""
    sizes = np.linspace(4, 1, len(BANKS))
    return sizes / sizes.sum()


def _accounts(rng: np.random.Generator, bank_N: np.ndarray[Any, Any], fraud_N: np.ndarray[Any, Any]) -> pa.Table:
    n, banks = len(bank_N), len(BANKS)
    columns: dict[str, Any] = {"account": _names(np.arange(n)), "bank": np.array(BANKS)[bank_N]}
    columns["opened"] = FIRST + rng.integers(0, int((LAST - FIRST) / np.timedelta64(1, "D")), n)
    columns["segment"] = _words(rng, SEGMENTS, rng.dirichlet([4, 2, 1], banks)[bank_N])
    columns["channel"] = _words(rng, CHANNELS, rng.dirichlet([1, 2, 3], banks)[bank_N])
    age_N = rng.normal(rng.uniform(35, 55, banks)[bank_N], 14).clip(18, 95).round()
    income_N = np.exp(rng.normal(rng.uniform(7.2, 8.2, banks)[bank_N], 0.5)).round(2)
    columns["age"] = _with_gaps(rng, age_N, 0.05)
    columns["income"] = _with_gaps(rng, income_N, 0.2)
    usual = rng.normal(0, 0.5, (banks, HABITS))
    for habit in range(HABITS):
        value_N = usual[bank_N, habit] + rng.standard_normal(n)
        value_N += (habit % 2 == 0) * SHIFT * fraud_N
        columns[f"habit_{habit}"] = value_N.astype(np.float32)
    columns["kyc"] = rng.random(n) < np.where(fraud_N, 0.8, 0.9)
    columns["fraud"] = np.where(fraud_N, "yes", "no")
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def _payments(rng: np.random.Generator, bank_N: np.ndarray[Any, Any], fraud_N: np.ndarray[Any, Any]) -> pa.Table:
    n, count = len(bank_N), PAYMENTS * len(bank_N)
    source_E = rng.integers(0, n, count)
    start = np.searchsorted(bank_N, np.arange(len(BANKS) + 1))
    low_E, high_E = start[bank_N[source_E]], start[bank_N[source_E] + 1]
    target_E = rng.integers(low_E, high_E)
    elsewhere_E = rng.random(count) < OUTSIDE
    target_E[elsewhere_E] = rng.integers(0, n, int(elsewhere_E.sum()))
    ring_E = np.flatnonzero(fraud_N[source_E] & (rng.random(count) < RING))
    target_E[ring_E] = _partners(rng, source_E[ring_E], bank_N, fraud_N)
    amount_E = np.exp(rng.normal(np.where(fraud_N[source_E], 5.5, 4.0), 1.2)).clip(0.01).round(2)
    return pa.table(
        {
            "payer": _names(source_E),
            "payee": _names(target_E),
            "amount": amount_E,
            "kind": np.array(KINDS)[rng.choice(len(KINDS), count, p=(0.6, 0.1, 0.3))],
        }
    )


def _partners(
    rng: np.random.Generator,
    account_M: np.ndarray[Any, Any],
    bank_N: np.ndarray[Any, Any],
    fraud_N: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any]:
    """A fraudulent account of the same bank for each of some fraudulent accounts."""
    fraudulent = np.flatnonzero(fraud_N)
    start = np.searchsorted(bank_N[fraudulent], np.arange(len(BANKS) + 1))
    bank_M = bank_N[account_M]
    return fraudulent[rng.integers(start[bank_M], start[bank_M + 1])]


def _names(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """A7, A8, ...: as text, which is what account numbers are."""
    return pa.compute.binary_join_element_wise("A", pa.array(numbers).cast(pa.string()), "")


def _words(rng: np.random.Generator, words: tuple[str, ...], share_NW: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    drawn_N = (rng.random((len(share_NW), 1)) > share_NW.cumsum(1)).sum(1)
    return np.array(words)[drawn_N.clip(max=len(words) - 1)]


def _with_gaps(rng: np.random.Generator, value_N: np.ndarray[Any, Any], share: float) -> pa.Array:
    return pa.array(value_N, mask=rng.random(len(value_N)) < share)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables of ten fictional banks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accounts", type=int, default=100_000)
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    write = pyarrow.parquet.write_table if asked.format == "parquet" else pyarrow.csv.write_csv
    for name, table in zip(("accounts", "payments"), tables(asked.accounts, asked.seed), strict=True):
        write(table, asked.folder / f"{name}.{asked.format}")
        print(f"{name}.{asked.format}: {table.num_rows:,} rows, {table.num_columns} columns")


if __name__ == "__main__":
    main()
