"""What FED-PUB-plus adds, in numbers that were worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpub.algorithms import FedPub, Local
from fedpub.algorithms.fedpub_plus import ALONE, LOCAL, LOCAL_DROPOUT, FedPubPlus
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, pack, stacked, tree_map
from fedpub.data.clients.subgraph import Subgraph, subgraph_of
from fedpub.engine.simulate import Federation, first_weights, simulate
from fedpub.engine.size import message_bytes
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.models import GCN, Dropout
from fedpub.models.fallback import CHOSEN, SECOND, WithFallback, apart, together
from fedpub.models.feature_dropout import FeatureDropout
from fedpub.models.twin import Twin
from fedpub.store.model_card import ModelCard
from fedpub.store.model_files import load_model, save_model, settled
from fedpub.store.record import Record, Row
from fedpub.store.run_models import unsettled
from fedpub.tasks import NodeClassification
from small import (
    NODES,
    assert_trees_equal,
    context,
    few_of_one_class,
    random_tree,
    small_clients,
    small_graph,
    small_split,
    subgraphs,
)

ONE = Twin(4)
TASK = NodeClassification()


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def leaf(value: float) -> Tree:
    return {"w": numbers(value).view(1, 1, 1)}


def one_number(mean: float, now: float, rounds: int, **others: torch.Tensor | Tree) -> State:
    """The state of a client whose models are one number each."""
    state: State = {"weights": leaf(now), "masks": leaf(1.0), "mean": leaf(mean), "rounds": numbers(rounds)}
    state |= {ALONE + "weights": leaf(5.0), ALONE + "val_mean": numbers(0.18), "val_mean": numbers(0.288)}
    state |= {"loss": numbers(0.4), ALONE + "loss": numbers(0.3), "kept_loss": numbers(0.5)}
    state |= {"kept": leaf(9.0), "kept_val": numbers(-1.0), "kept_mean": numbers(0.6), "kept_mean_loss": numbers(0.7)}
    return state | others


def test_the_mean_over_rounds():
    """β = 0.8; weights 1, then 2: 0.8 · 0.2 · 1 + 0.2 · 2 = 0.56 of 1 − 0.64 = 0.36, which is 14/9."""
    method = FedPubPlus(average=0.8)
    second = method._averaged(method._averaged(numbers(0), numbers(1)), numbers(2))
    assert second.item() == pytest.approx(0.56)
    assert method.personal(one_number(0.56, 2.0, 2))["w"].item() == pytest.approx(14 / 9)


def test_before_the_first_round_the_weights_themselves_count():
    assert FedPubPlus().personal(one_number(0.0, 7.0, 0))["w"].item() == 7


def test_what_is_pruned_now_is_zero_whatever_it_was():
    assert FedPubPlus().personal(one_number(0.56, 2.0, 2, masks=leaf(0.0)))["w"].item() == 0


@pytest.mark.parametrize(("kept_val", "alone"), [(0.789, 0), (0.791, 1)])
def test_the_federated_model_must_be_better_by_the_margin(kept_val, alone):
    """After two rounds the mean 0.288 of its accuracy has 0.36 of its weight: 0.8, which is 0.01 above 0.79."""
    personal = FedPubPlus(margin=0.01).personal(one_number(0.56, 2.0, 2, kept_val=numbers(kept_val)))
    assert personal[CHOSEN].item() == alone
    assert personal[SECOND + "w"].item() == 9
    assert personal["w"].item() == pytest.approx(9 if alone else 14 / 9)
    only = FedPubPlus(choose=False).personal(one_number(0.56, 2.0, 2, kept_val=numbers(kept_val)))
    assert list(only) == ["w"]


@pytest.mark.parametrize(
    ("rounds", "mean", "mean_loss", "new"),
    [(2, 0.7, 0.9, True), (2, 0.6, 0.7, False), (2, 0.6, 0.65, True), (2, 0.5, 0.1, False), (0, 0.7, 0.1, False)],
    ids=["a better round", "as good a round", "one of lower loss", "a worse one", "none of its own"],
)
def test_the_model_trained_alone_is_kept_from_the_best_round(rounds, mean, mean_loss, new):
    """Of the last round when its mean was above all before; the mean 0.18 of its accuracy is 0.5 after two rounds."""
    done = FedPubPlus(average=0.8)._keep(one_number(0.56, 2.0, rounds), numbers(mean), numbers(mean_loss))
    assert done["kept"]["w"].item() == (5.0 if new else 9.0)
    found = [done[name].item() for name in ("kept_val", "kept_loss", "kept_mean", "kept_mean_loss")]
    assert found == pytest.approx([0.5, 0.3, mean, mean_loss] if new else [-1.0, 0.5, 0.6, 0.7])


@pytest.mark.parametrize(("kept_loss", "alone"), [(0.3, 1), (0.4, 1), (0.5, 0)])
def test_where_both_models_are_right_equally_often_the_lower_loss_decides(kept_loss, alone):
    """Both 0.8; the federated model's loss is 0.4."""
    state = one_number(0.56, 2.0, 2, kept_val=numbers(0.8), kept_loss=numbers(kept_loss))
    assert FedPubPlus().personal(state)[CHOSEN].item() == alone
    better_by_less = state | {"kept_val": numbers(0.795)}
    assert FedPubPlus().personal(better_by_less)[CHOSEN].item() == 1, "by less than the margin, whatever the loss"


