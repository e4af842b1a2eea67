"""FedSage+ by hand: what is hidden, what the generator learns from it, what travels, and how a graph is mended."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.algorithms import Context, FedSage, fedsage
from fedpub.algorithms.fedsage import CLASSIFIER, Mending, turn, whole_counts
from fedpub.algorithms.protocol import Place
from fedpub.core.message import Message
from fedpub.core.optim import adam_step
from fedpub.core.segments import rows_matmul
from fedpub.core.sparse import SparseRows
from fedpub.core.tree import State, Tree, pack, stacked, state_map, together, tree
from fedpub.data.clients import hiding
from fedpub.data.clients.hiding import SAMPLED, hidden_rows, lost_neighbours, sampled_neighbours
from fedpub.data.clients.split import split
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Added, Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.data.synthetic import communities_graph
from fedpub.engine.setup import SetUp, set_up
from fedpub.engine.simulate import Federation, first_weights, simulate
from fedpub.errors import FedpubError
from fedpub.models import MODELS, Model
from fedpub.models.generator import LATENT, greedy_loss
from fedpub.tasks import LinkPrediction
from fedpub.tasks.link_prediction import LINK_RATIOS
from small import TINY, assert_trees_equal, client_by_hand, context, random_tree

CPU = torch.device("cpu")
PLACE = Place(3, CPU, torch.float64)
SPEC = replace(TINY, subgraphs=(2, 2), nodes=18, p_community=0.1, p_between=0.05, features=12)
SIZES = (25, 10, 20, 17)
METHOD = FedSage(generator_epochs=4, generator_rounds=4, generated=3)
MODEL = pytest.mark.parametrize("model", MODELS)


@cache
def graph() -> Graph:
    return communities_graph("tiny", SPEC)


def communities(model: str = "gcn", clients: int = 4) -> list[Subgraph]:
    nodes = torch.split(torch.arange(sum(SIZES)), SIZES)[:clients]
    kind, chosen = MODELS[model].propagation, split(graph(), 0)
    return [subgraph_of(graph(), own, chosen, client, kind) for client, own in enumerate(nodes)]


def federation(subgraphs: list[Subgraph], **changes: Any) -> Federation:
    return Federation(subgraphs, 3, CPU, **({"dtype": torch.float64} | changes))


def learning(model: str = "gcn", **changes: Any) -> Context:
    return context(MODELS[model](6), **({"seed": 3, "lr": 0.05, "weight_decay": 1e-3, "dropout": 0.3} | changes))


def client(x: Any, edges: Any = (), train: Any = None, number: int = 0) -> Subgraph:
    """A client by hand; where it is not told which nodes train, none does."""
    count = len(x)
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[list(train or ())] = True
    return client_by_hand(number, x, edges, torch.arange(count), chosen)


def dense(x: Any) -> np.ndarray:
    return x.toarray() if sp.issparse(x) else x


def copied(message: Message) -> Message:
    return Message.of(state_map(torch.clone, message.flat()))


@dataclass
class Step:
    """What happened to all clients in one exchange."""

    received: list[Message]
    own: list[State]  # afterwards
    up: list[Message]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Every exchange of a set-up in which all clients are stacked."""
    done: list[Step] = []
    clients = Mending.clients

    def record(self, ctx, step, own, received, work):
        assert step == len(done)
        got = [copied(message) for message in received]
        own, up = clients(self, ctx, step, own, received, work)
        done.append(Step(got, [state_map(torch.clone, one) for one in own], [copied(message) for message in up]))
        return own, up

    monkeypatch.setattr(Mending, "clients", record)
    return done


# A graph with nodes that were added


def scores(model: Model, own: Subgraph) -> Tensor:
    return model.apply(random_tree(model, 1), stack([own], 3, dtype=torch.float64, steps=model.steps))


@MODEL
def test_an_added_node_changes_its_neighbour_and_is_changed_by_it(model):
    built = MODELS[model](8)
    path = client(np.eye(5), ((0, 1), (1, 2), (2, 3), (3, 4)))
    path = replace(path, propagation=built.propagation)

    def mended(own: Subgraph, *x: float) -> Tensor:
        return scores(built, own.extended(Added(sp.csr_matrix([x]), torch.tensor([0]), torch.tensor([0]))))

    before, after = scores(built, path), mended(path, 1, 2, 3, 4, 5)
    assert after.shape == (6, 3)
    assert not torch.allclose(after[0], before[0])
    torch.testing.assert_close(after[4], before[4], rtol=0, atol=1e-14)  # too far away for two layers
    # It is its features that arrive, not only that there is one more neighbour.
    assert not torch.allclose(mended(path, 5, 4, 3, 2, 1)[0], after[0])
    # The other direction: the added node sees its neighbour.
    other = replace(path, x=sp.csr_matrix(np.diag([7.0, 1, 1, 1, 1])))
    assert not torch.allclose(mended(other, 1, 2, 3, 4, 5)[5], after[5])


@MODEL
def test_added_features_may_be_sparse_or_dense(model):
    built = MODELS[model](8)
    # Nobody has the fourth feature.
    path = client(np.diag([1, 1, 1, 0, 1]), ((0, 1), (1, 2), (2, 3), (3, 4)))
    path = replace(path, propagation=built.propagation)
    x = np.array([(0, 2.0, 0, 0, 1), (3, 0, 0, 0, 0)])
    one, other = (
        path.extended(Added(kind, torch.tensor([0, 2, 4]), torch.tensor([0, 0, 1]))) for kind in (sp.csr_matrix(x), x)
    )
    assert sp.issparse(one.x) != sp.issparse(other.x)
    assert np.array_equal(dense(one.x), dense(other.x))
    torch.testing.assert_close(scores(built, one), scores(built, other))
    beside = stack([one, replace(other, id=1)], 3, dtype=torch.float64, steps=built.steps)
    both = built.apply(stacked(random_tree(built), 2), beside)
    torch.testing.assert_close(both[:7], both[7:])
    assert beside.seen_x_KF.tolist() == beside.seen_walks[0].tolist() == [[True, True, True, False, True]] * 2


