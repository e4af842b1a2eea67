"""The coordinator's side of a run whose clients are elsewhere: the simulator's rounds, as messages to sites.

What a message says follows from the server's state alone. So a coordinator that was killed and resumes from its
checkpoint asks the same again, and gets the answers that the sites have stored.

Axes: K clients.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Context
from fedpub.core.best import Best
from fedpub.core.files import write_text
from fedpub.core.message import Message
from fedpub.core.printable import printable
from fedpub.core.tree import State, Tree, state_map, tensor, tree, tree_map
from fedpub.engine.observed import Observe, Observed, Sum
from fedpub.engine.rounds import Round, Snapshot, check_version, drawn_weights, participants
from fedpub.engine.setup import OnStep
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.federation.gathering import Gathering, InSums, gathering
from fedpub.federation.known import FINGERPRINT, REMOVED, SITES, Known
from fedpub.federation.preparation import Preparation
from fedpub.federation.requests import PAUSE, Exchange, OnEvent, Requests, Terms, reason_of
from fedpub.federation.secure.at_coordinator import SecureSums
from fedpub.federation.validate.fields import MOST_EXAMPLES
from fedpub.federation.validate.upload import Expected, most_examples
from fedpub.federation.wire import Envelope, encode

LOSS = "loss"  # the mean training loss, where only that is known


@dataclass(frozen=True)
class Answer:
    """What is kept of a site's answer besides its upload."""

    fields: Mapping[str, Any]
    fingerprint: Tensor | None