@pytest.mark.parametrize(
    ("claimed", "mean", "mean_loss"),
    [
        ((0.5, 0.7, -1.0), 0.6, 2.0),
        ((-1.0, -1.0, -1.0), -1.0, -1.0),
        ((99.0, 0.5, 0.0), 0.5, 4 / 3),
        ((0.8, -0.9, -9.0), 0.8, 1.0),
    ],
    ids=["one has nothing to judge by", "nobody has", "one exaggerates", "two understate"],
)
def test_the_server_tells_everybody_the_means_of_the_models_trained_alone(claimed, mean, mean_loss):
    """Losses 1, 3 and one below zero, which there is not; the mean is over those whose accuracy is known."""
    method = FedPubPlus(tau=3.0, masks=False, similarity=False)
    server = method.init_server(random_tree(ONE), 4)
    assert method.send(server, torch.arange(4))[ALONE + "val"].tolist() == [-1] * 4
    claims = {ALONE + "val": numbers(*claimed), ALONE + "loss": numbers(1.0, 3.0, -5.0)}
    up = Message({"weights": random_tree(ONE, 3), **claims})
    done, _ = method.server(context(), server, torch.arange(3), up)
    assert method.send(done, torch.arange(4))[ALONE + "val"].tolist() == pytest.approx([mean] * 4)
    assert method.send(done, torch.arange(4))[ALONE + "loss"].tolist() == pytest.approx([mean_loss] * 4)


def test_who_is_away_counts_with_its_last_accuracy():
    """Clients 0 and 1 say 0.5 and 0.7; then 1 alone says 0.9: the mean is over both, 0.7, and not 0.9."""
    method = FedPubPlus(tau=3.0, masks=False, similarity=False)
    server = method.init_server(random_tree(ONE), 2)
    for ids, claimed in (([0, 1], (0.5, 0.7)), ([1], (0.9,))):
        claims = {ALONE + "val": numbers(*claimed), ALONE + "loss": numbers(*claimed)}
        up = Message({"weights": random_tree(ONE, len(ids)), **claims})
        server, _ = method.server(context(), server, torch.tensor(ids), up)
    assert method.send(server, torch.tensor([0]))[ALONE + "val"].tolist() == pytest.approx([0.7])


def test_each_model_has_its_own_mean_accuracy():
    """After a round that began at zero, a fifth of what each model is worth on the validation nodes."""
    plus, data, ids = FedPubPlus(tau=3.0, average=0.8), small_clients(), torch.arange(3)
    model = plus.net(ONE, TASK)
    w0 = model.init(5, 3, torch.Generator().manual_seed(2))
    server = plus.init_server(w0, 3)
    done, up, _ = plus.client(context(model), plus.init_client(w0, 3), plus.send(server, ids), data)
    federated = TASK.evaluate(model, plus.masked(done), data)["val"]
    alone = TASK.evaluate(LOCAL, done[ALONE + "weights"], data)["val"]
    assert federated.tolist() != alone.tolist()
    torch.testing.assert_close(done["val_mean"], 0.2 * federated)
    torch.testing.assert_close(done[ALONE + "val_mean"], 0.2 * alone)
    torch.testing.assert_close(up[ALONE + "val"], alone)


