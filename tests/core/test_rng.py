"""Streams are named, and a dropout mask looks random and depends on nothing but its name."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from fedpub.core import rng
from fedpub.core.rng import derive, dropout_mask, numpy_stream, stream_keys, torch_stream
from fedpub.core.segments import Segments
from fedpub.models import Dropout
from fedpub.models.base import dropout_seeds

ROWS, WIDTH = 512, 128
SIGMAS = 4.5  # everything here is seeded: a deviation beyond this is a fault, not bad luck


def segments(*sizes: int) -> Segments:
    return Segments.of(list(sizes), torch.float64, torch.device("cpu"))


def kept(
    ids: tuple[int, ...] = (0,),
    sizes: tuple[int, ...] = (ROWS,),
    *,
    p: float = 0.5,
    width: int = WIDTH,
    seed: int = 0,
    number: int = 1,
    epoch: int = 0,
    layer: int = 1,
) -> Tensor:
    """The factors that a hidden layer of ones is multiplied with."""
    ones = torch.ones(sum(sizes), width, dtype=torch.float64)
    return Dropout(p, dropout_seeds(seed, number, epoch))(ones, layer, torch.tensor(ids), segments(*sizes))


def correlation(one: Tensor, other: Tensor) -> float:
    """Of two masks with p = 0.5, in standard deviations of what independent ones would have."""
    return abs(float(((one - 1) * (other - 1)).mean())) * one.numel() ** 0.5


def test_streams_differ_by_seed_client_round_and_purpose() -> None:
    names = [
        (seed, purpose, client, number) for seed, client, number in product(range(4), repeat=3) for purpose in "ab"
    ]
    assert len({derive(*name) for name in names}) == len(names)
    assert len({numpy_stream(*name).integers(2**63) for name in names}) == len(names)
    drawn = {int(torch.randint(2**62, (), generator=torch_stream(*name))) for name in names}
    assert len(drawn) == len(names)


def test_a_stream_begins_again_by_its_name() -> None:
    assert numpy_stream(3, "split").random(5).tolist() == numpy_stream(3, "split").random(5).tolist()
    first, again = (torch.rand(5, generator=torch_stream(3, "init")) for _ in range(2))
    assert torch.equal(first, again)
    assert derive(0, "split") == 374788079615300020, "sha256sum of 0/split: the streams of stored results do not move"


def test_keys_are_the_published_splitmix64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference generator with seed 1234567, whose n-th state is seed + n times the golden ratio."""
    monkeypatch.setattr(rng, "derive", lambda *_: 1234567)
    unsigned = [key % 2**64 for key in stream_keys(0, torch.arange(1, 6)).tolist()]
    assert unsigned == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_counter_words_by_python_s_own_integers() -> None:
    """Both steps of splitmix64 in numbers without a size; counter 0 is the generator's first state, not its zeroth."""

    def mixed(word: int) -> int:
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    assert mixed(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF, "the published generator's first number with seed 0"
    for key in (0, 12345, 2**62 + 7):
        expected = [mixed(key ^ mixed((n + 1) * 0x9E3779B97F4A7C15 % 2**64)) >> 1 for n in range(4)]
        assert rng.counter_words(torch.tensor([key]), torch.arange(4)).tolist() == expected


def test_keys_differ_by_seed_client_round_epoch_and_layer() -> None:
    clients = torch.arange(50)
    names = list(product(range(3), range(1, 11), range(3), (1, 2)))
    keys = torch.cat([stream_keys(seed, clients, "dropout", *name) for seed, *name in names])
    assert len(keys.unique()) == 50 * len(names)


def test_mix32_is_a_bijection_in_which_every_bit_reaches_every_bit() -> None:
    words = torch.arange(-(2**15), 2**15, dtype=torch.int32) * 65521
    mixed = rng._mix32(words.clone())
    assert len(mixed.unique()) == len(words)
    for bit in range(32):
        flipped = rng._mix32(words ^ rng._signed(1 << bit, 32)) ^ mixed
        for out in range(32):
            share = float(((flipped >> out) & 1).double().mean())
            assert abs(share - 0.5) < 0.05, f"input bit {bit} flips output bit {out} in {share:.0%} of the words"


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.75, 0.9])
def test_share_of_zeros_and_mean(p: float) -> None:
    mask = kept(p=p)
    assert len(mask.unique()) == 2, "zero and one other value"
    share = float((mask == 0).double().mean())
    deviation = (p * (1 - p) / mask.numel()) ** 0.5
    assert abs(share - p) < 1 / 512 + SIGMAS * deviation, "p is rounded to a multiple of 1/256"
    assert abs(float(mask.mean()) - 1) < SIGMAS * deviation / (1 - p)