@pytest.mark.parametrize(("kind", "there", "back"), [("symmetric", 6**-0.5, 6**-0.5), ("mean", 0.5, 1.0)])
def test_the_adjacency_has_both_directions_of_an_added_edge(kind, there, back):
    """Node 0 then has two neighbours, the added one has one."""
    path = replace(client(np.eye(3), ((0, 1), (1, 2))), propagation=kind)
    mended = path.extended(Added(sp.csr_matrix(np.ones((1, 3))), torch.tensor([0]), torch.tensor([0]))).adjacency
    assert mended[0, 3] == pytest.approx(there)
    assert mended[3, 0] == pytest.approx(back)
    assert mended[[1, 2], 3].sum() == mended[3, [1, 2]].sum() == 0


def test_an_added_node_is_nobody_s_example():
    own = client(np.eye(3), ((0, 1), (1, 2)), train=(0,))
    mended = own.extended(Added(sp.csr_matrix(np.ones((2, 3))), torch.tensor([0, 2, 1]), torch.tensor([0, 0, 1])))
    assert mended.nodes.tolist() == [0, 1, 2, -1, -1]
    assert mended.y.tolist() == [0, 1, 2, -1, -1]
    assert mended.train.tolist() == [True, False, False, False, False]
    assert mended.val.tolist() == mended.test.tolist() == [False, True, True, False, False]
    assert mended.edges.tolist() == [[0, 1, 0, 2, 1], [1, 2, 3, 3, 4]]
    assert mended.num_train == own.num_train == 1
    assert own.extended(Added(sp.csr_matrix((0, 3)), torch.tensor([]).long(), torch.tensor([]).long())) is own


# The greedy matching