def test_who_has_nothing_to_judge_by_uses_the_federated_model():
    """Client 2 has no validation nodes."""
    chosen = small_split()
    chosen.val[torch.tensor(NODES[2])] = False
    own = [subgraph_of(small_graph(), torch.tensor(nodes), chosen, client, "symmetric")
           for client, nodes in enumerate(NODES)]  # fmt: skip
    plus = FedPubPlus(tau=3.0, margin=9.0)  # nobody is better by so much
    federation = Federation(own, 3, torch.device("cpu"), torch.float64)
    *_, last = simulate(plus, context(plus.net(ONE, TASK), dropout=0.3), federation, 4)
    level_is_no_gain = last.snapshot.clients | {"loss": numbers(1e9, 1e9, 1e9)}
    assert plus.personal(level_is_no_gain)[CHOSEN].flatten().tolist() == [1, 1, 0]
    assert (last.snapshot.clients["kept_val"] >= 0).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "options",
    [{"inputs": 1.0}, {"inputs": -0.1}, {"scarce": -0.1}, {"scarce": float("nan")}, {"average": 1.0}, {"average": 2.0}],
    ids=str,
)
def test_shares_that_are_none_are_refused(options):
    with pytest.raises(FedpubError, match="is outside 0 to"):
        FedPubPlus(**options)


