"""The stacked models equal PyTorch Geometric's layers, client by client."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, SAGEConv

from fedpub.core.sparse import csr
from fedpub.core.tree import Tree
from fedpub.data.clients import stack as clients_file
from fedpub.data.clients.split import Split
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import normalised_adjacency, subgraph_of
from fedpub.models import GCN, MODELS, Dropout, GraphSAGE, Model
from fedpub.models.base import dropout_seeds
from fedpub.models.proxy import P_OUT, feature_proxy, proxy_structure, random_proxy
from fedpub.tasks import Step
from fedpub.tasks.metrics import macro_f1
from small import NODES, SEEN_X, assert_trees_equal, context, random_tree, small_clients, small_graph, subgraphs

HIDDEN = 4
MODEL = pytest.mark.parametrize("model", [GCN(HIDDEN), GraphSAGE(HIDDEN)], ids=["gcn", "sage"])


class Peer(torch.nn.Module):
    """The same model of PyTorch Geometric's layers, with one client's weights."""

    def __init__(self, model: Model, w: Tree, client: int) -> None:
        super().__init__()
        gcn = isinstance(model, GCN)
        layer = GCNConv if gcn else SAGEConv
        features, hidden = w["conv1.weight" if gcn else "conv1.self"].shape[1:]
        self.conv1 = layer(features, hidden).double()
        self.conv2 = layer(hidden, hidden).double()
        self.classifier = torch.nn.Linear(hidden, w["classifier.bias"].shape[1]).double()
        own = {name: leaf[client] for name, leaf in w.items()}
        names = {"classifier.weight": own["classifier.weight"].T, "classifier.bias": own["classifier.bias"]}
        for conv in ("conv1", "conv2"):
            if gcn:
                names |= {f"{conv}.lin.weight": own[f"{conv}.weight"].T, f"{conv}.bias": own[f"{conv}.bias"]}
            else:  # lin_l sees the neighbours' mean and has the bias; lin_r sees the node itself
                names |= {f"{conv}.lin_l.weight": own[f"{conv}.neighbour"].T, f"{conv}.lin_l.bias": own[f"{conv}.bias"]}
                names |= {f"{conv}.lin_r.weight": own[f"{conv}.self"].T}
        self.load_state_dict(names, strict=True)

    def second(self, x: Tensor, edge_index: Tensor, kept: Tensor | float = 1.0) -> Tensor:
        return self.conv2(torch.relu(self.conv1(x, edge_index)) * kept, edge_index)

    def forward(
        self, x: Tensor, edge_index: Tensor, kept: tuple[Tensor | float, Tensor | float] = (1.0, 1.0)
    ) -> Tensor:
        return self.classifier(torch.relu(self.second(x, edge_index, kept[0])) * kept[1])


def both_ways(client: int) -> tuple[Tensor, Tensor]:
    """A client's features and its edges in both directions."""
    own = small_graph().subgraph(torch.tensor(NODES[client]))
    return own.x, torch.cat([own.edges, own.edges.flip(0)], dim=1)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.fixture(params=["dense", "sparse"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Inputs are multiplied sparse where few are not zero; both ways with the same numbers."""
    monkeypatch.setattr(clients_file, "SPARSE_BELOW", {torch.float64: 2.0 if request.param == "sparse" else 0.0})
    return request.param


@MODEL
def test_logits_equal_those_of_pyg(model: Model, layout: str) -> None:
    data, w = small_clients(kind=model.propagation), random_tree(model, 3)
    assert isinstance(data.x, Tensor) == (layout == "dense")
    logits = model.apply(w, data).split([len(own) for own in NODES])
    for client, found in enumerate(logits):
        close(found, Peer(model, w, client)(*both_ways(client)))


@MODEL
def test_dropout_falls_on_both_hidden_layers(model: Model) -> None:
    data, w = small_clients(kind=model.propagation), random_tree(model, 3)
    dropout, sizes = Dropout(0.5, dropout_seeds(1, 2, 3)), [len(own) for own in NODES]
    ones = torch.ones(10, HIDDEN, dtype=torch.float64)
    kept = [dropout(ones, layer, data.ids_K, data.segments).split(sizes) for layer in (1, 2)]
    logits = model.apply(w, data, dropout)
    assert not torch.equal(logits, model.apply(w, data))
    for client, found in enumerate(logits.split(sizes)):
        close(found, Peer(model, w, client)(*both_ways(client), (kept[0][client], kept[1][client])))


@MODEL
@pytest.mark.parametrize("dropout", [None, Dropout(0.5, dropout_seeds(0, 1, 0))], ids=["plain", "dropout"])
def test_a_clients_logits_do_not_depend_on_who_is_beside_it(model: Model, dropout: Dropout | None) -> None:
    w = random_tree(model, 3)
    order = (2, 0, 1)
    together = model.apply(
        {name: leaf[list(order)] for name, leaf in w.items()},
        small_clients(*order, kind=model.propagation),
        dropout,
    ).split([len(NODES[client]) for client in order])
    for client, found in zip(order, together, strict=True):
        alone = {name: leaf[[client]] for name, leaf in w.items()}
        close(found, model.apply(alone, small_clients(client, kind=model.propagation), dropout))


def test_normalised_adjacency_by_hand() -> None:
    """The path 0 - 1 - 2: with its loops the degrees are 2, 3 and 2."""
    path = small_graph().subgraph(torch.tensor(NODES[0]))
    s = 6**-0.5
    symmetric = torch.from_numpy(normalised_adjacency(path.edges, 3, "symmetric").toarray())
    close(symmetric, torch.tensor([[1 / 2, s, 0], [s, 1 / 3, s], [0, s, 1 / 2]], dtype=torch.float64))
    assert normalised_adjacency(path.edges, 3, "mean").toarray().tolist() == [[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]]
    lonely = small_graph().subgraph(torch.tensor([9]))
    assert normalised_adjacency(lonely.edges, 1, "symmetric").toarray().tolist() == [[1]]
    assert normalised_adjacency(lonely.edges, 1, "mean").toarray().tolist() == [[0]], "nothing comes from no neighbours"


@MODEL
@pytest.mark.parametrize("kind", ["sbm", "er", "one", "feature"])
def test_embedding_is_the_mean_of_the_second_convolution(model: Model, kind: str) -> None:
    data, w = small_clients(kind=model.propagation), random_tree(model, 3)
    if kind == "feature":
        proxy = feature_proxy(5, data, proxy_structure("sbm", 5, model.propagation, P_OUT))
        a, x_K = proxy_structure("sbm", 5, model.propagation, P_OUT), proxy.x
    else:
        proxy = random_proxy(kind, 5, 5, model.propagation, P_OUT, torch.device("cpu"), torch.float64)
        a, x_K = proxy_structure(kind, 5, model.propagation, P_OUT), [proxy.x] * 3
    u, v = torch.from_numpy(a).nonzero().T
    edges = torch.stack([u, v])[:, u != v]
    embedding = model.embed(w, proxy)
    assert embedding.shape == (3, HIDDEN)
    for client, x in enumerate(x_K):
        close(embedding[client], Peer(model, w, client).second(x, edges).mean(0))


def test_seen_by_hand() -> None:
    """Feature 4 is at client 2's lonely node: a mean over neighbours never carries it, a loop does."""
    seen_x = torch.tensor(SEEN_X, dtype=torch.bool)
    gcn = GCN().seen(small_clients())
    assert gcn.keys() == {"conv1.weight"}
    assert torch.equal(gcn["conv1.weight"], seen_x)

    sage = GraphSAGE().seen(small_clients(kind="mean"))
    assert sage.keys() == {"conv1.self", "conv1.neighbour"}
    assert torch.equal(sage["conv1.self"], seen_x)
    assert sage["conv1.neighbour"].int().tolist() == [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 0]]


def test_a_stored_zero_is_not_seen() -> None:
    """0 - 1 - 2 with the features 1, 7 and -1: what node 1 hears of its neighbours cancels, what they hear does not."""
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 7.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    crow, columns = torch.tensor([0, 2, 3, 4]), torch.tensor([0, 2, 1, 0])
    values = torch.tensor([1.0, 0.0, 7.0, -1.0], dtype=torch.float64)  # a zero in column 2 is stored
    path = small_graph().subgraph(torch.tensor(NODES[0]))
    sparse = replace(path, x=csr(crow, columns, values, (3, 3)))
    assert torch.equal(sparse.x.to_dense(), x)
    nobody = torch.zeros(3, dtype=torch.bool)
    own = subgraph_of(sparse, torch.arange(3), Split(nobody, nobody, nobody), 0, "mean")
    sage = GraphSAGE().seen(stack([own], 3, dtype=torch.float64))
    assert sage["conv1.self"].tolist() == [[True, True, False]]
    assert sage["conv1.neighbour"].tolist() == [[False, True, False]]


def test_what_cancels_everywhere_is_not_seen_by_a_gcn() -> None:
    """A pair with the features (1, 1) and (-1, 1): both nodes hear the mean of the two, (0, 1)."""
    pair = small_graph().subgraph(torch.tensor([7, 8]))
    pair = replace(pair, x=torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64))
    nobody = torch.zeros(2, dtype=torch.bool)
    own = subgraph_of(pair, torch.arange(2), Split(nobody, nobody, nobody), 0, "symmetric")
    assert GCN().seen(stack([own], 3))["conv1.weight"].tolist() == [[False, True]]