def doubles(rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_each_generated_neighbour_is_matched_with_the_nearest_true_one_by_hand():
    generated = doubles(
        [
            [[0, 0], [3, 3]],  # (1, 0) is nearest to the first: 1 / 2; (3, 5) to the second: 4 / 2
            [[9, 10], [0, 0]],  # only (10, 10) is there: 1 / 2 and 200 / 2, though a padded place is at (0, 0)
            [[1, 1], [1, 2]],  # both take (1, 1), nobody (50, 50): 0 and 1 / 2
        ]
    )
    true = doubles([[[1, 0], [3, 5], [9, 9]], [[0, 0], [10, 10], [0, 0]], [[50, 50], [1, 1], [1, 2]]])
    known = torch.tensor([[True, True, False], [False, True, False], [True, True, False]])
    assert greedy_loss(generated, true, known).tolist() == [(0.5 + 2) / 2, (0.5 + 100) / 2, (0 + 0.5) / 2]


def test_what_stands_in_a_padded_place_does_not_matter():
    stream = torch.Generator().manual_seed(0)
    generated, true = (torch.randn(4, 3, 5, generator=stream, dtype=torch.float64) for _ in range(2))
    known = torch.tensor([[True, True, False]]).expand(4, 3)
    expected = greedy_loss(generated, true, known)
    torch.testing.assert_close(greedy_loss(generated, true[:, :2], known[:, :2]), expected)
    for other in (0.0, 1e9, generated[:, 2]):
        true[:, 2] = other
        assert torch.equal(greedy_loss(generated, true, known), expected)


def test_the_greedy_loss_pulls_each_to_its_nearest_by_hand():
    """2 (x̂ − x) / (P F): for (0, 0) towards (1, 0) and for (3, 3) towards (3, 5), each over 4."""
    generated = doubles([[[0, 0], [3, 3]]]).requires_grad_()
    true = doubles([[[1, 0], [3, 5]]]).requires_grad_()
    pull, other = torch.autograd.grad(
        greedy_loss(generated, true, torch.ones(1, 2, dtype=torch.bool)).sum(), [generated, true], allow_unused=True
    )
    assert pull.tolist() == [[[-0.5, 0], [0, -1]]]
    assert other is None


# What is hidden


@pytest.mark.parametrize(
    ("nodes", "train", "hidden"),
    [
        (40, 8, 8),  # half of 16
        (20, 0, 4),
        (10, 2, 2),
        (5, 1, 1),
        (3, 1, 0),  # 40 % of three is one, and half of one is rounded to none
        (1, 0, 0),
        (10, 8, 1),  # only two do not train
        (10, 10, 0),
    ],
)
def test_half_of_forty_percent_of_the_nodes_is_hidden_and_no_training_node(nodes, train, hidden):
    own = client(np.ones((nodes, 1)), train=range(train))
    for seed in range(5):
        found = hidden_rows(own, seed)
        assert int(found.sum()) == hidden
        assert not (found & own.train).any()


def test_who_is_hidden_depends_on_seed_and_client_and_on_nothing_else():
    own = client(np.ones((40, 1)), train=range(8))
    first = hidden_rows(own, 0)
    assert torch.equal(first, hidden_rows(replace(own, x=2 * own.x, edges=torch.tensor([[0], [30]])), 0))
    assert not torch.equal(first, hidden_rows(own, 1))
    assert not torch.equal(first, hidden_rows(replace(own, id=1), 0))


def test_where_links_are_learnt_any_node_may_be_hidden():
    nodes = torch.split(torch.arange(sum(SIZES)), SIZES)
    own = LinkPrediction(6).divide(graph(), nodes, 0, LINK_RATIOS, "symmetric")[0]
    assert own.train.all()
    assert int(hidden_rows(own, 0).sum()) == 5  # half of 10 of 25


def test_lost_neighbours_by_hand():
    """0 - 1, 1 - 2, 1 - 3, 2 - 3, 3 - 4, and 5 alone; 1 and 3 are hidden."""
    own = client([(float(row), -1.0) for row in range(6)], ((0, 1), (1, 2), (1, 3), (2, 3), (3, 4)))
    hidden = torch.tensor([False, True, False, True, False, False])
    lost, rows, true, known = lost_neighbours(own, hidden, 3, seed=0)
    assert lost.tolist() == [1, 2, 1, 0]  # of 0, 2, 4 and 5; the edge 1 - 3 is nobody's who is left
    assert rows.tolist() == [0, 1, 2]
    assert known.tolist() == [[True, False, False], [True, True, False], [True, False, False]]
    assert [row[:count].tolist() for row, count in zip(true, known.sum(1), strict=True)] == [
        [[1, -1]],
        [[1, -1], [3, -1]],
        [[3, -1]],
    ]
    assert not true[~known].any()
    # All that were lost are counted, also where only one is kept to compare with.
    lost, _, true, known = lost_neighbours(own, hidden, 1, seed=0)
    assert lost.tolist() == [1, 2, 1, 0]
    assert known.tolist() == [[True]] * 3
    assert true.tolist() == [[[1, -1]], [[1, -1]], [[3, -1]]]


def test_of_many_nodes_that_lost_neighbours_a_sample_is_matched(monkeypatch):
    """A star: 0 is hidden, and all 30 others lost it."""
    own = client([(float(row), 1.0) for row in range(31)], [(0, row) for row in range(1, 31)])
    hidden = torch.arange(31) == 0
    assert lost_neighbours(own, hidden, 2, seed=0)[1].tolist() == list(range(30))
    monkeypatch.setattr(hiding, "AT_ONCE", 10)
    lost, rows, true, known = lost_neighbours(own, hidden, 2, seed=0)
    assert lost.tolist() == [1] * 30  # all are counted
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == 10
    assert known.tolist() == [[True, False]] * 10
    assert true.tolist() == [[[0, 1], [0, 0]]] * 10
    assert torch.equal(rows, lost_neighbours(own, hidden, 2, seed=0)[1])
    assert not torch.equal(rows, lost_neighbours(own, hidden, 2, seed=1)[1])
    assert not torch.equal(rows, lost_neighbours(replace(own, id=1), hidden, 2, seed=0)[1])


def test_of_many_nodes_a_sample_gets_neighbours_in_phase_one(monkeypatch):
    ctx, mending, data = learning(), Mending(1, 0, 3), communities(clients=2)
    assert mending.workspace(ctx, data, PLACE).mended_N.all()
    monkeypatch.setattr(hiding, "AT_ONCE", 9)
    work = mending.workspace(ctx, data, PLACE)
    chosen = torch.split(work.mended_N, work.clients.segments.sizes)
    assert [(len(own), int(own.sum())) for own in chosen] == [(20, 9), (8, 8)]  # 5 of 25 and 2 of 10 are hidden
    again = mending.workspace(replace(ctx, seed=4), data, PLACE).mended_N
    assert not torch.equal(again, work.mended_N)
    graphs: list[Clients] = []
    mended = Mending.mended
    monkeypatch.setattr(Mending, "mended", lambda *arguments: graphs.append(mended(*arguments)) or graphs[-1])
    mending.losses(ctx, 0, parameters_of(ctx, work, mending, count=40.0), work)
    assert graphs[0].segments.sizes == (20 + 9 * 3, 8 + 8 * 3)
    alone = graphs[0].adjacency.forward.to_dense()[:20, :20] != 0
    more = (graphs[0].adjacency.forward.to_dense()[:47] != 0).sum(1)[:20] - alone.sum(1)
    assert more.tolist() == [3 if one else 0 for one in chosen[0].tolist()]


def work_of(ctx: Context, data: list[Subgraph], neighbours: int = 3) -> Any:
    return Mending(0, 0, neighbours).workspace(ctx, data, PLACE)


def seen(work: Any, ctx: Context) -> Tree:
    """All that the generator is computed from, and the latents it makes of that."""
    weights = tree(together(Mending(0, 0, 3).init_clients(ctx, {}, work))["parameters"])
    data = work.clients
    parts = {"x": data.x, "propagated": data.propagated, "adjacency": data.adjacency}
    dense = {name: part.forward.to_dense() if isinstance(part, SparseRows) else part for name, part in parts.items()}
    latent = Mending(0, 0, 3).generator(ctx).encode(weights, data)
    return dense | {"x_NF": work.x_NF, "y": data.y_N, "train": data.train_N, "latent": latent}


@MODEL
def test_what_is_hidden_is_out_of_sight_and_only_a_target(model):
    ctx, data = learning(model), communities(model)
    hidden = [hidden_rows(own, ctx.seed) for own in data]
    before = work_of(ctx, data)
    assert before.clients.segments.sizes == tuple(int((~gone).sum()) for gone in hidden)
    assert sum(int(gone.sum()) for gone in hidden) == 5 + 2 + 4 + 4  # of 25, 10, 20 and 17
    changed = []
    for own, gone in zip(data, hidden, strict=True):
        x = own.x.toarray()
        x[gone.numpy()] += 10
        changed.append(replace(own, x=sp.csr_matrix(x)))
    after = work_of(ctx, changed)
    assert_trees_equal(seen(before, ctx), seen(after, ctx))
    assert torch.equal(before.lost_N, after.lost_N)
    torch.testing.assert_close(after.true_MTF[after.known_MT], before.true_MTF[before.known_MT] + 10)
    assert len(before.true_MTF) > 10


@MODEL
def test_edges_of_what_is_hidden_are_out_of_sight_and_only_counted(model):
    ctx, data = learning(model), communities(model)
    hidden = [hidden_rows(own, ctx.seed) for own in data]
    before = work_of(ctx, data)
    without = [
        replace(own, edges=own.edges[:, ~gone[own.edges].any(0)]) for own, gone in zip(data, hidden, strict=True)
    ]
    after = work_of(ctx, without)
    assert_trees_equal(seen(before, ctx), seen(after, ctx))
    assert int(after.lost_N.sum()) == len(after.rows_M) == 0
    count = sum(int((gone[own.edges].sum(0) == 1).sum()) for own, gone in zip(data, hidden, strict=True))
    assert int(before.lost_N.sum()) == count > 10  # edges between two hidden nodes are not


# Phase one


@dataclass(frozen=True)
class Copying(Model):
    """A model whose outputs are the features themselves, so that the generator can be worked out by hand."""

    propagation: ClassVar = "symmetric"

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        return {"identity": torch.eye(num_features, num_classes, dtype=torch.float64)}

    def apply(self, w: Tree, data: Clients, dropout: Any = None) -> Tensor:
        return rows_matmul(data.x, w["identity"], data.segments)


def by_hand(clients: int, neighbours: int, features: int) -> Tree:
    """A generator for which softplus of a node's first feature is the count, and whose head has nothing but zeros."""
    ctx = context(Copying())
    first = Mending(0, 0, neighbours).generator(ctx).init(features, torch.Generator().manual_seed(0))
    weights = stacked(first, clients)
    for name in ("count.weight", "count.bias", "head1.weight", "head2.weight"):
        weights[name].zero_()
    weights["count.weight"][:, 0] = 1
    return weights


def counted(count: float) -> float:
    """The feature for which `by_hand` predicts so many neighbours."""
    return math.log(math.expm1(count)) if count else -50.0


def parameters_of(ctx: Context, work: Any, mending: Mending, count: float | None = None) -> Tree:
    """The first parameters; with `count` every node gets about so many neighbours."""
    w0 = first_weights(federation(work.data), ctx)
    parameters = state_map(torch.clone, together(mending.init_clients(ctx, w0, work)))["parameters"]
    if count is not None:
        parameters["count.bias"].fill_(count)
    # Biases of zero have, beside a ReLU, gradients that are zero by chance.
    return {name: leaf + 0.01 if name.endswith("bias") else leaf for name, leaf in parameters.items()}


def starts(name: str, *words: str) -> bool:
    return name.startswith(words)


@MODEL
@pytest.mark.parametrize(
    ("loss", "moves"),
    [
        ("count", ("encoder.", "count.")),
        ("features", ("encoder.", "head")),
        ("task", ("encoder.", "head", CLASSIFIER)),  # through the generated features
    ],
)
def test_every_loss_moves_what_it_should_and_nothing_else(model, loss, moves):
    ctx, mending = learning(model, dropout=0.0), Mending(1, 0, 3)
    work = mending.workspace(ctx, communities(model), PLACE)
    parameters = parameters_of(ctx, work, mending, count=2.0)
    leaves = {name: leaf.requires_grad_() for name, leaf in parameters.items()}
    for client_ in range(4):
        loss_K = mending.losses(ctx, 0, leaves, work)[loss]
        assert loss_K.shape == (4,)
        gradients = torch.autograd.grad(loss_K[client_], list(leaves.values()), allow_unused=True)
        others = [other for other in range(4) if other != client_]
        for name, gradient in zip(leaves, gradients, strict=True):
            if starts(name, *moves):
                assert gradient[client_].any(), name
                assert not gradient[others].any(), name
            else:
                assert gradient is None or not gradient.any(), name


def test_the_losses_of_count_and_features_by_hand(monkeypatch):
    """The path 0 - 1 - 2 - 3 - 4 of which 1 and 4 are hidden, and a client that loses nothing."""
    monkeypatch.setattr(
        fedsage,
        "hidden_rows",
        lambda own, seed: torch.isin(torch.arange(own.num_nodes), torch.tensor([1, 4][own.id :])),
    )
    ctx, mending = context(Copying()), Mending(1, 0, 2)
    first = client(
        [(counted(3), 1), (0, 2), (counted(1), 3), (counted(1.5), 4), (0, 9)], ((0, 1), (1, 2), (2, 3), (3, 4))
    )
    second = client([(counted(0.5), 0), (counted(0), 0)], (), number=1)
    work = mending.workspace(ctx, [first, second], PLACE)
    parameters = by_hand(2, 2, 2)
    parameters[CLASSIFIER + "identity"] = torch.eye(2, 3, dtype=torch.float64).repeat(2, 1, 1)
    parameters["head2.bias"][0] = doubles([0, 0, 1, 8])  # (0, 0) and (1, 8), whatever the noise
    found = mending.losses(ctx, 0, parameters, work)
    # Each lost one; 3, 1 and 1.5 are predicted: 2 - 1/2, 0 and 0.25 / 2. The other: 0.5 and 0, where none is lost.
    assert found["count"].tolist() == pytest.approx([(1.5 + 0 + 0.125) / 3, (0.125 + 0) / 2])
    # 0 and 2 lost (0, 2): 4 / 2 and (1 + 36) / 2; 3 lost (0, 9): 81 / 2 and (1 + 1) / 2.
    assert found["features"].tolist() == pytest.approx([(2 * (2 + 18.5) / 2 + (40.5 + 1) / 2) / 3, 0])


@MODEL
def test_the_mended_graph_that_trains_is_what_is_left_with_the_generated_neighbours(model):
    ctx, mending = learning(model), Mending(1, 0, 3)
    work = mending.workspace(ctx, communities(model), PLACE)
    parameters = parameters_of(ctx, work, mending)
    generator = mending.generator(ctx)
    z_NL = generator.encode(parameters, work.clients)
    wanted = [0, 1, 2, 3, 3]
    count_N = torch.tensor(wanted)[torch.arange(len(z_NL)) * 7 % 5]
    mended = mending.mended(generator, parameters, z_NL, count_N, work)
    parts = []
    for number, ((start, end), own) in enumerate(zip(work.clients.segments.spans, work.left, strict=True)):
        weights = {name: leaf[number : number + 1] for name, leaf in parameters.items()}
        segments = stack([own], 3, dtype=torch.float64).segments
        every = generator.features(weights, z_NL[start:end], segments)
        anchor = [row for row in range(end - start) for _ in range(wanted[(start + row) * 7 % 5])]
        x = [every[row, place] for row in range(end - start) for place in range(wanted[(start + row) * 7 % 5])]
        added = Added(sp.csr_matrix(torch.stack(x).detach().numpy()), torch.tensor(anchor), torch.arange(len(anchor)))
        parts.append(own.extended(added))
    expected = stack(parts, 3, dtype=torch.float64)
    assert mended.segments.sizes == expected.segments.sizes
    for name in ("y_N", "train_N", "train_rows", "num_train_K", "ids_K"):
        assert torch.equal(getattr(mended, name), getattr(expected, name)), name
    torch.testing.assert_close(mended.x, expected.x)
    torch.testing.assert_close(mended.propagated, expected.propagated)
    torch.testing.assert_close(mended.adjacency.forward.to_dense(), expected.adjacency.forward.to_dense())
    assert mended.num_features == expected.num_features


def test_alone_a_generator_learns():
    ctx, mending = learning(dropout=0.0, weight_decay=0.0, lr=0.01), Mending(40, 0, 3)
    work = mending.workspace(ctx, communities(), PLACE)
    w0 = first_weights(federation(work.data), ctx)
    own = mending.init_clients(ctx, w0, work)

    def losses() -> dict[str, Tensor]:
        return mending.losses(ctx, 0, tree(together(own)["parameters"]), work)

    first = {name: value.clone() for name, value in losses().items()}
    for step in range(40):
        own, _ = mending.clients(ctx, step, own, [Message()] * 4, work)
    for name, value in losses().items():
        assert (value < 0.9 * first[name]).all(), name


# Phase two


def head_of(state: State) -> Tree:
    return {name: leaf for name, leaf in tree(state["parameters"]).items() if name.startswith("head")}


def rest_of(state: State) -> Tree:
    return {name: leaf for name, leaf in tree(state["parameters"]).items() if not name.startswith("head")}


@MODEL
def test_only_the_feature_head_moves_in_phase_two(model, steps):
    set_up(METHOD, learning(model), federation(communities(model)))
    alone, last = steps[METHOD.generator_epochs - 1].own, steps[-1].own
    for before, after in zip(alone, last, strict=True):
        assert_trees_equal(rest_of(before), rest_of(after))
        assert set(head_of(after)) == {"head1.weight", "head1.bias", "head2.weight", "head2.bias"}
        for name, leaf in head_of(after).items():
            assert not torch.equal(leaf, head_of(before)[name]), name
        assert after["step"].tolist() == [METHOD.generator_rounds]  # an optimiser of its own
        assert set(tree(after["first"])) == set(head_of(after))
    # In phase one everything moves.
    for name, leaf in tree(alone[0]["parameters"]).items():
        assert not torch.equal(leaf, tree(steps[0].own[0]["parameters"])[name]), name


def test_another_client_s_gradient_moves_the_head_elsewhere(steps):
    ctx, epochs = learning(), METHOD.generator_epochs
    set_up(METHOD, ctx, federation(communities(clients=2)))
    beside = list(steps)
    steps.clear()
    set_up(METHOD, ctx, federation(communities(clients=1)))
    for leaf, alone in zip(
        pack(beside[epochs - 1].own[0]).values(), pack(steps[epochs - 1].own[0]).values(), strict=True
    ):
        torch.testing.assert_close(leaf, alone, rtol=0, atol=1e-9)
    for name, leaf in head_of(steps[-1].own[0]).items():
        assert (leaf - head_of(beside[-1].own[0])[name]).abs().max() > 1e-3, name


def test_the_head_follows_its_own_gradient_and_that_of_another_together(monkeypatch):
    taken: list[Tree] = []

    def record(parameters: Tree, gradients: Tree, *rest: Any) -> State:
        taken.append(gradients)
        return adam_step(parameters, gradients, *rest)

    ctx, mending = learning(), Mending(0, 2, 3)
    work = mending.workspace(ctx, communities(), PLACE)
    own = mending.init_clients(ctx, {}, work)
    own, _ = mending.clients(ctx, 0, own, [Message()] * 4, work)
    monkeypatch.setattr(fedsage, "adam_step", record)
    state = state_map(torch.clone, together(own))
    stream = torch.Generator().manual_seed(0)
    other = {name: torch.randn(leaf.shape, generator=stream).double() for name, leaf in head_of(state).items()}
    for message in (Message(), Message({"gradient": other})):
        mending.train_head(ctx, 0, state_map(torch.clone, state), message, work)
    alone, both = taken
    assert set(alone) == set(both) == set(other)
    for name, leaf in other.items():
        assert alone[name].any(), name
        torch.testing.assert_close(both[name] - alone[name], leaf)


def test_what_travels(steps):
    own = federation(communities())
    made = set_up(METHOD, learning(), own)
    assert made is not None
    epochs, rounds = METHOD.generator_epochs, METHOD.generator_rounds
    shown, scored, nothing = {"head", "latent"}, {"gradient"}, set()
    expected_up = [nothing] * epochs + [shown, scored] * rounds + [nothing]
    expected_down = [nothing] * (epochs + 1) + [shown, scored] * rounds
    assert len(steps) == len(METHOD.setup().steps) == len(expected_up)
    for step, up, down in zip(steps, expected_up, expected_down, strict=True):
        assert all(set(message) == up for message in step.up)
        assert all(set(message) == down for message in step.received)
    head = {name: leaf.shape for name, leaf in head_of(steps[-1].own[0]).items()}
    messages = [message for step in steps for message in (*step.up, *step.received)]
    for message in messages:
        for name in {"head", "gradient"} & set(message):
            assert {leaf: part.shape for leaf, part in tree(message[name]).items()} == head
        if "latent" in message:
            assert message["latent"].shape == (1, SAMPLED, LATENT)
    assert sum("gradient" in message for message in messages) == 2 * 4 * rounds


def holds_row(message: Message, rows: np.ndarray) -> bool:
    """Whether one of the rows stands anywhere in a message, in one piece."""
    width = rows.shape[1]
    for leaf in pack(message.flat()).values():
        for part in (leaf, leaf.transpose(-1, -2) if leaf.dim() > 2 else leaf):
            flat = part.flatten().numpy()
            if len(flat) < width:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(flat, width)
            first = np.isclose(windows[:, :1], rows[:, 0], rtol=0, atol=1e-9)
            window, row = np.nonzero(first)
            if np.isclose(windows[window], rows[row], rtol=0, atol=1e-9).all(1).any():
                return True
    return False


def test_no_upload_holds_the_features_of_a_node(steps):
    data = communities()
    # No zeros: a row of these would stand in many a message.
    stream = np.random.default_rng(0)
    data = [replace(own, x=sp.csr_matrix(own.x.toarray() + stream.random(own.x.shape))) for own in data]
    set_up(METHOD, learning(), federation(data))
    rows = np.concatenate([own.x.toarray() for own in data])
    uploads = [message for step in steps for message in step.up if message]
    assert len(uploads) == 4 * 2 * METHOD.generator_rounds
    assert not any(holds_row(message, rows) for message in uploads)
    # It would be found.
    planted = uploads[1] | {"extra": torch.cat([torch.zeros(1, 7).double(), doubles(rows[-1:])], 1)}
    assert holds_row(planted, rows)


def test_the_latents_that_are_shown_are_those_of_sampled_nodes_with_noise(monkeypatch):
    """Two clients that hold the same and hide nothing: their samples are their own."""
    monkeypatch.setattr(fedsage, "hidden_rows", lambda own, seed: torch.zeros(own.num_nodes, dtype=torch.bool))
    ctx, mending, own = learning(), Mending(0, 1, 3), communities(clients=1)[0]
    work = mending.workspace(ctx, [own, replace(own, id=1)], PLACE)
    weights = parameters_of(ctx, work, mending)
    known = {tuple(row) for row in mending.generator(ctx).encode(weights, work.clients).tolist()}
    noisy = mending.latents(ctx, 0, weights, work)
    assert not known & {tuple(row) for row in noisy.flatten(0, 1).tolist()}
    monkeypatch.setattr(fedsage, "noise", lambda *arguments: 0.0)
    plain, later = (mending.latents(ctx, number, weights, work) for number in (0, 1))
    assert {tuple(row) for row in plain.flatten(0, 1).tolist()} <= known
    assert not torch.equal(plain[0], plain[1])
    assert not torch.equal(plain[0], later[0])
    assert abs(float((noisy - plain).std()) - 1) < 0.05  # 2 · 64 · 64 draws


@pytest.mark.parametrize("clients", [2, 3, 4, 7])
def test_every_other_client_scores_one_in_its_turn(clients):
    for start in (0, 5):
        ahead = [turn(number, clients) for number in range(start, start + clients - 1)]
        assert sorted(ahead) == list(range(1, clients))
    assert [turn(number, 4) for number in range(5)] == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("clients", [2, 3, 4])
def test_heads_go_to_the_client_whose_turn_it_is_and_gradients_come_back(clients):
    """Client i's head and latents are named i; the gradient that j makes of it is named 100 j + i."""
    mending, ctx, server = Mending(3, 6, 2), context(), {"clients": torch.tensor([clients])}
    scorers: list[set[int]] = [set() for _ in range(clients)]
    for number in range(clients - 1):
        step = 3 + 2 * number
        up: list[Message] = [
            Message({"head": {"head1": torch.full((1, 2), float(i))}, "latent": torch.full((1, 3), float(i))})
            for i in range(clients)
        ]
        server = mending.server(ctx, step, server, up)
        received = [mending.send(server, step + 1, client_) for client_ in range(clients)]
        whose = [int(message["latent"][0, 0]) for message in received]
        assert [int(tree(message["head"])["head1"][0, 0]) for message in received] == whose
        assert sorted(whose) == list(range(clients))
        up = [Message({"gradient": {"head1": torch.full((1, 2), 100.0 * j + i)}}) for j, i in enumerate(whose)]
        server = mending.server(ctx, step + 1, server, up)
        for i in range(clients):
            by, about = divmod(int(tree(mending.send(server, step + 2, i)["gradient"])["head1"][0, 0]), 100)
            assert about == i != by
            scorers[i].add(by)
    assert scorers == [set(range(clients)) - {i} for i in range(clients)]


def test_the_gradient_is_that_of_the_own_head_on_the_other_s_data(steps):
    ctx, data = learning(), communities()
    set_up(METHOD, ctx, federation(data))
    mending, epochs = METHOD.setup(), METHOD.generator_epochs
    alone = [mending.workspace(ctx, [own], PLACE) for own in data]
    for number in range(METHOD.generator_rounds):
        shown, answered = steps[epochs + 2 * number].up, steps[epochs + 2 * number + 2].received
        for i in range(4):
            by = (i + 1 + number % 3) % 4
            expected = mending.score(ctx, number, shown[i], alone[by])
            assert_trees_equal(tree(answered[i]["gradient"]), expected, exact=False)
            wrong = mending.score(ctx, number, shown[i], alone[i])
            assert not torch.allclose(wrong["head2.bias"], expected["head2.bias"])


def score_of(own: Subgraph) -> Tree:
    """The gradient of a head whose two neighbours are (0, 0) and (1, 8), whatever it is shown."""
    ctx, mending = context(), Mending(0, 1, 2)
    head = {name: leaf for name, leaf in by_hand(1, 2, 2).items() if name.startswith("head")}
    head["head2.bias"][0] = doubles([0, 0, 1, 8])
    work = mending.workspace(ctx, [own], PLACE)
    return mending.score(ctx, 0, Message({"head": head, "latent": torch.zeros(1, SAMPLED, LATENT).double()}), work)


def test_the_gradient_by_hand():
    """All neighbours are (3, 4): 2 (x̂ − x) / (P F) for both, averaged over the sample."""
    found = score_of(client([(3, 4), (3, 4), (3, 4), (9, 9)], ((0, 1), (1, 2))))
    torch.testing.assert_close(found["head2.bias"], doubles([[-1.5, -2, -1, 2]]))
    assert not found["head1.weight"].any()
    assert not found["head2.weight"].any()


def test_a_client_without_edges_scores_nothing():
    for leaf in score_of(client([(3, 4), (9, 9)])).values():
        assert torch.equal(leaf, torch.zeros_like(leaf))


def test_nodes_that_are_sampled_have_neighbours():
    """0 - 1 and 1 - 2, and 3 alone: of 0 and 2 the neighbour is 1, of 1 they are 0 and 2."""
    own = client([(1, 0), (2, 0), (3, 0), (4, 0)], ((0, 1), (1, 2)))
    true, known = sampled_neighbours(own, 0, 0, 3)
    assert true.shape == (SAMPLED, 3, 2)
    found = {tuple(row[has, 0].tolist()) for row, has in zip(true, known, strict=True)}
    assert found == {(2,), (1, 3)}
    again, _ = sampled_neighbours(own, 0, 1, 3)
    assert not torch.equal(true, again)  # others in another round


# Mending


def test_the_generated_neighbours_by_hand():
    """A node with count c and value v gets c neighbours, at most 3: (0, v), (0, 2 v), (0, 3 v); client 2 tenfold."""
    ctx, mending = context(Copying()), Mending(1, 1, 3)
    none, one, two, three, nine = (counted(count + 1e-6 if count else 0) for count in (0, 1, 2, 3, 9))
    first = client([(none, 1), (two, 2), (none, 4), (nine, 3), (one, 7)], ((0, 1), (2, 3)), train=(0, 1))
    second = client([(none, 1)], number=1)
    third = client([(one, 5), (three, 1)], ((0, 1),), train=(0,), number=2)
    weights = by_hand(3, 3, 2)
    for number, scale in enumerate((1, 1, 10)):
        weights["head1.weight"][number, 1, 0] = scale
        for place in range(3):
            weights["head2.weight"][number, 0, 2 * place + 1] = place + 1
    work = mending.workspace(ctx, [first, second, third], PLACE)
    own = [{"parameters": {name: leaf[i : i + 1] for name, leaf in weights.items()}} for i in range(3)]
    found = mending.added(ctx, own, work)
    assert [one.anchor.tolist() for one in found] == [[1, 1, 3, 3, 3, 4], [], [0, 1, 1, 1]]
    assert [one.node.tolist() for one in found] == [[0, 1, 2, 3, 4, 5], [], [0, 1, 2, 3]]
    assert dense(found[0].x).tolist() == [[0, 2], [0, 4], [0, 3], [0, 6], [0, 9], [0, 7]]
    assert found[1].x.shape == (0, 2)
    assert dense(found[2].x).tolist() == [[0, 50], [0, 10], [0, 20], [0, 30]]
    mended = first.extended(found[0])
    assert mended.edges[:, 2:].tolist() == [[1, 1, 3, 3, 3, 4], [5, 6, 7, 8, 9, 10]]
    assert mended.y[5:].tolist() == [-1] * 6
    assert not (mended.train | mended.val | mended.test)[5:].any()


@MODEL
def test_the_number_of_neighbours_is_what_the_trained_generator_predicts(model, steps):
    ctx, data = learning(model), communities(model)
    made = set_up(METHOD, ctx, federation(data))
    assert made is not None
    generator, total = METHOD.setup().generator(ctx), 0
    for own, state, added in zip(data, steps[-1].own, made.added, strict=True):
        weights, alone = tree(state["parameters"]), stack([own], 3, dtype=torch.float64, steps=ctx.model.steps)
        z_NL = generator.encode(weights, alone)  # without noise, hidden nodes and all
        count = whole_counts(generator.counts(weights, z_NL, alone.segments), [own], 3, ctx.seed).tolist()
        every = generator.features(weights, z_NL, alone.segments)
        assert added.anchor.tolist() == [row for row, times in enumerate(count) for _ in range(times)]
        wanted = [every[row, place] for row, times in enumerate(count) for place in range(times)]
        if wanted:
            torch.testing.assert_close(torch.from_numpy(dense(added.x)), torch.stack(wanted))
        total += len(wanted)
    assert total > 10


def test_counts_become_whole_numbers_that_keep_their_sum():
    """0.4 is a neighbour for two nodes in five; whole numbers stay; nobody gets more than three."""
    data = [client([(0, 0)] * 1000, number=0), client([(0, 0)] * 1000, number=1)]
    found = whole_counts(torch.full((2000,), 0.4, dtype=torch.float64), data, 3, 0)
    assert set(found.tolist()) == {0, 1}
    # Five standard deviations of 2,000 draws: 5 * sqrt(2000 * 0.4 * 0.6) = 110.
    assert abs(int(found.sum()) - 800) < 110
    assert not torch.equal(found[:1000], found[1000:])
    alone = whole_counts(torch.full((1000,), 0.4, dtype=torch.float64), data[1:], 3, 0)
    assert torch.equal(alone, found[1000:])
    whole = torch.tensor([0.0, 1.0, 2.0, 3.0, 7.5] * 200, dtype=torch.float64)
    assert whole_counts(whole, data[:1], 3, 0).tolist() == [0, 1, 2, 3, 3] * 200


def test_counts_that_are_nearly_zero_everywhere_can_still_grow():
    """Softplus has a gradient wherever it is; a ReLU below zero has none, and every count would stay zero."""
    generator = Mending(1, 0, 2).generator(context(Copying()))
    weights = by_hand(1, 2, 2)
    z_NL = doubles([[-4.0] + [0.0] * (LATENT - 1)] * 3)
    bias = weights["count.bias"].requires_grad_()
    segments = stack([client([(0, 0)] * 3)], 3, dtype=torch.float64).segments
    (gradient,) = torch.autograd.grad(generator.counts(weights, z_NL, segments).sum(), bias)
    assert float(gradient) > 0.01


# The whole set-up


def assert_same(one: SetUp | None, other: SetUp | None, tolerance: float = 0.0) -> None:
    assert one is not None
    assert other is not None
    for mine, theirs in zip(one.added, other.added, strict=True):
        assert mine.anchor.tolist() == theirs.anchor.tolist()
        assert mine.node.tolist() == theirs.node.tolist()
        np.testing.assert_allclose(dense(mine.x), dense(theirs.x), rtol=0, atol=tolerance)
    assert one.bytes_up_K.tolist() == other.bytes_up_K.tolist()
    assert one.bytes_down_K.tolist() == other.bytes_down_K.tolist()


def count_of(made: SetUp | None) -> list[int]:
    assert made is not None
    return [len(one.anchor) for one in made.added]


@MODEL
def test_the_same_seed_gives_the_same_nodes(model):
    first, again, other = (
        set_up(METHOD, learning(model, seed=seed), federation(communities(model))) for seed in (3, 3, 4)
    )
    assert_same(first, again)
    with pytest.raises(AssertionError):
        assert_same(first, other, 1e-3)


@MODEL
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_how_clients_are_stacked_does_not_matter(model, chunk):
    ctx, data = learning(model), communities(model)
    whole = set_up(METHOD, ctx, federation(data))
    assert_same(set_up(METHOD, ctx, federation(data, chunk=chunk)), whole, 1e-9)
    assert sum(count > 0 for count in count_of(whole)) > 1


def works(method: FedSage, data: list[Subgraph], **changes: Any) -> SetUp:
    """Set-up and a round after it; everything is finite."""
    ctx, own = learning(**changes), federation(data)
    made = set_up(method, ctx, own)
    assert made is not None
    for one, graph_ in zip(made.added, data, strict=True):
        assert one.x.shape == (len(one.node), graph_.x.shape[1])
        assert np.isfinite(dense(one.x)).all()
        assert ((one.anchor >= 0) & (one.anchor < graph_.num_nodes)).all()
    measured = next(simulate(method, ctx, made.extend(own), 1))
    assert torch.isfinite(measured.loss_R).all()
    return made


def test_a_client_alone_trains_its_generator_on_itself():
    made = works(METHOD, communities(clients=1))
    assert count_of(made) != [0]
    assert made.bytes_down_K.tolist() == [0]  # nobody scores it


ODD = {
    "without edges": client(np.eye(6, 12), train=(0, 1)),
    "one node": client(np.eye(1, 12), train=(0,)),
    "all nodes train": client(np.eye(8, 12), ((0, 1), (1, 2), (2, 3)), train=range(8)),
    "no node trains": client(np.eye(8, 12), ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7))),
    "without features": client(np.zeros((8, 12)), ((0, 1), (1, 2), (2, 3), (5, 6)), train=(0,)),
}