def test_what_is_sent_is_fed_pub_s_and_two_numbers():
    """Neither the means nor the model trained alone change what leaves a client, or what it learns together."""
    data, ids = small_clients(), torch.arange(3)
    uploads = []
    for method in (FedPub(tau=3.0), FedPubPlus(tau=3.0, inputs=0.0, scarce=0.0)):
        model = method.net(ONE, TASK) if isinstance(method, FedPubPlus) else ONE
        w0 = random_tree(ONE) | {name: part for name, part in random_tree(model).items() if name.startswith(SECOND)}
        server = method.init_server(w0, 3) | {"weights": random_tree(ONE, 3)}
        own = method.init_client(w0, 3)
        _, up, _ = method.client(context(model, dropout=0.3), own, method.send(server, ids), data)
        uploads.append(up)
    plain, plus = (pack(up.flat()) for up in uploads)
    assert [plus.pop(ALONE + name).shape for name in ("val", "loss")] == [(3,)] * 2
    assert plain.keys() == plus.keys()
    for name, part in plain.items():
        torch.testing.assert_close(part, plus[name], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_masks_learn_slowly_where_examples_are_few(dtype):
    """Training nodes per feature: 2/5, 3/5, 1/5. Half the speed at 0.2: 2/3, 3/4 and 1/2 of it."""
    pace_K = FedPubPlus(scarce=0.2).pace(small_clients(dtype=dtype))
    torch.testing.assert_close(pace_K, torch.tensor([2 / 3, 3 / 4, 1 / 2], dtype=dtype))


def test_one_without_training_nodes_keeps_its_masks():
    """Client 2; the L1 would shrink them, and there is nothing that could hold them."""
    data, method = small_clients(train=(0, 1, 3, 4, 5)), FedPubPlus(tau=3.0, choose=False, lambda1=0.5)
    assert method.pace(data).tolist() == pytest.approx([0.8, 6 / 7, 0])
    server, own = method.init_server(random_tree(ONE), 3), method.init_client(random_tree(ONE), 3)
    done, _, _ = method.client(context(ONE, epochs=3), own, method.send(server, torch.arange(3)), data)
    for mask in done["masks"].values():
        assert set(mask[2].unique().tolist()) <= {0, 1}
        assert len(mask[0].unique()) > 2, "the others learn"


def test_a_slow_mask_goes_a_part_of_the_way():
    """After one step μ = 1 + lr · (±2 − λ1): the clients go 2/3, 3/4 and 1/2 of that. What a client does not
    see is zero at any speed."""
    data, ids, masks = small_clients(), torch.arange(3), []
    for scarce in (0.0, 0.2):
        method = FedPubPlus(tau=3.0, choose=False, scarce=scarce, lambda1=0.5, mask_lr=2.0)
        server, own = method.init_server(random_tree(ONE), 3), method.init_client(random_tree(ONE), 3)
        done, _, _ = method.client(context(ONE, lr=0.03), own, method.send(server, ids), data)
        masks.append(done["masks"])
    steps = set()
    for name, mask in masks[0].items():
        for client, part in enumerate((2 / 3, 3 / 4, 1 / 2)):
            seen = mask[client] != 0
            torch.testing.assert_close(masks[1][name][client][seen] - 1, part * (mask[client][seen] - 1))
            assert (masks[1][name][client][~seen] == 0).all()
            steps |= {round(step, 3) for step in (mask[client][seen] - 1).tolist()}
    assert {0.045, -0.015, -0.075} <= steps, "up, only the L1, down"


def a_rare_class() -> list[Subgraph]:
    """Clients whose models are right equally often in every round."""
    graph = few_of_one_class()
    return TASK.divide(graph, tuple(torch.arange(120).view(2, 60)), 0, (0.4, 0.3, 0.3), "symmetric")


@pytest.mark.parametrize("made", [subgraphs, a_rare_class])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_model_to_fall_back_to_is_the_one_that_local_reports(dtype, made):
    """Number for number: the weights of the round in which Local's clients were best on average."""
    federation = Federation(made(), 3, torch.device("cpu"), dtype)
    plus, ctx = FedPubPlus(tau=3.0), context(GCN(128), epochs=2, lr=0.02, dropout=0.5, weight_decay=0.0)
    rounds = 12
    reported, record = {}, Record()
    for measured in simulate(Local(), ctx, federation, rounds - 1):  # the last one is not known before its end
        if record.append(Row.of(measured, 0.0)):
            reported = tree_map(torch.clone, measured.snapshot.clients["weights"])
    best = record.best()
    *_, last = simulate(plus, replace(ctx, model=plus.net(ONE, TASK), dropout=0.6), federation, rounds)
    kept = last.snapshot.clients
    assert kept["kept_mean"][0].item() == pytest.approx(best.mean("val"))
    assert kept["kept_mean_loss"][0].item() == pytest.approx(best.mean("val_loss"))
    assert_trees_equal(kept["kept"], reported)
    assert best.round > 1 or made is subgraphs


def test_local_s_model_is_what_an_experiment_gives_local():
    asked = Experiment(method="local").resolve()
    assert (asked.model, asked.dropout) == (LOCAL, LOCAL_DROPOUT)


def test_two_models_beside_each_other_begin_as_if_alone():
    model = WithFallback(ONE, GCN(8))
    both = model.init(5, 3, torch.Generator().manual_seed(1))
    first, second = apart(both)
    assert_trees_equal(first, ONE.init(5, 3, torch.Generator().manual_seed(1)))
    assert_trees_equal(second, GCN(8).init(5, 3, torch.Generator().manual_seed(1)))


def test_every_client_is_answered_by_the_model_it_chose():
    data, first, second = small_clients(), random_tree(ONE, 3), random_tree(GCN(8), 3)
    both = together(first, second, torch.tensor([False, True, False]))
    expected = torch.where(data.segments.owner_N.unsqueeze(1) == 1, GCN(8).apply(second, data), ONE.apply(first, data))
    torch.testing.assert_close(WithFallback(ONE, GCN(8)).apply(both, data), expected)


def test_a_model_of_links_beside_its_like_is_saved_as_what_it_is():
    """GraphSAGE has weights of the same names and shapes."""
    asked = Experiment(method="fedpub-plus", task="link-prediction", hidden=4).resolve()
    federation = Federation(subgraphs(), 3, torch.device("cpu"), torch.float32)
    weights = first_weights(federation, asked.context)
    both = together(*(stacked(part, 1) for part in apart(weights)), torch.tensor([True]))
    card = ModelCard.of(asked.experiment, num_features=5, classes=("a", "b", "c"), site="1", round=1)
    assert settled(both, card)[1] == card


@pytest.mark.parametrize("which", [(False, True, False), (True, True, True), (False, False, False)], ids=str)
def test_the_models_of_all_sites_are_kept_as_a_simulation_keeps_them(which):
    asked = Experiment(method="fedpub-plus", hidden=4, dtype="float64").resolve()
    data, first, second = small_clients(), random_tree(ONE, 3), random_tree(LOCAL, 3)
    both = together(first, second, torch.tensor(which))
    card = ModelCard.of(asked.experiment, num_features=5, classes=("a", "b", "c"), site="1", round=1)
    models = [settled(tree_map(lambda leaf, at=at: leaf[at : at + 1], both), card) for at in range(3)]
    found = unsettled(models, asked)
    kept = both if any(which) else first  # where nobody fell back, there is nothing to choose from
    assert {name: leaf.shape for name, leaf in found.items()} == {name: leaf.shape for name, leaf in kept.items()}
    torch.testing.assert_close(asked.model.apply(found, data), asked.model.apply(both, data))
    plain = Experiment(method="fedpub", model="twin", hidden=4).resolve()
    assert_trees_equal(unsettled([({"w": numbers(1)}, card), ({"w": numbers(2)}, card)], plain), {"w": numbers(1, 2)})


def test_a_model_of_one_s_own_may_name_its_weights_as_it_likes():
    class Named(GCN):
        def init(self, *arguments):
            return {name.replace("classifier", "decoder"): leaf for name, leaf in super().init(*arguments).items()}

        def apply(self, w, data, dropout=None):
            return super().apply(
                {name.replace("decoder", "classifier"): leaf for name, leaf in w.items()}, data, dropout
            )

    plus = FedPubPlus(tau=3.0)
    federation = Federation(subgraphs(), 3, torch.device("cpu"), torch.float64)
    assert len(list(simulate(plus, context(plus.net(Named(4), TASK), dropout=0.3), federation, 2))) == 2


def test_a_task_s_own_parameters_are_those_of_the_chosen_model():
    first, second = {"decoder.bias": numbers(1, 2).view(2, 1)}, {"decoder.bias": numbers(3, 4).view(2, 1)}
    both = together(first, second, torch.tensor([True, False]))
    assert both["decoder.bias"].flatten().tolist() == [3, 2]


def test_dropped_columns_are_dropped_rows_of_the_first_matrices():
    """As if the features themselves were multiplied; another client's are others, whoever is stacked beside it."""
    data, w = small_clients(), random_tree(ONE, 3)
    dropout = Dropout(0.5, [7, 8, 9])
    kept_KF1 = dropout.columns(data.ids_K, 5, torch.float64)
    assert set(kept_KF1.unique().tolist()) == {0.0, 2.0}
    scaled = w | {name: w[name] * kept_KF1 for name in ("conv1.self", "conv1.neighbour")}
    expected = ONE.apply(scaled, data, dropout)
    torch.testing.assert_close(FeatureDropout(ONE, 0.5).apply(w, data, dropout), expected)
    torch.testing.assert_close(dropout.columns(small_clients(1).ids_K, 5, torch.float64), kept_KF1[1:2])
    torch.testing.assert_close(FeatureDropout(ONE, 0.5).apply(w, data), ONE.apply(w, data))


def test_input_features_are_dropped_by_their_own_share():
    """Three quarters of them, where a quarter of the hidden values is: what is kept is times 4, and not times 4/3."""
    given = []

    class Probe(Twin):
        def apply(self, w, data, dropout=None):
            given.append((w, dropout))
            return super().apply(w, data, dropout)

    data, dropout = small_clients(), Dropout(0.25, [7, 8, 9])
    w = tree_map(torch.ones_like, random_tree(ONE, 3))
    FeatureDropout(Probe(4), 0.75).apply(w, data, dropout)
    ((got, hidden),) = given
    for name in ("conv1.self", "conv1.neighbour"):
        assert set(got[name].unique().tolist()) == {0.0, 4.0}
    assert got["conv2.self"].unique().tolist() == [1]
    assert hidden == dropout, "hidden values by theirs"


@pytest.mark.parametrize("alone", [False, True])
def test_a_saved_model_is_the_one_that_the_client_uses(alone, tmp_path):
    data, first, second = small_clients(1), random_tree(ONE, 1), random_tree(GCN(8), 1)
    both = together(first, second, torch.tensor([alone]))
    asked = Experiment(method="fedpub-plus", hidden=4, dtype="float64").resolve()
    card = ModelCard.of(asked.experiment, num_features=5, classes=("a", "b", "c"), site="1", round=1)
    save_model(tmp_path, both, card)
    weights, found = load_model(tmp_path)
    assert (found.model, found.hidden) == (("gcn", 8) if alone else ("twin", 4))
    expected = WithFallback(ONE, GCN(8)).apply(both, data)
    torch.testing.assert_close(found.net().apply(weights, data), expected)


def test_half_as_wide_it_sends_no_more_than_fed_pub():
    """With 1,433 features and 7 classes, width 64 with two matrices against width 128 with one."""
    stream = torch.Generator().manual_seed(0)
    sizes = []
    for model in (Twin(64), GCN(128)):
        weights = stacked(tree_map(torch.Tensor.float, model.init(1433, 7, stream)), 1)
        sizes.append(int(message_bytes(Message({"weights": weights}), 1, torch.device("cpu"))[0]))
    assert sizes[0] <= sizes[1]


def test_the_twin_model_by_its_formula():
    """ReLU(norm(X S1 + ÂX N1 + b1)), then the same with a way round it, in NumPy."""
    own = subgraphs()[1]
    w = {name: leaf.numpy() for name, leaf in random_tree(ONE).items()}

    def norm(h):
        centred = h - h.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)

    x, a = own.x.toarray(), own.adjacency.toarray()
    h = np.maximum(norm(x @ w["conv1.self"] + a @ x @ w["conv1.neighbour"] + w["conv1.bias"]), 0)
    h = np.maximum(norm(h @ w["conv2.self"] + a @ h @ w["conv2.neighbour"] + w["conv2.bias"]), 0) + h
    expected = h @ w["classifier.weight"] + w["classifier.bias"]
    found = ONE.apply(stacked(random_tree(ONE), 1), small_clients(1))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)
