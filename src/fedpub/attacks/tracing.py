"""Whether a node was among a client's training nodes, from the step that these made its weights take.

The gradient of a round in full batch is the mean of the gradients g_i of the training nodes. Who knows a candidate node
and its neighbourhood can compute g_i at the weights that were sent. So the candidates that took part solve

    min ‖G − Σ_i m_i g_i‖²,  m ≥ 0,

which is the passive attack of Nasr et al. (2019) for whole gradients. And a node whose words did not move any weight
was not there: that is known without any solution, in later rounds, too.

Axes: M candidates, P weights.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

RIDGE = {True: 1e-3, False: 0.5}  # relative to the mean square; dropout changes g_i, and steps have lost their sizes
ABSENT = 100.0  # one word that did not move outweighs every m


def shares(each_MP: Tensor, observed_P: Tensor, exact: bool) -> Tensor:
    """m of every candidate relative to the mean, [M]; if sizes of the gradient are lost, of g_i / ‖g_i‖."""
    if not exact:
        each_MP = each_MP / each_MP.norm(dim=1, keepdim=True).clamp(min=1e-30)
        observed_P = observed_P / observed_P.abs().max().clamp(min=1e-30)
    gram_MM = (each_MP @ each_MP.T).double()
    gram_MM += RIDGE[exact] * gram_MM.diagonal().mean().clamp(min=1e-30) * torch.eye(len(gram_MM), dtype=torch.float64)
    half_MM = torch.linalg.cholesky(gram_MM)
    aim_M = torch.linalg.solve_triangular(half_MM, (each_MP @ observed_P).double().unsqueeze(1), upper=False)[:, 0]
    found: np.ndarray = nnls(half_MM.T.numpy(), aim_M.numpy(), maxiter=30 * len(gram_MM))[0]
    m_M = torch.from_numpy(found)
    return m_M / m_M.mean().clamp(min=1e-30)


def untouched(rows_MF: Tensor, moved_F: Tensor) -> Tensor:
    """The share of the words near a candidate, [M, F], of which no weight has moved: [M]."""
    return (rows_MF & ~moved_F).double().sum(1) / rows_MF.double().sum(1).clamp(min=1)


def score(shares_M: Tensor, untouched_M: Tensor) -> Tensor:
    return shares_M - ABSENT * untouched_M