@pytest.mark.parametrize("beside", [True, False], ids=["beside others", "alone"])
@pytest.mark.parametrize("name", ODD)
def test_a_client_from_which_little_can_be_learnt(name, beside):
    usual = communities(clients=2) if beside else []
    odd = replace(ODD[name], id=len(usual))
    made = works(METHOD, [*usual, odd])
    assert len(made.added) == len(usual) + 1


def test_a_client_that_lost_nothing_does_not_disturb_the_others():
    ctx, usual = learning(), communities(clients=2)
    mending = Mending(1, 0, 3)
    alone, beside = (
        mending.workspace(ctx, data, PLACE) for data in (usual, [*usual, replace(ODD["without edges"], id=2)])
    )
    assert beside.own_M.sizes == (*alone.own_M.sizes, 0)
    one = mending.losses(ctx, 0, parameters_of(ctx, alone, mending, 2.0), alone)
    other = mending.losses(ctx, 0, parameters_of(ctx, beside, mending, 2.0), beside)
    for name, value in one.items():
        torch.testing.assert_close(other[name][:2], value)
    assert other["features"][2] == 0


@pytest.mark.parametrize(("epochs", "rounds", "moves"), [(0, 0, "nothing"), (0, 2, "head"), (1, 1, "head"), (3, 0, "")])
def test_phases_of_any_length(epochs, rounds, moves, steps):
    """What moves after the first exchange, by how its name starts."""
    works(FedSage(epochs, rounds, 3), communities())
    assert len(steps) == epochs + 2 * rounds + 1
    first, last = (tree(step.own[0]["parameters"]) for step in (steps[0], steps[-1]))
    moved = {name for name, leaf in last.items() if not torch.equal(leaf, first[name])}
    assert moved == {name for name in last if name.startswith(moves)}


def test_no_neighbours_at_most_is_refused_before_anything_is_written():
    with pytest.raises(FedpubError, match="generated=0"):
        FedSage(1, 1, 0).init_server({}, 1)


def test_a_generator_that_diverges_is_one_sentence():
    with pytest.raises(FedpubError, match="lower lr"):
        set_up(METHOD, learning(lr=1e200), federation(communities()))
