"""Files of tensors: what was not written there is found."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.errors import FedpubError

CONTENT = {
    "b": torch.tensor(True),
    "empty": torch.zeros(0, 3),
    "w": torch.arange(12.0).view(3, 4).T,  # not contiguous
    "whole": torch.tensor([-1, 2**40]),
    "one": torch.arange(4)[::2][1:],  # contiguous, whatever its stride
}


def test_what_was_written_comes_back(tmp_path):
    write_tensors(tmp_path / "one", CONTENT, {"round": "3"})
    write_tensors(tmp_path / "two", CONTENT, {"round": "3"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    found, header = read_tensors(tmp_path / "one")
    assert header == {"round": "3"}
    assert found.keys() == CONTENT.keys()
    assert all(torch.equal(found[name], part) for name, part in CONTENT.items())


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_no_flipped_bit_changes_what_is_read(tmp_path_factory, data):
    """A file with one flipped bit is refused, or holds what was written; without a header where its name was hit."""
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    write_tensors(path, CONTENT, {"round": "3"})
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[place // 8] ^= 1 << place % 8
    path.write_bytes(bytes(whole))
    try:
        found, header = read_tensors(path)
    except FedpubError as error:
        assert "damaged or not a fedpub file" in str(error)  # noqa: PT017
        return
    assert not header or header["round"] == "3"
    assert all(torch.equal(found[name], part) for name, part in CONTENT.items())


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_file_that_was_cut_is_refused(size, tmp_path):
    write_tensors(tmp_path / "one", CONTENT, {})
    (tmp_path / "one").write_bytes((tmp_path / "one").read_bytes()[:size])
    with pytest.raises(FedpubError, match="cannot be read"):
        read_tensors(tmp_path / "one")


def test_a_file_from_before_there_was_a_digest_is_read(tmp_path):
    safetensors.torch.save_file({"w": torch.ones(2)}, tmp_path / "old", metadata={"fedpub": '{"round": "3"}'})
    found, header = read_tensors(tmp_path / "old")
    assert (found["w"].tolist(), header) == ([1, 1], {"round": "3"})
