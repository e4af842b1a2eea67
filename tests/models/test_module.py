"""A PyTorch module as a model: numbers by hand, independence of the stack, what is refused."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GAT, GCNConv, GraphConv

import fedpub
from fedpub.algorithms import METHODS
from fedpub.core.tree import Tree, stacked
from fedpub.data.clients.stack import Clients, stack
from fedpub.errors import FedpubError
from fedpub.models import Dropout, Module
from fedpub.models.base import OUTPUT, dropout_seeds
from fedpub.models.proxy import random_proxy
from small import NODES, subgraphs

pytestmark = pytest.mark.filterwarnings("ignore:the model .* is a module")
F, H, C = 5, 4, 3


class Net(torch.nn.Module):
    def __init__(self, features: int = F, hidden: int = H, classes: int = C, p: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = GraphConv(features, hidden)
        self.drop = torch.nn.Dropout(p)
        self.last = torch.nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.last(self.drop(torch.relu(self.conv(x, edge_index, edge_weight))))


def clients(*which: int) -> Clients:
    everyone = subgraphs("plain")
    return stack([everyone[one] for one in which or range(3)], C, dtype=torch.float64, steps=0)


def weights(model: Module, count: int) -> Tree:
    return stacked(model.init(F, C, torch.Generator()), count)


class Sums(torch.nn.Module):
    """Outputs that can be read off the graph: the weighted sum of a node's neighbours, times a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1, C))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        assert edge_weight is None
        into = torch.zeros(len(x), 1, dtype=x.dtype).index_add(0, edge_index[1], x[edge_index[0], 1:2])
        return into * self.scale