@pytest.mark.parametrize(
    ("p", "value"), [(0.5, 2.0), (0.25, 4 / 3), (0.75, 4.0), (0.1, 256 / 230), (0.3, 256 / 179), (0.6, 256 / 102)]
)
def test_what_is_kept_is_scaled_exactly(p: float, value: float) -> None:
    assert set(kept(p=p).flatten().tolist()) == {0.0, value}


def test_without_dropout_all_is_kept() -> None:
    assert bool((kept(p=0.0) == 1).all())


@pytest.mark.parametrize("width", [1, 3, 4, 7])
def test_any_width(width: int) -> None:
    mask = kept(width=width, sizes=(4096,))
    assert mask.shape == (4096, width)
    for column in mask.T:
        assert abs(float(column.mean()) - 1) < SIGMAS * 4096**-0.5


def test_dtype() -> None:
    key, own = stream_keys(0, torch.tensor([3])), segments(6)
    single, double = (
        dropout_mask(key, own.owner_N, own.row_N, 5, 0.5, dtype) for dtype in (torch.float32, torch.float64)
    )
    assert single.dtype == torch.float32
    assert torch.equal(single.double(), double)


def test_a_clients_mask_does_not_depend_on_its_neighbours() -> None:
    ids, sizes = (7, 3, 11), (40, 60, 50)
    alone = {client: kept((client,), (size,)) for client, size in zip(ids, sizes, strict=True)}
    together = kept(ids, sizes).split(sizes)
    assert all(torch.equal(part, alone[client]) for client, part in zip(ids, together, strict=True))
    reordered = kept((11, 7, 3), (50, 40, 60)).split((50, 40, 60))
    assert all(torch.equal(part, alone[client]) for client, part in zip((11, 7, 3), reordered, strict=True))


def test_all_64_bits_of_a_key_count() -> None:
    """Keys that differ in their lower or in their upper half alone."""
    keys = torch.tensor([12345 << 32 | 678, 12345 << 32 | 679, 12346 << 32 | 678])
    own = segments(ROWS, ROWS, ROWS)
    first, low, high = dropout_mask(keys, own.owner_N, own.row_N, WIDTH, 0.5, torch.float64).split(ROWS)
    for other in (low, high):
        assert not torch.equal(first, other)
        assert correlation(first, other) < SIGMAS


def test_a_smaller_client_has_the_first_rows_of_a_larger_one() -> None:
    """An entry depends on its place, not on how many follow."""
    assert torch.equal(kept(sizes=(10,)), kept(sizes=(20,))[:10])


@pytest.mark.parametrize("other", [{"seed": 1}, {"ids": (1,)}, {"number": 2}, {"epoch": 1}, {"layer": 2}], ids=str)
def test_masks_of_different_names_are_independent(other: dict) -> None:
    one, two = kept(), kept(**other)
    assert not torch.equal(one, two)
    assert correlation(one, two) < SIGMAS


@pytest.mark.parametrize("client", [0, 1, 19])
def test_neighbouring_entries_are_independent(client: int) -> None:
    """Four entries come from one hash: lags within it and across, down the rows and diagonally."""
    mask = kept((client,))
    for lag in (1, 2, 3, 4, 5, 8, 32, 64):
        assert correlation(mask[:, lag:], mask[:, :-lag]) < SIGMAS, f"columns {lag} apart"
        assert correlation(mask[lag:], mask[:-lag]) < SIGMAS, f"rows {lag} apart"
        assert correlation(mask[lag:, lag:], mask[:-lag, :-lag]) < SIGMAS, f"diagonal {lag}"


def test_no_row_or_column_is_favoured() -> None:
    mask = torch.stack([kept(number=number) for number in range(1, 9)]) - 1
    for axes, names in (((0, 1), "column"), ((0, 2), "row")):
        count = mask.numel() // mask.sum(axes).numel()
        z = mask.sum(axes) / count**0.5
        assert float(z.abs().max()) < SIGMAS, names
        assert 0.7 < float(z.square().mean()) < 1.4, f"the {names} means spread like independent ones"


def test_triples_are_independent() -> None:
    """Pairs can be independent while the third of three is determined: products of three neighbours."""
    bits = kept() - 1
    n = bits.numel() ** 0.5
    assert abs(float((bits[:, 2:] * bits[:, 1:-1] * bits[:, :-2]).mean())) * n < SIGMAS
    assert abs(float((bits[2:] * bits[1:-1] * bits[:-2]).mean())) * n < SIGMAS
    assert abs(float(((kept(number=2) - 1) * (kept(number=3) - 1) * bits).mean())) * n < SIGMAS