class Coordinator:
    """Runs an experiment with the sites behind an exchange; `folder` has what a restart needs besides checkpoints."""

    def __init__(
        self,
        experiment: Experiment | Plan,
        run: str,
        sites: Sequence[str],
        exchange: Exchange,
        folder: Path,
        terms: Terms = Terms(),  # noqa: B008
        on_event: OnEvent = lambda *_: None,
        is_member: Callable[[str], bool] = lambda site: True,
        observe: Observe | None = None,
    ) -> None:
        self.plan, self.run, self.sites, self.terms = experiment.resolve(), run, list(sites), terms
        self.algorithm, self.ctx, self._observe = self.plan.algorithm, self.plan.context, observe
        if self.algorithm.undivided:
            method = self.plan.experiment.method
            raise FedpubError(f"`method={method}` needs all data in one place and cannot be deployed; use fedpub run")
        if not self.sites:
            raise FedpubError("a federation needs at least one site; admit one with fedpub coordinator admit")
        terms.check()
        self._path, self.requests = folder / SITES, Requests(self.sites, exchange, terms, on_event, is_member)
        self._removed_path, self._removed = folder / REMOVED, list[int]()
        self._met: set[int] = set()  # sites that have checked the present keys of all
        self._sums = SecureSums(run, (), self.plan.min_group, folder, self.requests)
        self.preparation = Preparation(self.plan, run, self.requests, folder)

    def prepare(self, on_step: OnStep | None = None) -> Known:
        """What happens once before the rounds; a restart reads it from the folder."""
        known = Known.load(self._path)
        if known is None:
            known = self.preparation.prepare(on_step)
            known.save(self._path)
        self.plan = self.plan.related(known.relations)
        self.ctx = self.plan.context
        return known

    def rounds(self, known: Known, start: Snapshot | None) -> Iterator[Round]:
        """The rounds after `start`; after the last one, every site keeps its model.

        The consumer must have saved a round before it asks for the next.
        """
        algorithm, count = self.algorithm, len(self.sites)
        w0, self._known = self.first_weights(known), known
        if start:
            check_version(start, algorithm.init_server(w0, 1), _first(known))
        server = start.server if start else algorithm.init_server(w0, count)
        clients = start.clients if start else _first(known)
        expected = Expected.of(algorithm, self.ctx, w0, len(known.classes))
        for number in range(start.round + 1 if start else 1, self.plan.rounds + 1):
            ctx = replace(self.ctx, round=number)
            server, clients = self._without_removed(number, server, clients)
            chosen = self._members(participants(ctx.seed, number, count, self.plan.fraction, 0.0))
            gathered, answers, sizes = self._play(ctx, chosen, server, clients, known, expected)
            ids = torch.tensor(sorted(answers), dtype=torch.int64)
            server, notes = gathered.server(server, ids)
            told = gathered.means() if isinstance(gathered, InSums) else None
            clients = _measured(clients, answers, number, told) | self._fingerprints(clients, answers)
            yield self._round(number, server, clients, answers, sizes, ids, notes)
        self.finish(clients)

    def _without_removed(self, number: int, server: State, clients: State) -> tuple[State, State]:
        """Nothing of a site that is no longer admitted enters any later average, of weights or of metrics.

        Who is left out of a round is saved before the round is asked for, since it decides what its messages say.
        """
        last, before = self._last_removed()
        removed = before if last == number else self.requests.removed
        write_text(self._removed_path, json.dumps({"round": number, "removed": removed}) + "\n")
        for client in sorted(set(removed) - set(before)):
            self.requests.event(client, "removed", number, "it is no longer admitted; the run continues without it")
        self._removed = removed
        if not removed:
            return server, clients
        ids = torch.tensor(removed, dtype=torch.int64)
        if self.plan.secure:
            return self.algorithm.without(server, ids), clients
        unknown = {name: leaf.index_fill(0, ids, float("nan")) for name, leaf in tree(clients["metrics"]).items()}
        kept = {FINGERPRINT: tensor(clients[FINGERPRINT]).index_fill(0, ids, 0)} if FINGERPRINT in clients else {}
        return self.algorithm.without(server, ids), clients | {"metrics": unknown} | kept

    def _last_removed(self) -> tuple[int, list[int]]:
        """The last round that was asked for, and who was left out of it."""
        if not self._removed_path.is_file():
            return 0, []
        held = json.loads(self._removed_path.read_text(encoding="utf-8"))
        return held["round"], held["removed"]

    def _members(self, chosen: list[int]) -> list[int]:
        """Those of the chosen sites that are still admitted; if none is, all that are."""
        members = [client for client in self.requests.everyone if client not in self._removed]
        if not members:
            raise FedpubError(
                "no site of this run is admitted any more; admit one again with fedpub coordinator admit, and continue "
                "with fedpub coordinator start --resume"
            )
        return [client for client in chosen if client in members] or members

    def first_weights(self, known: Known) -> Tree:
        w0 = drawn_weights(self.ctx, known.features, len(known.classes))
        return tree_map(lambda leaf: leaf.to(self.plan.dtype), w0)

    def _play(
        self, ctx: Context, chosen: list[int], server: State, clients: State, known: Known, expected: Expected
    ) -> tuple[Gathering, dict[int, Answer], dict[int, tuple[int, int]]]:
        """The uploads, the rest of the valid answers, and the bytes up and down of every site that was asked."""

        def sent(client: int) -> Message:
            return self.algorithm.send(server, torch.tensor([client]))

        number, base_K, best = ctx.round, tensor(clients["base"]), int(tensor(clients["best"]))
        need = self.terms.min_sites or max(1, math.ceil(len(chosen) / 2))
        until = time.monotonic() + self.terms.patience
        while True:
            messages = {}
            for client in chosen:
                fields = {"run": self.run, "round": number, "base": int(base_K[client]), "best": best}
                fields |= {"examples": known.examples} if self.plan.secure else {}
                messages[client] = encode(Envelope("round", fields, _one(sent(client))))
            gathered = gathering(self.algorithm, ctx, sent, self._path.parent)
            answers, lost = dict[int, Answer](), list[int]()
            sizes = {client: (0, len(data)) for client, data in messages.items()}
            for client, answer, data in self.requests.each(messages, number):
                if answer.kind == "lost":
                    self.requests.event(client, "began anew", number, reason_of(answer))
                    lost.append(client)
                elif wrong := self._wrong_answer(client, answer, number, known, expected):
                    self.requests.event(client, "refused", number, wrong)
                else:
                    gathered.add(client, answer.message, data)
                    if self._observe and not self.plan.secure:
                        self._observe(Observed(number, torch.tensor([client]), _one(sent(client)), answer.message))
                    answers[client] = Answer(answer.fields, self.algorithm.fingerprint(answer.message))
                    sizes[client] = (len(data), sizes[client][1])
            for client in lost:
                base_K[client] = 0
                self._begin_anew(client, known, number)
            for client in sorted(set(chosen) - set(answers)):
                self.requests.event(client, "left out", number, "no valid answer within the deadline")
            if len(answers) >= min(need, len(chosen)):
                if isinstance(gathered, InSums):
                    return gathered, self._summed(ctx, gathered, answers, server, known, sizes), sizes
                return gathered, answers, sizes
            if time.monotonic() > until:
                raise FedpubError(
                    f"round {number} has the answers of {len(answers)} sites and needs {need}; start the others and "
                    "continue with fedpub coordinator start --resume, or lower `min_sites`"
                )
            time.sleep(PAUSE)

    def _summed(
        self,
        ctx: Context,
        gathered: InSums,
        answers: dict[int, Answer],
        server: State,
        known: Known,
        sizes: dict[int, tuple[int, int]],
    ) -> dict[int, Answer]:
        """Ask for the sums; the answers of the sites that are in one, or in a group that has none."""
        sums = self._sums
        sums.know(self._known.keys)
        w0, ids = self.first_weights(known), torch.tensor(sorted(answers), dtype=torch.int64)
        like = self.algorithm.upload_like(ctx, w0, len(known.classes))
        self._introduce(ctx.round, ids.tolist())
        groups = [
            replace(group, members=tuple(one for one in group.members if one in self._met))
            for group in gathered.groups(server, ids, like, len(known.sites), known.examples)
        ]
        gathered.found = sums.of(ctx.round, groups)
        for client, (up, down) in sums.bytes.items():
            before = sizes.get(client, (0, 0))
            sizes[client] = before[0] + up, before[1] + down
        if self._observe:
            seen = tuple(Sum(one.ids, {**one.sums.parts()}) for one in gathered.found)
            self._observe(Observed(ctx.round, ids, self.algorithm.send(server, ids), gathered.clear(ids), seen))
        counted = {client for one in gathered.found for client in one.ids.tolist()}
        summed = {one.group for one in gathered.found}
        counted |= {client for one in groups if one.number not in summed for client in one.members}
        return {client: answer for client, answer in answers.items() if client in counted}

    def _introduce(self, number: int, clients: list[int]) -> None:
        """Tell the keys of all sites to those that have not confirmed them yet; without that they are in no sum."""
        strangers = [client for client in clients if client not in self._met]
        for client, refusal in self.preparation.introduce(self._known, strangers, number).items() if strangers else ():
            if refusal:
                self.requests.event(client, "refused", number, refusal)
            else:
                self._met.add(client)

    def _begin_anew(self, client: int, known: Known, number: int) -> None:
        """Ask once: the other sites do not wait for one that lost its state, and its refusal does not end the run."""
        message = encode(self.preparation.begin(client, known, number))
        answer, _ = self.requests.ask({client: message}, number).get(client, (None, 0))
        if answer is None or answer.kind != "begun":
            self.requests.event(client, "refused", number, f"it did not begin anew: {reason_of(answer)}")
        elif self.plan.secure:
            self._known, self._met = self.preparation.keyed_again(self._known, client, answer, number), set()
            self._known.save(self._path)

    def _wrong_answer(self, client: int, answer: Envelope, number: int, known: Known, expected: Expected) -> str | None:
        """Why an answer to a round is refused; None if it is valid. An answer cannot end the run, whatever it holds."""
        if answer.kind != "round":
            return reason_of(answer)
        try:
            most = MOST_EXAMPLES
            if known.test_sizes:
                most = most_examples(known.test_sizes[client], self.plan.ratios if self.plan.draws else None)
            wrong = expected.problem(answer, number, most)
        except Exception as error:
            wrong = f"its answer cannot be read: {error}"
        return printable(wrong) if wrong else None

    def _round(
        self,
        number: int,
        server: State,
        clients: State,
        answers: dict[int, Answer],
        sizes: dict[int, tuple[int, int]],
        ids: Tensor,
        notes: dict[str, Tensor],
    ) -> Round:
        if self.plan.secure:
            return _in_sum(number, server, clients, sizes, ids, self.ctx.task.metrics)
        count = len(self.sites)
        loss_K = torch.full((count,), float("nan"), dtype=torch.float64)
        up_K, down_K = (torch.zeros(count, dtype=torch.int64) for _ in range(2))
        for client, answer in answers.items():
            loss_K[client] = answer.fields["loss"]
        for client, (up, down) in sizes.items():
            up_K[client], down_K[client] = up, down
        metrics = tree(clients["metrics"])
        return Round(
            snapshot=Snapshot(number, server, clients),
            took_part_R=~torch.isnan(loss_K),
            metrics={name: metrics[name].clone() for name in self.ctx.task.metrics},
            loss_R=loss_K,
            sparsity_R=metrics["sparsity"].clone(),
            bytes_up_R=up_K,
            bytes_down_R=down_K,
            ids=ids,
            notes=notes,
        )

    def _fingerprints(self, clients: State, answers: dict[int, Answer]) -> State:
        """What every site was last like, [K, ...], for those that join later; zeros where it has not said."""
        known = {client: one.fingerprint for client, one in answers.items() if one.fingerprint is not None}
        if not known:
            return {FINGERPRINT: clients[FINGERPRINT]} if FINGERPRINT in clients else {}
        some = next(iter(known.values()))
        kept = tensor(clients.get(FINGERPRINT, some.new_zeros(len(self.sites), *some.shape[1:]))).clone()
        for client, own in known.items():
            kept[client] = own[0]
        return {FINGERPRINT: kept}

    def finish(self, clients: State) -> None:
        """Tell every site to keep its model; a site that does not answer keeps that of an earlier round."""
        base_K, best = tensor(clients["base"]), int(tensor(clients["best"]))
        members = [client for client in self.requests.everyone if client not in self.requests.removed]
        messages = {
            client: encode(Envelope("finish", {"run": self.run, "base": int(base_K[client]), "best": best}))
            for client in members
        }
        answers = self.requests.ask(messages)
        for client in members:
            answer, _ = answers.get(client, (None, 0))
            if answer is None or answer.kind != "finished":
                self.requests.event(client, "left out", 0, f"it did not confirm its final model: {reason_of(answer)}")


