"""Whether a GPU is recording; meanwhile no code may read a tensor's values."""

from __future__ import annotations

import torch
from torch import Tensor


def recording(tensor: Tensor) -> bool:
    """Whether work on this tensor is being recorded as a CUDA graph, to be replayed with other values."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def any_of(chosen: Tensor) -> bool:
    """Whether any entry is true; always true while recording, so that the general case is recorded."""
    return recording(chosen) or bool(chosen.any())