def test_a_module_gets_each_clients_own_features_and_both_directions_of_its_edges() -> None:
    model = Module.of(Sums())
    found = model.apply(weights(model, 3), clients())[:, 0]
    # Feature 1 is 2, 0, -1 on the path, 1, 0, -2, 0 on the star, and 0 in the last client.
    assert found.tolist() == [0, 1, 0, -2, 1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("p", [0.0, 0.5], ids=["plain", "dropout"])
def test_a_clients_output_and_gradient_do_not_depend_on_who_is_beside_it(p: float) -> None:
    model = Module.of(Net(p=0.5))
    dropout = Dropout(p, dropout_seeds(0, 1, 0))
    together = {name: leaf.requires_grad_() for name, leaf in weights(model, 3).items()}
    output = model.apply(together, clients(), dropout)
    slopes = torch.autograd.grad(output.square().sum(), list(together.values()))
    for client, own in enumerate(torch.split(output, [len(nodes) for nodes in NODES])):
        alone = {name: leaf.requires_grad_() for name, leaf in weights(model, 1).items()}
        other = model.apply(alone, clients(client), dropout)
        torch.testing.assert_close(own, other, rtol=0, atol=0)
        slope = torch.autograd.grad(other.square().sum(), list(alone.values()))
        torch.testing.assert_close([one[client] for one in slopes], [one[0] for one in slope], rtol=0, atol=1e-12)


def test_a_modules_dropout_is_of_training_only_and_of_a_named_stream() -> None:
    model = Module.of(Net(p=0.5))
    w, data = weights(model, 3), clients()
    first, second, later = (model.apply(w, data, Dropout(0.0, dropout_seeds(0, 1, at))) for at in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, later)
    evaluated = model.apply(w, data)
    assert torch.equal(evaluated, model.apply(w, data))
    assert not torch.equal(evaluated, first)


def test_a_modules_random_numbers_leave_torchs_own_alone() -> None:
    model = Module.of(Net(p=0.5))
    w = weights(model, 3)
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    model.apply(w, clients(), Dropout(0.0, dropout_seeds(0, 1, 0)))
    assert torch.equal(torch.rand(2), expected)


def test_all_start_from_the_modules_weights_and_the_last_layer_called_is_the_output_layer() -> None:
    net = Net()
    w = Module.of(net).init(F, C, torch.Generator())
    assert {name for name in w if name.startswith(OUTPUT)} == {"classifier.last.weight", "classifier.last.bias"}
    for name, leaf in net.named_parameters():
        [found] = [one for key, one in w.items() if key.partition(".")[2] == name]
        assert torch.equal(found, leaf.detach().double())


def test_the_module_given_is_not_changed() -> None:
    net = Net()
    before = {name: leaf.clone() for name, leaf in net.state_dict().items()}
    model = Module.of(net)
    model.apply(weights(model, 3), clients(), Dropout(0.0, dropout_seeds(0, 1, 0)))
    assert net.training
    assert all(torch.equal(leaf, before[name]) for name, leaf in net.state_dict().items())


def test_the_embedding_is_the_mean_input_of_the_output_layer() -> None:
    model = Module.of(net := Net())
    proxy = random_proxy("sbm", 0, F, "plain", 0.01, torch.device("cpu"), torch.float64)
    hidden = torch.relu(net.double().conv(proxy.x, proxy.edge_index))
    found = model.embed(weights(model, 2), proxy)
    torch.testing.assert_close(found, hidden.mean(0).expand(2, H).detach(), rtol=0, atol=1e-9)


def test_the_embedding_of_a_single_layer_is_its_output() -> None:
    model = Module.of(Alone())
    assert model.last_hidden(weights(model, 3), clients()).shape == (10, C)


class Alone(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.only = GCNConv(F, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.only(x, edge_index)


class Changed(Net):
    """A module with one thing that cannot be federated."""

    def __init__(self, what: str) -> None:
        super().__init__(classes=2 if what == "classes" else C)
        self.norm = torch.nn.BatchNorm1d(F) if what == "norm" else torch.nn.Identity()
        self.cache = GCNConv(F, F, cached=True) if what == "cached" else None
        self.lazy = torch.nn.LazyLinear(3) if what == "lazy" else None
        self.what = what
        if what == "frozen":
            self.requires_grad_(False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.what == "broken":
            raise ValueError("no such layer\nand more")
        return super().forward(self.norm(x), edge_index)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("norm", "changes 'norm.running_mean' in training, .* replace BatchNorm by LayerNorm or GraphNorm"),
        ("classes", r"has outputs of shape \[2\] for each node, but this run needs \[3\]"),
        ("cached", "keeps the edges of the first graph .* leave out cached=True"),
        ("lazy", "has layers of unknown size; give their sizes"),
        ("frozen", "has no parameters to train"),
        ("broken", r"cannot be applied to a graph with 5 features \(no such layer\)"),
    ],
)
def test_what_cannot_be_federated_is_refused_before_training(what: str, sentence: str) -> None:
    with pytest.raises(FedpubError, match=f"the (GCNConv of the )?model Changed {sentence}|{sentence}"):
        Module.of(Changed(what)).init(F, C, torch.Generator())


@pytest.mark.parametrize("method", [name for name in METHODS if name != "fedsage"])
def test_every_method_trains_a_module_alike_in_chunks_of_any_size(method: str) -> None:
    asked = {"method": method, "clients": 3, "rounds": 2, "epochs": 1, "dtype": "float64", "progress": False}
    whole, parts = (fedpub.run("communities", model=Net(500, 4, 5, p=0.3), chunk=chunk, **asked) for chunk in (None, 1))
    for ours, theirs in zip(whole.record.rows, parts.record.rows, strict=True):
        assert ours.clients["loss"] == pytest.approx(theirs.clients["loss"], abs=1e-9)
    assert math.isfinite(whole.test or 0.0)


def test_fedsage_is_refused() -> None:
    with pytest.raises(FedpubError, match="FedSage\\+ needs a model with any number of outputs"):
        fedpub.run("communities", method="fedsage", model=Net(500, 4, 5), rounds=1, progress=False)


def test_a_loop_is_announced_once_and_weights_that_are_not_used_are_too() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fedpub.run("communities", method="local", clients=3, model=Net(500, 4, 5), rounds=3, progress=False)
    assert [str(one.message).split(";")[0] for one in said if "loop" in str(one.message)] == [
        "the model Net is a module, so that every step is a loop over 3 clients"
    ]
    assert Module.of(Net())._takes_weights
    assert not Module.of(Alone())._takes_weights
    assert not Module.of(GAT(F, H, 2, C))._takes_weights