def _first(known: Known) -> State:
    """What the coordinator stores about its clients: their last counted round, and their metrics in it."""
    metrics = {
        name: torch.tensor([one[name] for one in known.metrics], dtype=torch.float64) for name in known.metrics[0]
    }
    loss = {LOSS: torch.full((1,), math.nan, dtype=torch.float64)} if known.keys else {}
    base_K = torch.zeros(len(known.sites), dtype=torch.int64)
    return {"base": base_K, "metrics": metrics | loss, **_kept(Best())}


def _measured(
    clients: State, answers: dict[int, Answer], number: int, told: Mapping[str, float] | None = None
) -> State:
    """`told`: the means over all sites, if those of a single one are not known."""
    base_K, metrics = tensor(clients["base"]).clone(), tree_map(torch.clone, tree(clients["metrics"]))
    for client, answer in answers.items():
        base_K[client] = number
        for name, value in answer.fields.get("metrics", {}).items():
            metrics[name][client] = value
    for name, mean in (told or {}).items():
        metrics[name][0] = mean
    best = Best(int(tensor(clients["best"])), *tensor(clients["best_is"]).tolist())
    best.update(number, float(metrics["val"].nanmean()), float(metrics["val_loss"].nanmean()))
    return {"base": base_K, "metrics": metrics, **_kept(best)}


def _in_sum(
    number: int,
    server: State,
    clients: State,
    sizes: dict[int, tuple[int, int]],
    ids: Tensor,
    names: Sequence[str],
) -> Round:
    """A round of which only means and sums over all sites are known: one row for all of them."""
    metrics = tree_map(torch.clone, tree(clients["metrics"]))
    up, down = (torch.tensor([sum(size[way] for size in sizes.values())]) for way in (0, 1))
    return Round(
        snapshot=Snapshot(number, server, clients),
        took_part_R=torch.tensor([bool(len(ids))]),
        metrics={name: metrics[name] for name in names},
        loss_R=metrics[LOSS],
        sparsity_R=metrics["sparsity"],
        bytes_up_R=up,
        bytes_down_R=down,
        ids=ids,
        notes={},  # relations of single sites, for which there are no rows
    )


def _kept(best: Best) -> State:
    """The best round as part of a state."""
    return {"best": torch.tensor(best.round), "best_is": torch.tensor([best.val, best.loss], dtype=torch.float64)}


def _one(message: Message) -> Message:
    """A message to one client in memory of its own: the server continues with its state."""
    return Message.of(state_map(torch.clone, message.flat()))