@MODEL
def test_what_is_not_seen_has_no_gradient(model: Model, layout: str) -> None:
    """And what is seen has one."""
    data = small_clients(kind=model.propagation, train=tuple(range(10)))
    w = {name: leaf.requires_grad_() for name, leaf in random_tree(model, 3).items()}
    loss_K = context(model).task.loss(model, w, data, Step())
    for name, seen_KF in model.seen(data).items():
        (gradient,) = torch.autograd.grad(loss_K.sum(), w[name], retain_graph=True)
        assert torch.equal((gradient != 0).any(2), seen_KF)


@MODEL
def test_init(model: Model) -> None:
    first, again, other = (model.init(50, 7, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert_trees_equal(first, again)
    for name, leaf in first.items():
        assert leaf.dtype == torch.float64
        if leaf.dim() == 1:
            assert bool((leaf == 0).all()), f"{name} is a bias"
            continue
        assert not torch.equal(leaf, other[name])
        bound = (6 / sum(leaf.shape)) ** 0.5
        assert 0.8 * bound < float(leaf.abs().max()) <= bound
        assert abs(float(leaf.mean())) < 4.5 * bound / (3 * leaf.numel()) ** 0.5


def test_the_models_by_name() -> None:
    assert {name: kind.__name__ for name, kind in MODELS.items()} == {
        "gcn": "GCN",
        "sage": "GraphSAGE",
        "twin": "Twin",
        "hops": "Hops",
    }


@MODEL
def test_loss_is_the_mean_over_a_clients_training_nodes(model: Model) -> None:
    """Client 2 trains on nothing here: its loss is zero, and so is its gradient."""
    train = (0, 1, 3)
    data = small_clients(kind=model.propagation, train=train)
    w = {name: leaf.requires_grad_() for name, leaf in random_tree(model, 3).items()}
    loss_K = context(model).task.loss(model, w, data, Step())
    y = small_graph().y
    for client, own in enumerate(NODES[:2]):
        rows = [row for row, node in enumerate(own) if node in train]
        logits = Peer(model, w, client)(*both_ways(client))[rows]
        close(loss_K[client], torch.nn.functional.cross_entropy(logits, y[[own[row] for row in rows]]))
    assert loss_K[2].item() == 0
    for gradient in torch.autograd.grad(loss_K.sum(), list(w.values())):
        assert bool((gradient[2] == 0).all())
        assert bool((gradient[0] != 0).any())


def predicting(model: Model, data: Clients, classes: tuple[int, ...]) -> Tree:
    """Weights with which client k predicts one class for all of its nodes."""
    w = {name: torch.zeros_like(leaf) for name, leaf in random_tree(model, data.num_clients).items()}
    w["classifier.bias"][range(len(classes)), classes] = 1
    return w


@MODEL
def test_metrics_by_hand(model: Model) -> None:
    """Tested are node 2 (class 0), nodes 6 (class 0) and 4 (class 1), and none of client 2."""
    data = small_clients(kind=model.propagation, train=(0, 1, 3, 5, 7, 8, 9))
    task = context().task
    found = task.evaluate(model, predicting(model, data, (0, 0, 0)), data)
    assert found["test"].tolist()[:2] == [1, 0.5]
    assert bool(found["test"][2].isnan()), "an empty set has no accuracy"
    # Client 1: class 0 has precision 1/2 and recall 1, F1 2/3; class 1 was never predicted, F1 0; class 2 is not there.
    close(found["test_f1"][:2], torch.tensor([1, 1 / 3], dtype=torch.float64))
    assert bool(found["test_f1"][2].isnan())
    # The same nodes are validation nodes; logits 1, 0, 0: ln(e + 2) − 1 where class 0 is right, ln(e + 2) where not.
    wrong = math.log(math.e + 2)
    close(found["val_loss"][:2], torch.tensor([wrong - 1, wrong - 0.5], dtype=torch.float64))
    assert bool(found["val_loss"][2].isnan())
    # Client 0 trains on classes 0 and 1, equally many: the first. Client 1 on 2 and 2: neither test node is right.
    held = subgraphs(model.propagation, (0, 1, 3, 5, 7, 8, 9))
    unlearnt_R = task.unlearnt(held)
    assert unlearnt_R[:2].tolist() == [1, 0]
    assert bool(unlearnt_R[2].isnan()), "no test nodes"
    assert task.sizes(held).tolist() == [1, 2, 0]


def test_f1_counts_classes_that_were_only_predicted() -> None:
    """Three nodes of class 0, of which one is taken for class 1: 4/5 and 0. Class 2 is in neither, and not counted."""
    confusion = torch.tensor([[[2, 1, 0], [0, 0, 0], [0, 0, 0]]], dtype=torch.float64)
    close(macro_f1(confusion), torch.tensor([0.4], dtype=torch.float64))
    # As often true as predicted, and never both.
    close(macro_f1(confusion.flip(2)), torch.tensor([0.0], dtype=torch.float64))
