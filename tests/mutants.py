"""Deliberate defects, one at a time, each with the tests that must notice it: `make mutants`.

A test that cannot fail guards nothing. Every line of `TABLE` is a small wrong change of a source file; it is made in a
copy, the selected tests run there, and one of them has to fail. Add a line for every rule that a test of yours guards:
in the part of its area, so that others who add lines do not meet you there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("src") / "fedpub"
WARM = ("torch", "numpy", "scipy.sparse", "scipy.stats", "hypothesis", "safetensors.torch", "torch_geometric.nn")
WHOLE = "whole"  # the copy without a defect
LIMIT = 300  # seconds for the selected tests; a defect that makes them hang is noticed, too


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # below src/fedpub
    old: str  # occurs exactly once there
    new: str
    tests: str  # files or tests below tests/, separated by blanks
    unnoticed: str = ""  # why it is right that nothing notices this one

    def apply(self, source: Path) -> str:
        """Make the change in a copy of the sources; what the file was before."""
        path = source / self.file
        whole = path.read_text(encoding="utf-8")
        assert whole.count(self.old) == 1, f"{self.name}: the old text occurs {whole.count(self.old)} times"
        path.write_text(whole.replace(self.old, self.new), encoding="utf-8")
        return whole


M = Mutant
TABLE = (
    # messages
    M(
        "message-forgets-what-is-sent",
        "core/message.py",
        "return Message(self.parts | parts, self.sent)",
        "return Message(self.parts | parts)",
        "core/test_message.py::test_what_is_replaced_does_not_change_what_is_sent",
    ),
    M(
        "message-hides-what-is-sent",
        "core/message.py",
        "return {*self.parts, SENT} if self.sent else set(self.parts)",
        "return set(self.parts)",
        "core/test_message.py::test_which_entries_are_sent_is_something_that_is_disclosed",
    ),
    M(
        "narrow-proxy-of-another-run",
        "algorithms/measures.py",
        "return data.once(proxy, lambda:",
        'return data.once("proxy", lambda:',
        "engine/test_fitting.py::test_a_narrow_proxy_graph_is_made_once_for_the_same_clients",
    ),
    M(
        "recorded-seeds-ignored",
        "engine/cuda_graph.py",
        "None if self.seeds is None else self.seeds[epoch]",
        "None",
        "engine/test_cuda_graph.py::test_seeds_in_a_tensor_draw_what_the_round_s_number_would",
    ),
    # algorithms
    M(
        "alpha-transposed",
        "algorithms/fedpub.py",
        "mean = average_sent(alpha_KK, up.tree",
        "mean = average_sent(alpha_KK.T.contiguous(), up.tree",
        "algorithms/test_methods.py::test_an_average_takes_its_own_client_s_row_of_attention",
    ),
    M(
        "communities-threshold-above",
        "algorithms/fedpub_options.py",
        "EXPLICIT = 0.5 ",
        "EXPLICIT = 0.501 ",
        "algorithms/test_methods.py::test_a_similarity_of_exactly_a_half_is_a_community",
    ),
    M(
        "communities-threshold-below",
        "algorithms/fedpub_options.py",
        "EXPLICIT = 0.5 ",
        "EXPLICIT = 0.499 ",
        "algorithms/test_methods.py::test_a_similarity_of_exactly_a_half_is_a_community",
    ),
    M(
        "plus-model-never-trained",
        "algorithms/fedpub_plus/choice.py",
        "torch.where(exists_KM, weighed_KM, 2 * UNKNOWN)",
        "weighed_KM",
        "algorithms/test_fedpub_plus.py::test_a_model_that_a_client_has_not_trained_is_never_chosen",
    ),
    M(
        "plus-late-beside",
        "algorithms/fedpub_plus/beside.py",
        "torch.where(rounds_K < ctx.round - 1, by_itself_K, with_all_K)",
        "with_all_K",
        "algorithms/test_fedpub_plus.py::test_a_client_that_has_missed_rounds_keeps_its_own_best_model_beside",
    ),
    M(
        "plus-average-of-one",
        "algorithms/fedpub_plus/method.py",
        "share.sum(1, keepdim=True) >= least",
        "share.sum(1, keepdim=True) >= 1",
        "algorithms/test_fedpub_plus.py::test_an_average_is_of_as_many_as_a_group_needs",
    ),
    M(
        "plus-trial-of-all",
        "algorithms/fedpub_plus/standing.py",
        "means(score_KM[(score_KM[:, [EVERYONE, COMMUNITY]] >= 0).all(1)])",
        "means(score_KM)",
        "algorithms/test_fedpub_plus.py::test_the_trial_compares_the_same_clients",
    ),
    M(
        "plus-huge-loss",
        "algorithms/fedpub_plus/method.py",
        "told_KM[:, BESIDE_LOSS:].clamp(max=MOST)",
        "told_KM[:, BESIDE_LOSS:]",
        "algorithms/test_fedpub_plus.py::test_losses_that_are_too_large_to_be_added_stop_nobody",
    ),
    M(
        "plus-late-site-refuses",
        "algorithms/fedpub_plus/method.py",
        'return int(tensor(own["moved"]).min())',
        "return base",
        "federation/test_federation.py::test_a_site_that_comes_late_begins_alone_and_then_takes_part",
    ),
    M(
        "plus-joins-those-alone",
        "algorithms/fedpub_plus/method.py",
        'tensor(server["alone"]).to(members_K.device) == 0',
        "members_K.any(1)",
        "federation/test_federation.py::test_who_joins_is_told_nothing_of_a_member_that_was_lost",
    ),
    M(
        "join-phase-of-the-first",
        "federation/joining.py",
        "part[near : near + 1]",
        "part[:1]",
        "federation/test_federation.py::test_who_joins_is_told_nothing_of_a_member_that_was_lost",
    ),
    M(
        "join-fingerprint-unseen",
        "federation/joining.py",
        "own.shape[1:] != theirs.shape[1:] or not bool(torch.isfinite(own).all())",
        "False",
        "federation/test_federation.py::test_what_characterises_a_newcomer_is_looked_at",
    ),
    M(
        "removed-in-the-middle",
        "federation/coordinator.py",
        "before if last == number else self.requests.removed",
        "self.requests.removed",
        "federation/test_removal.py::test_a_resumed_run_goes_on_without_the_site",
    ),
    M(
        "removed-still-in-means",
        "federation/coordinator.py",
        'clients | {"metrics": unknown} | kept',
        "clients | kept",
        "federation/test_removal.py::test_its_last_values_are_in_no_later_mean",
    ),
    M(
        "removed-still-asked",
        "federation/coordinator.py",
        "return [client for client in chosen if client in members] or members",
        "return chosen",
        "federation/test_removal.py::test_a_removed_site_is_in_no_later_average",
    ),
    M(
        "removed-leaves-too-small-a-group",
        "algorithms/fedpub_plus/standing.py",
        "return left | placed(least, left) if leave and",
        "return left if leave and",
        "federation/test_removal.py::test_fedpub_plus_forgets_who_has_left",
    ),
    M(
        "removed-still-scored",
        "algorithms/fedpub_plus/standing.py",
        'return {"scores": tensor(server["scores"]).index_fill(0, ids, UNKNOWN)}',
        "return {}",
        "federation/test_removal.py::test_fedpub_plus_forgets_who_has_left",
    ),
    M(
        "exchange-waits-for-removed",
        "flower/exchange.py",
        "if client not in found and self._is_member(client)]",
        "if client not in found]",
        "flower/test_link.py::test_a_site_that_is_removed_is_not_waited_for",
    ),
    M(
        "exchange-waits-for-the-late",
        "flower/exchange.py",
        "client not in self._late and ",
        "",
        "flower/test_link.py::test_a_slow_site_costs_the_deadline_once_and_is_waited_for_again_when_it_is_in_time",
    ),
    M(
        "exchange-waits-for-the-absent",
        "flower/exchange.py",
        "and now - self._seen[client] <= self._grace",
        "and True",
        "flower/test_link.py::test_a_site_that_is_away_does_not_cost_the_deadline",
    ),
    M(
        "gate-old-certificate",
        "flower/gate.py",
        "context.load_cert_chain(self._folder / SERVER, self._folder / SERVER_KEY)\n                    log",
        "log",
        "flower/test_gate.py::test_a_renewed_certificate_is_for_new_connections_and_ends_no_old_one",
    ),
    M(
        "report-away-is-unknown",
        "report/related.py",
        "int(new) if here else old",
        "int(new)",
        "report/test_related.py::test_a_client_that_is_away_is_where_it_was",
    ),
    M(
        "plus-linked-by-the-nearest-pair",
        "algorithms/fedpub_plus/communities.py",
        '"average")',
        '"single")',
        "algorithms/test_fedpub_plus.py::test_the_mean_over_all_pairs_counts",
    ),
    M(
        "plus-communities-of-any-size",
        "algorithms/fedpub_plus/communities.py",
        "((size_G > 0) & (size_G < least)).any()",
        "((size_G > 0) & (size_G < 1)).any()",
        "algorithms/test_fedpub_plus.py::test_a_community_that_is_too_small_joins_the_one_most_like_it",
    ),
    M(
        "plus-chosen-by-own-examples-alone",
        "algorithms/fedpub_plus/choice.py",
        "own_KM * score_KM + all_KM * mean_KM",
        "(own_KM + all_KM) * score_KM",
        "algorithms/test_fedpub_plus.py::test_own_examples_and_those_of_all_are_weighed",
    ),
    M(
        "plus-means-over-those-who-do-not-know",
        "algorithms/fedpub_plus/choice.py",
        "count_M.clamp(min=1)",
        "len(score_KM)",
        "algorithms/test_fedpub_plus.py::test_means_are_over_those_who_know",
    ),
    M(
        "plus-kept-score-of-all",
        "algorithms/fedpub_plus/beside.py",
        '"kept_score": score_K',
        '"kept_score": mean_K',
        "algorithms/test_fedpub_plus.py::test_the_model_beside_is_kept_from_the_best_round",
    ),
    M(
        "plus-trial-without-masks",
        "algorithms/fedpub_plus/standing.py",
        "torch.maximum(mean_M[EVERYONE], mean_M[PERSONAL])",
        "mean_M[EVERYONE]",
        "algorithms/test_fedpub_plus.py::test_both_averages_are_tried_in_turns_and_the_better_goes_on",
    ),
    M(
        "plus-late-communities-begin-anew",
        "algorithms/fedpub_plus/standing.py",
        " * (groups(server) > 1)",
        "",
        "algorithms/test_fedpub_plus.py::test_a_latecomer_is_placed_when_it_comes",
    ),
    M(
        "plus-alone-but-sent",
        "algorithms/fedpub_plus/method.py",
        " & for_each(here_K, new)",
        "",
        "algorithms/test_fedpub_plus.py::test_alone_a_client_sends_the_change_of_its_function_and_nothing_else",
    ),
    M(
        "plus-masks-learn-in-every-round",
        "algorithms/fedpub_plus/method.py",
        "learns_K = joint_K | (phase_K == IN_COMMUNITY)",
        "learns_K = ~alone_K",
        "algorithms/test_fedpub_plus.py::test_in_each_phase_the_right_models_learn",
    ),
    M(
        "plus-masks-at-one-speed",
        "algorithms/fedpub_plus/method.py",
        "inner.lr * examples_K / (examples_K + SCARCE)",
        "inner.lr + 0 * examples_K",
        "algorithms/test_fedpub_plus.py::test_the_personal_model_has_masks_and_begins_at_the_same_weights",
    ),
    M(
        "plus-function-with-its-mean",
        "algorithms/fedpub_plus/method.py",
        "(change_KPC - change_KPC.mean(1, keepdim=True))",
        "change_KPC",
        "algorithms/test_fedpub_plus.py::test_alone_a_client_sends_the_change_of_its_function_and_nothing_else",
    ),
    M(
        "plus-absent-clients-averaged",
        "algorithms/fedpub_plus/averages.py",
        "average_sent(share_GK, weights, sent, last), share_GK.sum(1, keepdim=True)",
        "average_sent(share_GK, weights, sent, last), 0 * share_GK[:, :1] + share_GK.shape[1]",
        "algorithms/test_fedpub_plus.py::test_a_client_that_is_away_is_in_no_average",
    ),
    # similarity, rng
    M(
        "feature-proxy-same-draw",
        "models/proxy.py",
        'numpy_stream(seed, "proxy", "features", client)',
        'numpy_stream(seed, "proxy", "features")',
        "algorithms/test_similarity.py::test_every_client_draws_for_itself",
    ),
    M(
        "neighbours-block-offset",
        "algorithms/similarity.py",
        "ranked[own, own + start]",
        "ranked[own, own]",
        "algorithms/test_similarity.py::test_in_every_block_of_rows_a_client_is_its_own_neighbour",
    ),
    M(
        "dropout-floor",
        "core/rng.py",
        "threshold = round(p * 256)",
        "threshold = int(p * 256)",
        "core/test_rng.py::test_what_is_kept_is_scaled_exactly",
    ),
    M(
        "counter-from-zero",
        "core/rng.py",
        "_mix64((counter + 1) * _GOLDEN)",
        "_mix64(counter * _GOLDEN)",
        "core/test_rng.py::test_counter_words_by_python_s_own_integers",
    ),
    # data
    M(
        "signed-features-normalised",
        "data/graph.py",
        "if x.data.size and x.data.min() < 0:",
        "if False:",
        "data/test_graph.py::test_bags_of_words_are_normalised_as_pyg_does_and_signed_features_stay",
    ),
    M(
        "rows-below-one-enlarged",
        "data/graph.py",
        "1 / np.maximum(total, 1)",
        "1 / np.maximum(total, 1e-9)",
        "data/test_graph.py::test_bags_of_words_are_normalised_as_pyg_does_and_signed_features_stay",
    ),
    M(
        "names-share-a-file",
        "core/files.py",
        "if plain and plain == name:",
        "if plain:",
        "data/clients/test_partition.py::test_graphs_of_any_names_have_partitions_of_their_own",
    ),
    M(
        "name-leads-elsewhere",
        "core/files.py",
        '"[^A-Za-z0-9._-]+"',
        '"[^A-Za-z0-9._/-]+"',
        "data/clients/test_partition.py::test_whatever_a_graph_is_called_its_partition_is_kept_in_the_cache",
    ),
    M(
        "digest-unchecked",
        "core/files.py",
        "if written is not None and written != _digest(tensors, metadata):",
        "if False:",
        "core/test_files.py::test_no_flipped_bit_changes_what_is_read",
    ),
    M(
        "digest-without-header",
        "core/files.py",
        "hashlib.sha256(_dump(metadata).encode())",
        "hashlib.sha256()",
        "core/test_files.py",
    ),
    M(
        "another-partition-resumed",
        "store/directory.py",
        "if partition is not None else []\n        except",
        "if False else []\n        except",
        "store/test_directory.py::test_a_run_is_not_resumed_on_another_partition_of_the_same_graph",
    ),
    M(
        "overlap-odd-node",
        "data/clients/partition.py",
        "half = (len(community) + sample % 2) // 2",
        "half = len(community) // 2",
        "data/clients/test_partition.py::test_an_odd_node_falls_to_every_other_client",
    ),
    M(
        "overlap-third",
        "data/clients/partition.py",
        "half = (len(community) + sample % 2) // 2",
        "half = (len(community) + sample % 2) // 3",
        "data/clients/test_partition.py::test_an_odd_node_falls_to_every_other_client",
    ),
    M(
        "merge-without-room",
        "data/clients/partition.py",
        "fits = np.flatnonzero(room >= len(piece))",
        "fits = np.arange(clients)",
        "data/clients/test_partition.py::test_communities_are_merged_where_there_is_room",
    ),
    M(
        "merge-room-never-less",
        "data/clients/partition.py",
        "room[client] -= len(piece)",
        "pass",
        "data/clients/test_partition.py::test_communities_are_merged_where_there_is_room",
    ),
    M(
        "merge-anywhere-when-full",
        "data/clients/partition.py",
        "fits = np.flatnonzero(room == room.max())",
        "fits = np.arange(clients)",
        "data/clients/test_partition.py::test_communities_are_merged_where_there_is_room",
    ),
    M(
        "merge-empty-handed",
        "data/clients/partition.py",
        "if index < clients:",
        "if False:",
        "data/clients/test_partition.py::test_more_clients_than_communities_still_all_have_nodes",
    ),
    # data: splits
    M(
        "own-split-ignored",
        "data/clients/split.py",
        "if graph.split is not None:",
        "if False:",
        "data/clients/test_split.py::test_an_own_split_by_hand",
    ),
    M(
        "own-split-of-unlabelled-nodes",
        "data/clients/split.py",
        "Split(*(known_N & (graph.split == part)",
        "Split(*((graph.split == part)",
        "data/clients/test_split.py::test_an_own_split_by_hand",
    ),
    M(
        "published-first-draw",
        "data/clients/split.py",
        "    torch.randperm(num_nodes, generator=stream)\n    order",
        "    order",
        "data/clients/test_split.py::test_the_published_draw_of_cora",
    ),
    M(
        "published-test-last",
        "data/clients/split.py",
        "sets[order[train : train + test]] = TEST",
        "sets[order[-test:]] = TEST",
        "data/clients/test_split.py::test_the_published_draw_of_cora",
    ),
    M(
        "untaught-class-accepted",
        "experiment/prepare.py",
        "check_learnable(divided)",
        "pass",
        "data/clients/test_split.py::test_a_run_with_a_class_that_nothing_teaches_is_refused",
    ),
    M(
        "run-keeps-own-split",
        "experiment/prepare.py",
        "divided = with_sets(plan, usable(plan, graph))",
        "divided = usable(plan, graph)",
        "data/clients/test_split.py::test_a_graph_with_a_split_is_used_as_it_is",
    ),
    M(
        "ratios-without-effect",
        "experiment/prepare.py",
        "published_ratios(plan.dataset), asked)",
        "published_ratios(plan.dataset))",
        "data/clients/test_split.py::test_a_bad_split_is_one_sentence_and_leaves_nothing",
    ),
    M(
        "site-draws-anyway",
        "federation/part.py",
        "with_split(there, plan.split, None)",
        'with_split(there, "random", None)',
        "data/clients/test_split.py::test_a_site_uses_its_own_split",
    ),
    M(
        "examples-bounded-by-no-ratios",
        "federation/coordinator.py",
        "self.plan.ratios if self.plan.draws else None",
        "self.plan.ratios",
        "federation/test_refusal.py::test_only_drawn_sets_bound_a_site_s_examples",
    ),
    M(
        "splits-share-data",
        "runs/comparison.py",
        "made.ratios, made.split, asked.task",
        "made.ratios, asked.task",
        "data/clients/test_split.py::test_runs_with_different_splits_do_not_share_their_data",
    ),
    M(
        "masks-of-another-split",
        "api/results.py",
        "masks(with_sets(plan, graph), plan",
        "masks(graph, plan",
        "data/clients/test_split.py::test_masks_of_pyg_are_the_split",
    ),
    # models, tasks
    M(
        "f1-over-true-classes",
        "tasks/metrics.py",
        "f1_RC.sum(1) / (either_RC > 0).sum(1)",
        "f1_RC.sum(1) / (hit_RC > 0).sum(1)",
        "models/test_models.py::test_f1_counts_classes_that_were_only_predicted",
    ),
    # batches, hops
    M(
        "batches-in-one-order",
        "algorithms/training.py",
        'numpy_stream(seed, "batches", client, number, epoch)',
        'numpy_stream(seed, "batches", client, number)',
        "algorithms/test_batches.py::test_an_epoch_visits_every_training_node_once_in_the_client_s_own_order",
    ),
    M(
        "batches-in-the-order-of-a-place",
        "algorithms/training.py",
        'numpy_stream(seed, "batches", client, number, epoch)',
        'numpy_stream(seed, "batches", position, number, epoch)',
        "algorithms/test_batches.py::test_an_epoch_visits_every_training_node_once_in_the_client_s_own_order",
    ),
    M(
        "last-batch-left-out",
        "algorithms/training.py",
        "range(0, max(1, *map(len, orders)), size)",
        "range(0, max(1, *map(len, orders)) - size + 1, size)",
        "algorithms/test_batches.py::test_an_epoch_visits_every_training_node_once_in_the_client_s_own_order",
    ),
    M(
        "batches-lose-their-moments",
        "algorithms/training.py",
        "for one, new in zip(trees[:3], taken[:3], strict=True):",
        "for one, new in zip(trees[:1], taken[:1], strict=True):",
        "algorithms/test_batches.py::test_training_on_batches_by_hand",
    ),
    M(
        "batches-without-steps",
        "algorithms/training.py",
        "            step_K[clients] = steps\n",
        "",
        "algorithms/test_batches.py::test_training_on_batches_by_hand",
    ),
    M(
        "steps-of-everybody-in-a-batch",
        "algorithms/training.py",
        "            step_K[clients] = steps\n",
        "            step_K += 1\n",
        "algorithms/test_batches.py::test_training_on_batches_by_hand",
    ),
    M(
        "batches-share-dropout",
        "algorithms/training.py",
        "step(ctx.step(epoch, number), some",
        "step(ctx.step(epoch), some",
        "algorithms/test_batches.py::test_training_on_batches_by_hand",
    ),
    M(
        "pull-once-an-epoch",
        "algorithms/training.py",
        "if proximal and (task_step.epoch or task_step.batch):",
        "if proximal and task_step.epoch:",
        "algorithms/test_batches.py::test_training_on_batches_by_hand",
    ),
    M(
        "loss-of-the-last-batch",
        "algorithms/training.py",
        "loss_K[clients] += lost *",
        "loss_K[clients] = lost *",
        "algorithms/test_batches.py::test_training_on_batches_by_hand",
    ),
    M(
        "rates-of-other-clients",
        "algorithms/training.py",
        "return value_K[clients][part] if isinstance(value_K, Tensor) else value_K",
        "return value_K[: len(clients)][part] if isinstance(value_K, Tensor) else value_K",
        "algorithms/test_batches.py::test_a_client_s_batches_do_not_depend_on_who_is_beside_it",
    ),
    M(
        "batch-rows-renumbered",
        "data/clients/stack.py",
        "segments = Segments.of(sizes, self.dtype, self.device, self.segments.row_N[chosen])",
        "segments = Segments.of(sizes, self.dtype, self.device)",
        "algorithms/test_batches.py::test_training_on_batches_by_hand",
    ),
    M(
        "batch-of-the-first-clients",
        "data/clients/stack.py",
        "ids_K=self.ids_K if clients is None else self.ids_K[clients],",
        "ids_K=self.ids_K if clients is None else self.ids_K[: len(clients)],",
        "algorithms/test_batches.py::test_an_epoch_visits_every_training_node_once_in_the_client_s_own_order",
    ),
    M(
        "batches-for-every-model",
        "experiment/checks.py",
        "if plan.batch_size and (not plan.model.independent or plan.task.of_pairs):",
        "if False:",
        "algorithms/test_batches.py::test_batches_that_are_not_possible_are_one_sentence",
    ),
    M(
        "parts-of-outputs-disordered",
        "tasks/base.py",
        "torch.cat([model.apply(w, data.rows(part)) for part in parts])",
        "torch.cat([model.apply(w, data.rows(part)) for part in parts[::-1]])",
        "algorithms/test_batches.py::test_outputs_in_parts_are_the_outputs",
    ),
    M(
        "site-without-relations",
        "federation/site.py",
        "plan = plan.related(own.num_relations)",
        "pass",
        "federation/test_hops_at_sites.py::test_directions_kinds_and_weights_of_edges_are_the_same_at_sites",
    ),
    M(
        "embedding-without-the-last-step",
        "models/hops.py",
        "for r in range(self.hops + 1):",
        "for r in range(self.hops):",
        "models/test_hops.py::test_the_embedding_is_the_mean_of_the_hidden_values_on_the_proxy_graph",
    ),
    M(
        "embedding-of-the-first-relation",
        "models/hops.py",
        "for i in range(self.relations)]\n            )",
        "for i in range(1)]\n            )",
        "models/test_hops.py::test_the_embedding_is_the_mean_of_the_hidden_values_on_the_proxy_graph",
    ),
    M(
        "embedding-without-normalisation",
        "models/hops.py",
        "h_KPH = torch.relu(layer_norm(h_KPH))",
        "h_KPH = torch.relu(h_KPH)",
        "models/test_hops.py::test_the_embedding_is_the_mean_of_the_hidden_values_on_the_proxy_graph",
    ),
    M(
        "narrow-proxy-without-its-walks",
        "models/proxy.py",
        "return replace(proxy, x=x, walks=tuple(walks), columns_KM=columns_KM)",
        "return replace(proxy, x=x, walks=(x,) * len(walks), columns_KM=columns_KM)",
        "models/test_hops.py::test_a_narrow_proxy_graph_has_the_same_embeddings",
    ),
    # imbalance
    M(
        "balanced-over-all-classes",
        "tasks/node_classification.py",
        "present_K, total_K = (count_KC > 0).sum(1, keepdim=True),",
        "present_K, total_K = torch.full_like(count_KC[:, :1], data.num_classes),",
        "tasks/test_imbalance.py::test_balanced_weights_in_the_loss_by_hand",
    ),
    M(
        "balanced-without-effect",
        "tasks/node_classification.py",
        "return each_M if weight is None else each_M * weight[",
        "return each_M if weight is None else each_M + 0 * weight[",
        "tasks/test_imbalance.py::test_balanced_weights_in_the_loss_by_hand",
    ),
    M(
        "validation-loss-unweighted",
        "tasks/node_classification.py",
        "return total_R / weight_R",
        "return total_R / total_R.new_zeros(val.num_clients).index_add(0, val.owner_M, torch.ones_like(wrong_M))",
        "tasks/test_imbalance.py::test_balanced_weights_in_the_validation_loss_by_hand",
    ),
    M(
        "metric-decides-nothing",
        "tasks/node_classification.py",
        "judged = {part: found[self.metric][where]",
        'judged = {part: found["accuracy"][where]',
        "tasks/test_imbalance.py::test_every_metric_decides_the_best_round",
    ),
    M(
        "chance-of-a-ranking",
        "tasks/node_classification.py",
        "torch.full_like(share_RC, 0.5)",
        "torch.full_like(share_RC, 0.0)",
        "tasks/test_imbalance.py::test_what_learning_nothing_gives_by_hand",
    ),
    M(
        "missing-class-ranked",
        "tasks/metrics.py",
        "precision.view(classes, clients).nanmean(0)",
        "precision.view(classes, clients).nan_to_num(0).mean(0)",
        "tasks/test_imbalance.py::test_rankings_of_three_classes_by_hand",
    ),
    M(
        "classes-ranked-by-logits",
        "tasks/metrics.py",
        "for part in (log_softmax(logits_MC, 1), true_MC, place_MC))",
        "for part in (logits_MC, true_MC, place_MC))",
        "tasks/test_imbalance.py::test_rankings_of_several_classes_are_the_mean_over_each_against_the_others",
    ),
    M(
        "threshold-with-one-class",
        "tasks/metrics.py",
        "if not bool(true_M.any()) or bool(true_M.all()):",
        "if not len(true_M):",
        "tasks/test_imbalance.py::test_the_best_threshold_by_hand",
    ),
    M(
        "threshold-between-equal-shares",
        "tasks/metrics.py",
        "last = torch.nonzero(share_P[1:] != share_P[:-1]).flatten()",
        "last = torch.arange(len(share_P) - 1)",
        "tasks/test_imbalance.py::test_no_threshold_is_better_than_the_best",
    ),
    M(
        "threshold-one-half-not-preferred",
        "tasks/metrics.py",
        "torch.where((lower_T <= EVEN) & (upper_T > EVEN), EVEN, (lower_T + upper_T) / 2)",
        "(lower_T + upper_T) / 2",
        "tasks/test_imbalance.py::test_the_best_threshold_by_hand",
    ),
    M(
        "threshold-of-the-first-best",
        "tasks/metrics.py",
        "best[(threshold_T[best] - EVEN).abs().argmin()]",
        "best[0]",
        "tasks/test_imbalance.py::test_no_threshold_is_better_than_the_best",
    ),
    M(
        "threshold-never-below-all",
        "tasks/metrics.py",
        "above = torch.cat([last.new_tensor([-1]), last,",
        "above = torch.cat([last.new_tensor([0]), last,",
        "tasks/test_imbalance.py::test_no_threshold_is_better_than_the_best",
    ),
    M(
        "ranking-decides-by-accuracy",
        "tasks/metrics.py",
        '[metric if metric not in RANKINGS else "macro-f1"]',
        '[metric if metric not in RANKINGS else "accuracy"]',
        "tasks/test_imbalance.py::test_no_threshold_is_better_than_the_best",
    ),
    M(
        "threshold-of-another-client",
        "tasks/node_classification.py",
        "decided(share_NC[test.rows_M], threshold_R[test.owner_M])",
        "decided(share_NC[test.rows_M], threshold_R[:1])",
        "tasks/test_imbalance.py::test_thresholds_and_confusion_matrices_by_hand",
    ),
    M(
        "confusion-turned-over",
        "tasks/node_classification.py",
        "counted = confusion(test.owner_M, data.y_N[test.rows_M], predicted_M,",
        "counted = confusion(test.owner_M, predicted_M, data.y_N[test.rows_M],",
        "tasks/test_imbalance.py::test_a_confusion_matrix_of_three_classes_by_hand",
    ),
    M(
        "prediction-without-threshold",
        "tasks/node_classification.py",
        "return (share_MC[:, 1] > threshold_M).long()",
        "return share_MC.argmax(1)",
        "tasks/test_imbalance.py::test_the_second_class_is_predicted_above_its_threshold",
    ),
    M(
        "prediction-at-the-threshold",
        "tasks/node_classification.py",
        "return (share_MC[:, 1] > threshold_M).long()",
        "return (share_MC[:, 1] >= threshold_M).long()",
        "tasks/test_imbalance.py::test_the_second_class_is_predicted_above_its_threshold",
    ),
    M(
        "card-of-a-run-without-threshold",
        "store/run_models.py",
        "**{name: found[client] for name, found in details.items()},",
        "",
        "tasks/test_imbalance.py::test_thresholds_go_with_the_models_and_decide_what_is_predicted",
    ),
    M(
        "card-of-a-site-without-threshold",
        "federation/site.py",
        "**{name: values[0] for name, values in details.items()},",
        "",
        "tasks/test_imbalance.py::test_thresholds_go_with_the_models_and_decide_what_is_predicted",
    ),
    M(
        "old-card-refused",
        "store/model_card.py",
        " | dict.fromkeys(DETAILS)  # versions",
        "  # versions",
        "tasks/test_imbalance.py::test_a_card_of_a_version_without_thresholds_is_read",
    ),
    # graphs from objects
    M(
        "network-forgets-weights",
        "data/tables/objects.py",
        "return Edges(ends_2E, torch.tensor(weights, dtype=torch.float64), directed=directed)",
        "return Edges(ends_2E, torch.ones(len(weights), dtype=torch.float64), directed=directed)",
        "data/tables/test_objects.py::test_a_network_is_the_same_graph_as_its_tables",
    ),
    M(
        "network-forgets-directions",
        "data/tables/objects.py",
        "return Edges(ends_2E, torch.tensor(weights, dtype=torch.float64), directed=directed)",
        "return Edges(ends_2E, torch.tensor(weights, dtype=torch.float64))",
        "data/tables/test_objects.py::test_a_network_is_the_same_graph_as_its_tables",
    ),
    M(
        "network-of-any-weights",
        "data/tables/objects.py",
        'or not 0 <= float(given) < float("inf")',
        "or float(given) != float(given)",
        "data/tables/test_objects.py::test_a_weight_of_a_network_that_is_none_is_refused",
    ),
    M(
        "pyg-weights-added",
        "data/tables/objects.py",
        'edges = linked(given, num_nodes, "the PyG Data", (), "merge").edges',
        'edges = linked(given, num_nodes, "the PyG Data", (), "sum").edges',
        "data/tables/test_objects.py::test_pyg_data_is_the_same_graph_as_its_tables",
    ),
    M(
        "pyg-of-any-weights",
        "data/tables/objects.py",
        "wrong = torch.nonzero(~((weight >= 0) & (weight < torch.inf))).flatten()",
        "wrong = torch.empty(0)",
        "data/tables/test_objects.py::test_edges_of_pyg_data_that_are_refused",
    ),
    M(
        "pyg-kinds-out-of-step",
        "data/graph.py",
        "of_edges = {name: torch.cat([part, part]) for name, part in of_edges.items()}",
        "of_edges = {name: torch.cat([part, part.flip(0)]) for name, part in of_edges.items()}",
        "data/tables/test_objects.py::test_directions_kinds_and_weights_go_to_pyg_and_their_edges_come_back",
    ),
    M(
        "merged-weights-lost",
        "data/graph.py",
        '"merge" if weight is None else "sum")\n    return replace',
        '"merge")\n    return replace',
        "data/tables/test_objects.py::test_a_gcn_has_every_joined_pair_once_with_its_weights_added",
    ),
    M(
        "batches-weigh-by-the-batch",
        "data/clients/stack.py",
        "train_count_KC=self.train_count_KC if clients is None else self.train_count_KC[clients],",
        "train_count_KC=torch.zeros(count, self.num_classes).double().index_add("
        "0, owner_M, torch.eye(self.num_classes).double()[self.y_N[chosen]]),",
        "algorithms/test_batches.py::test_balanced_weights_are_those_of_all_training_nodes_in_every_batch",
    ),
    M(
        "idle-clients-have-no-batch",
        "algorithms/training.py",
        "if len(order) > start or not start]",
        "if len(order) > start]",
        "algorithms/test_batches.py::test_a_client_without_training_nodes_takes_the_same_steps_with_a_large_batch",
    ),
    M(
        "predicts-with-other-relations",
        "runs/prediction.py",
        "graph.num_relations != card.relations",
        "False",
        "federation/test_hops_at_sites.py::test_a_graph_with_other_relations_is_refused",
    ),
    M(
        "threshold-in-single-precision",
        "tasks/node_classification.py",
        "threshold = torch.tensor(self.threshold, dtype=torch.float64)",
        "threshold = torch.tensor(self.threshold, dtype=torch.float32)",
        "tasks/test_imbalance.py::test_a_threshold_close_to_one_decides_what_is_predicted",
    ),
    M(
        "all-above-a-share-of-zero",
        "tasks/metrics.py",
        "if share_P[-1] > 0 else []",
        "if share_P[-1] >= 0 else []",
        "tasks/test_imbalance.py::test_the_best_threshold_where_shares_are_saturated",
    ),
    M(
        "features-in-files-are-not-dropped",
        "data/clients/stack.py",
        "walks.append(None if cheaper else _rows(parts, *how))",
        "walks.append(None if cheaper else _rows(parts, *how[:-2], None, []))",
        "engine/test_fitting.py::test_features_in_files_give_the_same_numbers",
    ),
    M(
        "features-are-never-in-files",
        "engine/fitting.py",
        "folder = Path(tempfile.gettempdir()) if inputs else None",
        "folder = None",
        "engine/test_fitting.py::test_features_go_to_files_where_they_do_not_fit",
    ),
    M(
        "a-note-every-time",
        "cli/__init__.py",
        "            said.add(str(message))\n",
        "",
        "cli/test_run.py::test_what_a_model_cannot_use_of_the_edges_is_said_once",
    ),
    M(
        "links-predicted-with-weights",
        "runs/prediction.py",
        "weighted=not card.learns().of_pairs)",
        "weighted=True)",
        "federation/test_hops_at_sites.py::test_links_use_no_weights_in_training_nor_in_prediction",
    ),
    M(
        "every-model-needs-the-same-edges",
        "federation/preparation.py",
        "if self.plan.relational else 1",
        "if True else 1",
        "federation/test_hops_at_sites.py::test_a_gcn_does_not_ask_sites_for_the_same_directions",
    ),
    M(
        "gcn-of-the-first-relation",
        "experiment/prepare.py",
        "with_sets(plan, usable(plan, graph))",
        "with_sets(plan, graph)",
        "data/tables/test_objects.py::test_a_gcn_has_every_joined_pair_once_with_its_weights_added",
    ),
    M(
        "unused-kinds-unsaid",
        "data/graph.py",
        '"kinds": graph.kind is not None}',
        '"kinds": False}',
        "data/tables/test_objects.py::test_what_a_model_does_not_use_of_edges_is_said",
    ),
    M(
        "note-said-twice",
        "cli/__init__.py",
        "            said.add(str(message))\n",
        "            print(message, file=sys.stderr)\n",
        "data/tables/test_objects.py::test_what_a_model_does_not_use_of_edges_is_said",
    ),
    # engine: simulate, recorded
    M(
        "weights-unchecked",
        "engine/simulate.py",
        '_check_finite("sum of all weights", found["total"], torch.arange(len(everyone)), number)',
        "pass",
        "engine/test_simulate.py::test_weights_that_are_not_finite_name_client_and_round",
    ),
    M(
        "sparsity-of-both-models",
        "engine/rounds.py",
        "sparsity(ctx.model.federated(weights))",
        "sparsity(weights)",
        "engine/test_simulate.py::test_what_is_measured_leaves_a_fallback_out",
    ),
    M(
        "recorded-not-copied",
        "engine/cuda_graph.py",
        "return part.clone(memory_format=torch.contiguous_format)",
        "return part",
        "engine/test_cuda_graph.py",
    ),
    M(
        "recorded-not-taken",
        "engine/cuda_graph.py",
        "if mine is not given:",
        "if False:",
        "engine/test_cuda_graph.py",
    ),
    M(
        "recorded-not-carried",
        "engine/cuda_graph.py",
        "self._outputs = (*kept, *outputs[self._carried :])",
        "self._outputs = outputs",
        "engine/test_cuda_graph.py",
    ),
    # engine: site
    M(
        "site-feedback-forgotten",
        "federation/site.py",
        'state = state | {"residual": residual}',
        "pass",
        "federation/test_probing.py::test_a_site_feeds_back_what_rounding_lost",
    ),
    M(
        "site-feedback-of-pruned-entries",
        "federation/site.py",
        "= left * message.sent[name] if name in message.sent else left",
        "= left",
        "federation/test_probing.py::test_what_rounding_loses_is_kept_for_the_next_time_by_hand",
    ),
    M(
        "site-any-weights",
        "federation/part.py",
        "if wrong := implausible(ctx, message, self.first_message, own, base):",
        "if wrong := None:",
        "federation/test_probing.py::test_the_reviewed_attacks_are_refused",
    ),
    M(
        "site-any-base",
        "federation/site.py",
        "if not base < number:",
        "if False:",
        "federation/test_probing.py::test_a_round_follows_an_earlier_one",
    ),
    M(
        "site-late-round",
        "federation/site.py",
        "if number < ledger.newest:",
        "if False:",
        "federation/test_probing.py::test_rounds_go_forward",
    ),
    M(
        "site-more-rounds",
        "federation/site.py",
        "if number > rounds:",
        "if False:",
        "federation/test_federation.py::test_a_site_answers_no_round_beyond_the_last_and_says_so_at_home",
    ),
    M(
        "site-another-message",
        "federation/ledger.py",
        "if self.asked.get(question, digest) != digest:",
        "if False:",
        "federation/test_probing.py::test_a_round_is_answered_for_one_message",
    ),
    M(
        "site-takes-back-for-ever",
        "federation/ledger.py",
        "if self.taken_back >= BACK + rounds // EVERY:",
        "if False:",
        "federation/test_probing.py::test_a_base_is_used_again_only_as_often_as_answers_may_be_lost",
    ),
    M(
        "site-begins-anew-for-ever",
        "federation/ledger.py",
        "if self.anew >= ANEW:",
        "if False:",
        "federation/test_probing.py::test_a_run_begins_anew_a_few_times_and_as_it_began",
    ),
    M(
        "site-other-terms",
        "federation/ledger.py",
        'if self.terms not in ("", terms):',
        "if False:",
        "federation/test_probing.py::test_a_run_begins_anew_a_few_times_and_as_it_began",
    ),
    M(
        "site-many-runs",
        "federation/site.py",
        "if other.parent.name != run:",
        "if False:",
        "federation/test_probing.py::test_a_site_takes_part_in_one_run",
    ),
    M(
        "site-undeclared-in-a-round",
        "federation/site.py",
        "check_declared(part.algorithm, up)\n",
        "pass\n",
        "federation/test_probing.py::test_a_round_sends_nothing_that_is_not_declared",
    ),
    M(
        "site-undeclared-in-a-set-up",
        "federation/site.py",
        "check_declared(part.algorithm, up[0])",
        "pass",
        "federation/test_probing.py::test_a_set_up_sends_nothing_that_is_not_declared",
    ),
    M(
        "site-no-feedback",
        "federation/site.py",
        "_with_feedback(envelope, residual, part.precision)",
        "_with_feedback(envelope, {}, part.precision)",
        "federation/test_probing.py::test_a_site_feeds_back_what_rounding_lost",
    ),
    M(
        "site-feedback-of-pruned",
        "federation/site.py",
        "left * message.sent[name] if name in message.sent else left",
        "left",
        "federation/test_probing.py::test_what_rounding_loses_is_kept_for_the_next_time_by_hand",
    ),
    M(
        "site-first-weights",
        "federation/validate/weights.py",
        "if torch.equal(leaf, first) else",
        "if leaf is not None else",
        "federation/test_probing.py::test_the_first_round_is_from_the_weights_of_everybody",
    ),
    M(
        "site-any-average",
        "federation/validate/weights.py",
        "if moved <= most:",
        "if True:",
        "federation/test_probing.py::test_how_far_an_average_may_be_by_hand",
    ),
    M(
        "site-only-some-errors",
        "federation/site.py",
        "except Exception as error:",
        "except FedpubError as error:",
        "federation/test_messages.py::test_an_error_nobody_thought_of_is_refused_too",
    ),
    # engine: federate
    M(
        "federate-set-up-undeclared",
        "federation/preparation.py",
        "extra = sorted(upload.names - self.plan.algorithm.uploads)",
        "extra = []",
        "federation/test_coordinator.py::test_what_a_site_sends_before_the_rounds_is_looked_at",
    ),
    M(
        "federate-half-rounded-down",
        "federation/coordinator.py",
        "max(1, math.ceil(len(chosen) / 2))",
        "max(1, len(chosen) // 2)",
        "federation/test_coordinator.py::test_a_round_waits_for_half_of_its_sites_or_as_many_as_are_asked_for",
    ),
    M(
        "federate-any-number-of-sites",
        "federation/coordinator.py",
        "need = self.terms.min_sites or max",
        "need = 0 and max",
        "federation/test_coordinator.py::test_a_round_waits_for_half_of_its_sites_or_as_many_as_are_asked_for",
    ),
    M(
        "federate-more-sites-than-there-are",
        "federation/coordinator.py",
        "if len(answers) >= min(need, len(chosen)):",
        "if len(answers) >= need or len(answers) == 2:",
        "federation/test_coordinator.py::test_a_round_waits_for_half_of_its_sites_or_as_many_as_are_asked_for",
    ),
    M(
        "federate-lost-base",
        "federation/coordinator.py",
        "base_K[client] = 0\n",
        "pass\n",
        "federation/test_coordinator.py::test_a_site_that_lost_its_state_begins_anew_and_is_asked_from_the_start",
    ),
    M(
        "federate-begins-anew-as-before",
        "federation/coordinator.py",
        "self.preparation.begin(client, known, number)",
        "self.preparation.begin(client, known, 0)",
        "federation/test_coordinator.py::test_a_site_that_lost_its_state_begins_anew_and_is_asked_from_the_start",
    ),
    M(
        "federate-base-of-all",
        "federation/coordinator.py",
        "        base_K[client] = number\n",
        "        base_K[:] = number\n",
        "federation/test_coordinator.py::test_every_site_is_asked_from_its_own_last_round",
    ),
    M(
        "federate-finish-from-the-start",
        "federation/coordinator.py",
        '"finish", {"run": self.run, "base": int(base_K[client])',
        '"finish", {"run": self.run, "base": 0',
        "federation/test_coordinator.py::test_every_site_is_asked_from_its_own_last_round",
    ),
    M(
        "federate-best-by-test",
        "federation/coordinator.py",
        'best.update(number, float(metrics["val"].nanmean()),',
        'best.update(number, float(metrics["test"].nanmean()),',
        "federation/test_federation.py::test_of_rounds_that_are_level_the_coordinator_keeps_the_one_of_lower_loss",
    ),
    M(
        "federate-first-site-s-classes",
        "federation/preparation.py",
        'classes |= dict.fromkeys(answers[client].fields["classes"])',
        'classes = classes or dict.fromkeys(answers[client].fields["classes"])',
        "federation/test_coordinator.py::test_the_classes_of_a_run_are_those_of_all_sites",
    ),
    M(
        "federate-everybody-idle",
        "federation/preparation.py",
        'if one["idle"])',
        ")",
        "federation/test_coordinator.py::test_the_classes_of_a_run_are_those_of_all_sites",
    ),
    M(
        "federate-bytes-swapped",
        "federation/coordinator.py",
        "up_K[client], down_K[client] = up, down",
        "up_K[client], down_K[client] = down, up",
        "federation/test_coordinator.py::test_bytes_are_counted_of_what_was_sent_and_answered",
    ),
    M(
        "federate-bytes-of-the-silent",
        "federation/coordinator.py",
        "sizes = {}, {client: (0, len(data)) for client, data in messages.items()}",
        "sizes = {}, dict[int, tuple[int, int]]()",
        "federation/test_coordinator.py::test_bytes_are_counted_of_what_was_sent_and_answered",
    ),
    M(
        "federate-losses",
        "federation/coordinator.py",
        'loss_K[client] = answer.fields["loss"]',
        'loss_K[client] = answer.fields["metrics"]["val"]',
        "federation/test_coordinator.py::test_losses_are_those_of_the_sites",
    ),
    M(
        "federate-embedding-of-the-first",
        "federation/coordinator.py",
        "kept[client] = own[0]",
        "kept[0] = own[0]",
        "federation/test_coordinator.py::test_the_last_fingerprint_of_every_site_is_remembered",
    ),
    M(
        "federate-embeddings-forgotten",
        "federation/coordinator.py",
        "kept = tensor(clients.get(FINGERPRINT, some",
        "kept = tensor({}.get(FINGERPRINT, some",
        "federation/test_coordinator.py::test_the_last_fingerprint_of_every_site_is_remembered",
    ),
    M(
        "federate-set-up-bytes",
        "federation/preparation.py",
        "down + sum(map(len, messages.values()))",
        "down",
        "federation/test_coordinator.py::test_set_up_counts_the_messages_of_both_directions",
    ),
    # engine: joining, refusal, wire, setup
    M(
        "set-up-values-unchecked",
        "federation/preparation.py",
        "wrong = wrong_values(upload)",
        "wrong = None",
        "federation/test_refusal.py::test_a_malformed_set_up_names_its_site",
    ),
    M(
        "refusal-negative-sizes",
        "federation/validate/upload.py",
        "((value < 0) | (value > examples))",
        "(value > examples)",
        "federation/test_refusal.py::test_a_bad_answer_is_refused_and_said",
    ),
    M(
        "refusal-endless-sizes",
        "federation/validate/upload.py",
        "((value < 0) | (value > examples))",
        "(value < 0)",
        "federation/test_refusal.py::test_a_bad_answer_is_refused_and_said",
    ),
    M(
        "refusal-far-counts-pruned",
        "federation/validate/upload.py",
        "start, number, found.sent.get(leaf))",
        "start, number, None)",
        "federation/test_refusal.py::test_how_far_an_upload_may_be_by_hand",
    ),
    M(
        "files-digest-unchecked",
        "core/files.py",
        "if written is not None and written !=",
        "if False and written !=",
        "core/test_files.py",
    ),
    M(
        "join-similar-to-oneself",
        "algorithms/fedpub.py",
        "members_K]))[:1, 1:]",
        "members_K]))[:1, :-1]",
        "federation/test_joining.py::test_what_a_new_site_gets_is_the_members_mean_by_similarity",
    ),
    M(
        "join-without-tau",
        "algorithms/fedpub.py",
        "[:1, 1:], self.tau)",
        "[:1, 1:], 0.0)",
        "federation/test_joining.py::test_what_a_new_site_gets_is_the_members_mean_by_similarity",
    ),
    M(
        "join-first-member",
        "federation/joining.py",
        "mix(share_1K, part) if",
        "part[:1] if",
        "federation/test_joining.py::test_what_a_new_site_gets_is_the_members_mean_by_similarity",
    ),
    M(
        "join-alone-from-the-mean",
        "federation/joining.py",
        "_trained(part, _own_start(part, asked.message), 2 * EPOCHS)",
        "_trained(part, asked.message, 2 * EPOCHS)",
        "federation/test_joining.py::test_a_new_site_keeps_the_better_of_two_equally_long_trainings",
    ),
    M(
        "join-half-as-long",
        "federation/joining.py",
        "asked.message), 2 * EPOCHS)",
        "asked.message), EPOCHS)",
        "federation/test_joining.py::test_a_new_site_keeps_the_better_of_two_equally_long_trainings",
    ),
    M(
        "join-always-kept",
        "federation/joining.py",
        'kept = "joined" if better(*standings) else "alone"',
        'kept = "joined"',
        "federation/test_joining.py::test_a_new_site_keeps_the_better_of_two_equally_long_trainings",
    ),
    M(
        "join-keeps-the-worse",
        "federation/joining.py",
        'for which in ("joined", "alone") for name',
        'for which in ("alone", "joined") for name',
        "federation/test_joining.py::test_a_new_site_keeps_the_better_of_two_equally_long_trainings",
    ),
    M(
        "join-keeps-the-other",
        "federation/joining.py",
        'state if kept == "joined" else alone',
        'alone if kept == "joined" else state',
        "federation/test_joining.py::test_a_new_site_keeps_the_better_of_two_equally_long_trainings",
    ),
    M(
        "join-epochs-ignored",
        "federation/joining.py",
        "replace(part.ctx, round=1, epochs=epochs)",
        "replace(part.ctx, round=1)",
        "federation/test_joining.py::test_a_new_site_keeps_the_better_of_two_equally_long_trainings",
    ),
    M(
        "join-told-swapped",
        "federation/joining.py",
        'results["alone"], results["joined"], kept',
        'results["joined"], results["alone"], kept',
        "federation/test_joining.py::test_a_new_site_keeps_the_better_of_two_equally_long_trainings",
    ),
    M(
        "join-any-epochs",
        "federation/joining.py",
        "if epochs != EPOCHS:",
        "if False:",
        "federation/test_federation.py::test_a_new_site_joins_a_finished_run",
    ),
    # engine: robust
    M(
        "robust-of-two-sites",
        "engine/robust.py",
        "len(next(iter(one[0].values()))) >= 3",
        "len(next(iter(one[0].values()))) >= 2",
        "engine/test_robust.py::test_of_two_nobody_is_the_odd_one",
    ),
    M(
        "clip-counts-what-was-not-sent",
        "engine/robust.py",
        "squares = [_square(part[leaf], before[leaf], active.get(leaf))",
        "squares = [_square(part[leaf], before[leaf], None)",
        "engine/test_robust.py::test_what_a_site_did_not_send_is_no_step",
    ),
    M(
        "clip-by-idle-sites",
        "engine/robust.py",
        'ascending_K = torch.where(value_K > 0, value_K, float("inf")).sort().values',
        "ascending_K = value_K.sort().values",
        "engine/test_robust.py::test_idle_sites_do_not_shorten_the_others_steps",
    ),
    M(
        "clip-not-at-all",
        "engine/robust.py",
        "if any_of(share_K < 1):",
        "if False:",
        "engine/test_robust.py::test_a_step_longer_than_twice_the_median_site_s_is_shortened",
    ),
    M(
        "median-of-few-senders",
        "engine/robust.py",
        ".sum(0, keepdim=True) < 3, near, inside)",
        ".sum(0, keepdim=True) < 1, near, inside)",
        "engine/test_robust.py::test_an_entry_that_few_sent_moves_no_further_than_entries_do",
    ),
    M(
        "claims-uncapped",
        "engine/robust.py",
        "torch.where(size_K > most,",
        "torch.where(size_K < 0,",
        "engine/test_robust.py::test_claims_of_examples_are_capped",
    ),
    M(
        "guard-without-margin",
        "engine/guard.py",
        "own, last, data) - MARGIN",
        "own, last, data)",
        "engine/test_robust.py::test_what_harms_a_client_is_not_used",
    ),
    M(
        "guard-the-wrong-way-round",
        "engine/guard.py",
        "torch.where(for_each(harmful_K, value), last[leaf], value)",
        "torch.where(for_each(harmful_K, value), value, last[leaf])",
        "engine/test_robust.py::test_what_harms_a_client_is_not_used",
    ),
    M(
        "guard-judges-the-message",
        "engine/guard.py",
        'begun = algorithm.starts(own | {"weights": weights}) if isinstance(algorithm, Starts) else weights',
        "begun = weights",
        "engine/test_robust.py::test_masks_are_the_client_s_own_in_both",
    ),
    # flower
    M(
        "link-hands-out-apps",
        "flower/gate.py",
        '        "confirm-message-received",\n',
        '        "confirm-message-received",\n        "get-fab",\n',
        "flower/test_gate.py::test_endpoints_and_headers_are_those_of_flower",
    ),
    M(
        "link-killed-site-waits",
        "flower/link.py",
        "            if node is not None:\n                self._state.deactivate_node(node)\n",
        "",
        "flower/test_link.py::test_a_site_that_was_killed_gets_its_message_again_at_once",
    ),
    M(
        "message-of-any-shape",
        "flower/exchange.py",
        "return array.data if array.shape == (len(array.data),) else None",
        "return array.data",
        "flower/test_link.py::test_an_answer_that_is_no_message_harms_nobody_else",
    ),
    M(
        "events-said-raw",
        "flower/folder.py",
        '"reason": printable(reason)',
        '"reason": reason',
        "flower/test_link.py::test_what_sites_say_is_cut_and_spelt_out_wherever_it_is_shown",
    ),
    M(
        "message-of-any-length",
        "flower/exchange.py",
        "if taken > largest or len(contents) + len(missing) > OBJECTS:",
        "if len(contents) + len(missing) > OBJECTS:",
        "flower/test_link.py::test_no_more_is_taken_than_a_message_may_have",
    ),
    M(
        "message-of-any-number-of-objects",
        "flower/exchange.py",
        "if taken > largest or len(contents) + len(missing) > OBJECTS:",
        "if taken > largest:",
        "flower/test_link.py::test_no_more_is_taken_than_a_message_may_have",
    ),
    M(
        "message-longer-than-its-pieces",
        "flower/exchange.py",
        "if sum(_lengths(contents)) > largest:",
        "if False:",
        "flower/test_link.py::test_pieces_that_are_named_a_million_times_are_not_put_together",
    ),
    M(
        "site-follows-redirections",
        "flower/node.py",
        "follow_redirects=False",
        "follow_redirects=True",
        "flower/test_link.py::test_a_site_goes_where_its_owner_sent_it_and_nowhere_else",
    ),
    M(
        "response-without-end",
        "flower/node.py",
        "if len(content) > RESPONSE:",
        "if False:",
        "flower/test_link.py::test_a_response_without_end_and_a_redirection_are_errors",
    ),
    M(
        "said-as-it-is",
        "core/printable.py",
        "one if one.isprintable() else",
        "one if True else",
        "flower/test_link.py::test_whatever_is_said_is_one_line_of_printable_characters",
    ),
    M(
        "said-at-any-length",
        "core/printable.py",
        "len(spelt) <= longest and",
        "True and",
        "flower/test_link.py::test_whatever_is_said_is_one_line_of_printable_characters",
    ),
    # audit log and policy, without Flower
    M(
        "log-line-may-change",
        "federation/journal.py",
        "if not mark or rest != own.encode() + END:",
        "if not mark:",
        "federation/test_journal.py::test_any_change_is_found",
    ),
    M(
        "log-lines-may-be-missing",
        "federation/journal.py",
        "    if line.number != number:",
        "    if False:",
        "federation/test_journal.py::test_the_first_bad_line_is_named_with_what_is_wrong",
    ),
    M(
        "log-lines-are-not-chained",
        "federation/journal.py",
        '    if line.entry["previous"] != previous:',
        "    if False:",
        "federation/test_journal.py::test_the_first_bad_line_is_named_with_what_is_wrong",
    ),
    M(
        "log-of-any-form",
        "federation/journal.py",
        "    if not whole:\n",
        "    if False:\n",
        "federation/test_journal.py::test_a_line_that_is_no_line_of_a_log_is_named",
    ),
    M(
        "log-keeps-a-torn-line",
        "federation/journal.py",
        "        if end < known.st_size:\n            os.ftruncate(file, end)\n",
        "",
        "federation/test_journal.py::test_a_line_cut_short_is_cut_off_and_the_chain_goes_on_from_the_one_before",
    ),
    M(
        "log-keeps-half-of-what-a-full-disk-takes",
        "federation/journal.py",
        "                with contextlib.suppress(OSError):\n                    os.ftruncate(file, end)\n",
        "",
        "federation/test_journal.py::test_a_full_disk_keeps_the_message_here_and_the_log_whole",
    ),
    M(
        "log-forgets-other-writers",
        "federation/journal.py",
        "if (known.st_ino, known.st_size) == self._seen:",
        "if self._seen:",
        "federation/test_journal.py::test_restarts_and_several_writers_continue_one_chain",
    ),
    M(
        "log-reads-one-block",
        "federation/journal.py",
        "    while start > 0:\n        step",
        "    if start > 0:\n        step",
        "federation/test_journal.py::test_a_long_line_is_found_again",
    ),
    M(
        "log-continues-a-changed-line",
        "federation/journal.py",
        "            last = parsed(tail) if tail else None\n",
        "            last = Line(1, {}, START) if tail else None\n",
        "federation/test_journal.py::test_nothing_is_added_to_a_log_whose_end_was_changed",
    ),
    M(
        "log-has-values",
        "federation/logged.py",
        '        printable(fields.get("reason", "")) if kind in ("refused", "lost") else None,',
        "        str(fields),",
        "federation/test_journal.py::test_a_line_says_what_a_message_is_about_and_holds_no_data",
    ),
    M(
        "log-has-any-kind",
        "federation/logged.py",
        "kind if kind in KINDS else UNREADABLE,",
        "kind,",
        "federation/test_journal.py::test_a_kind_that_is_none_is_not_written_down",
    ),
    M(
        "log-reason-as-it-is",
        "federation/logged.py",
        'printable(fields.get("reason", ""))',
        'str(fields.get("reason", ""))',
        "federation/test_journal.py::test_a_refusal_is_logged_with_its_reason_and_can_be_shown",
    ),
    M(
        "log-stops-at-noise",
        "federation/logged.py",
        "    except (WireError, ValueError, ArithmeticError, RecursionError):",
        "    except ArithmeticError:",
        "federation/test_journal.py::test_what_cannot_be_read_is_logged_by_its_digest",
    ),
    M(
        "log-hashes-twice",
        "federation/logged.py",
        "parse(split(data, math.inf, checksum)[0])",
        "parse(split(data, math.inf)[0])",
        "federation/test_journal.py::test_a_message_is_read_once",
    ),
    M(
        "message-of-any-checksum",
        "federation/wire_header.py",
        "if (checksum or hashlib.sha256(memoryview(data)[:end]).digest()[:CHECKSUM]) != data[end:]:",
        "if not checksum and hashlib.sha256(memoryview(data)[:end]).digest()[:CHECKSUM] != data[end:]:",
        "federation/test_journal.py::test_what_cannot_be_read_is_logged_by_its_digest",
    ),
    M(
        "log-without-what-was-asked",
        "federation/logged.py",
        'self._journal.write([one.entry("coordinator", ',
        'list([one.entry("coordinator", ',
        "federation/test_journal.py::test_a_line_is_there_before_its_message_leaves",
    ),
    M(
        "answers-without-a-countersignature",
        "federation/logged.py",
        "if self._keys.verify(key, found.signature, text):",
        "if True:",
        "federation/test_journal.py::test_an_answer_with_a_wrong_countersignature_is_dropped_and_harms_no_other",
    ),
    M(
        "answer-to-any-message",
        "federation/countersigned.py",
        "question {question}\\n",
        "",
        "federation/test_journal.py::test_an_answer_to_another_message_is_dropped",
    ),
    M(
        "countersignature-of-any-answer",
        "federation/countersigned.py",
        "answer {answer}\\n",
        "",
        "federation/test_journal.py::test_an_answer_that_is_written_again_is_not_what_the_site_has_signed",
    ),
    M(
        "countersignature-of-any-head",
        "federation/countersigned.py",
        "head {head}\\n",
        "",
        "federation/test_journal.py::test_an_answer_that_is_written_again_is_not_what_the_site_has_signed",
    ),
    M(
        "countersignature-of-any-run",
        "federation/countersigned.py",
        "run {run}\\n",
        "",
        "federation/test_journal.py::test_an_answer_that_is_written_again_is_not_what_the_site_has_signed",
    ),
    M(
        "countersignature-by-the-newest-key-alone",
        "federation/logged.py",
        "dict.fromkeys((before[client], self._key(names[client])))",
        "dict.fromkeys((self._key(names[client]),))",
        "federation/test_journal.py::test_a_key_that_is_rotated_in_the_meantime_is_as_good_as_the_new_one",
    ),
    M(
        "countersignature-of-any-format",
        "federation/countersigned.py",
        "    if data[len(MAGIC)] != VERSION:",
        "    if False:",
        "federation/test_journal.py::test_whatever_is_around_an_answer_is_taken_off_or_refused",
    ),
    M(
        "countersignature-cut-short",
        "federation/countersigned.py",
        "if not 0 < length <= LONGEST or BEFORE + length > len(data):",
        "if not 0 < length <= LONGEST:",
        "federation/test_journal.py::test_whatever_is_around_an_answer_is_taken_off_or_refused",
    ),
    M(
        "dropped-answers-are-no-event",
        "federation/logged.py",
        "            self._on_dropped(client, asked[client].round or 0, reason)\n",
        "            pass\n",
        "federation/test_journal.py::test_an_answer_with_a_wrong_countersignature_is_dropped_and_harms_no_other",
    ),
    M(
        "silent-answers-are-not-logged",
        "federation/logged.py",
        "            entries.append(own.entry",
        "            if own.kind != SILENT:\n                entries.append(own.entry",
        "federation/test_journal.py::test_an_answer_that_came_too_late_is_no_defect",
    ),
    M(
        "verify-no-countersignature",
        "federation/journal_check.py",
        "    if not good:\n",
        "    if False:\n",
        "federation/test_journal.py::test_an_answer_that_is_written_again_is_not_what_the_site_has_signed",
    ),
    M(
        "verify-lets-countersignatures-vanish",
        "federation/journal_check.py",
        '        if entry["run"] in signed_runs:',
        "        if False:",
        "federation/test_journal.py::test_an_answer_without_its_countersignature_is_named",
    ),
    M(
        "verify-lets-ends-mix",
        "federation/journal_check.py",
        '            if found.end not in (None, entry["at"]):',
        "            if False:",
        "federation/test_journal.py::test_the_first_bad_line_is_named_with_what_is_wrong",
    ),
    M(
        "compare-no-heads",
        "federation/journal_check.py",
        'if "head" in entry and theirs',
        "if False and theirs",
        "federation/test_journal.py::test_a_site_that_writes_its_log_again_is_found",
    ),
    M(
        "compare-no-answers",
        "federation/journal_check.py",
        "        if (question, digest) not in theirs.answered:",
        "        if False:",
        "federation/test_journal.py::test_another_answer_at_the_site_than_at_the_coordinator_is_found",
    ),
    M(
        "compare-no-messages",
        "federation/journal_check.py",
        "        if run in runs and digest not in asked:",
        "        if False:",
        "federation/test_journal.py::test_a_coordinator_that_writes_its_log_again_is_found",
    ),
    M(
        "compare-no-outcomes",
        "federation/journal_check.py",
        "        if question in unanswered:",
        "        if False:",
        "federation/test_journal.py::test_a_coordinator_that_writes_its_log_again_is_found",
    ),
    M(
        "compare-any-federations",
        "federation/journal_check.py",
        "    if not any(run in runs for _, run in site.asked.values()):",
        "    if False:",
        "federation/test_journal.py::test_logs_of_different_federations_are_told_apart",
    ),
    M(
        "summary-without-answers",
        "federation/log_summary.py",
        'one.sent, one.bytes_out = one.sent + 1, one.bytes_out + entry["bytes"]',
        "pass",
        "federation/test_journal.py::test_a_summary_counts_by_run_and_kind",
    ),
    M(
        "summary-without-refusals",
        "federation/log_summary.py",
        '    if "reason" in entry:',
        "    if False:",
        "federation/test_journal.py::test_a_summary_counts_by_run_and_kind",
    ),
    M(
        "policy-any-methods",
        "federation/policy.py",
        "if self.methods is not None and experiment.method not in self.methods:",
        "if False:",
        "federation/test_policy.py::test_a_run_is_within_the_policy_or_outside_of_it",
    ),
    M(
        "policy-any-uploads",
        "federation/policy.py",
        "if self.uploads is not None and extra:",
        "if False:",
        "federation/test_policy.py::test_a_run_is_within_the_policy_or_outside_of_it",
    ),
    M(
        "policy-any-other-sites",
        "federation/policy.py",
        "if self.min_other_sites is not None and sites - 1 < self.min_other_sites:",
        "if False:",
        "federation/test_policy.py::test_a_run_is_within_the_policy_or_outside_of_it",
    ),
    M(
        "policy-any-precisions",
        "federation/policy.py",
        "if self.precisions is not None and precision not in self.precisions:",
        "if False:",
        "federation/test_policy.py::test_a_run_is_within_the_policy_or_outside_of_it",
    ),
    M(
        "policy-counts-this-site",
        "federation/policy.py",
        "sites - 1 < self.min_other_sites",
        "sites < self.min_other_sites",
        "federation/test_policy.py::test_a_run_is_within_the_policy_or_outside_of_it",
    ),
    M(
        "policy-any-experiment",
        "federation/policy.py",
        "        check_agreed(experiment, self.experiment)\n",
        "",
        "federation/test_policy.py::test_the_agreed_experiment_is_part_of_the_policy",
    ),
    M(
        "policy-one-round-more",
        "federation/policy.py",
        "answered >= self.rounds_per_day",
        "answered > self.rounds_per_day",
        "federation/test_policy.py::test_rounds_and_runs_are_limited_from_none_on",
    ),
    M(
        "policy-one-run-more",
        "federation/policy.py",
        "begun >= self.runs_per_day",
        "begun > self.runs_per_day",
        "federation/test_policy.py::test_rounds_and_runs_are_limited_from_none_on",
    ),
    M(
        "policy-of-any-setting",
        "federation/policy.py",
        "            if name not in SETTINGS:",
        "            if False:",
        "federation/test_policy.py::test_a_wrong_policy_is_a_sentence",
    ),
    M(
        "policy-of-any-name",
        "federation/policy.py",
        "        if one not in _KNOWN.get(name, value):",
        "        if False:",
        "federation/test_policy.py::test_a_wrong_policy_is_a_sentence",
    ),
    M(
        "policy-of-any-number",
        "federation/policy.py",
        "        if type(value) is not int or value < 0:",
        "        if False:",
        "federation/test_policy.py::test_a_wrong_policy_is_a_sentence",
    ),
    M(
        "policy-read-once",
        "federation/limits.py",
        "        if (found := stamp(self._folder / FILE)) != self._stamp:",
        "        found = self._stamp\n        if False:",
        "federation/test_policy.py::test_the_policy_is_read_again_when_it_changes_and_refusals_are_logged",
    ),
    M(
        "policy-not-of-rounds",
        "federation/site.py",
        "        self._check_policy(part)\n        self.limits.check_new_round()\n",
        "        self.limits.check_new_round()\n",
        "federation/test_policy.py::test_the_policy_is_read_again_when_it_changes_and_refusals_are_logged",
    ),
    M(
        "policy-not-of-set-ups",
        "federation/site.py",
        "        self._check_policy(part)\n        first = step == 0\n",
        "        first = step == 0\n",
        "federation/test_policy.py::test_what_happens_before_the_rounds_is_within_the_policy_too",
    ),
    M(
        "policy-not-of-first-numbers",
        "federation/site.py",
        "        part = self.part(run)\n        self._check_policy(part)\n",
        "        part = self.part(run)\n",
        "federation/test_policy.py::test_what_happens_before_the_rounds_is_within_the_policy_too",
    ),
    M(
        "policy-not-of-beginning",
        "federation/site.py",
        '        self.limits.check(plan, held["sites"], held["precision"])\n',
        "",
        "federation/test_policy.py::test_a_run_outside_the_policy_is_not_begun",
    ),
    M(
        "policy-any-rounds-at-a-site",
        "federation/site.py",
        "        self.limits.check_new_round()\n",
        "",
        "federation/test_policy.py::test_rounds_per_day_outlive_restarts_and_repeated_messages_are_free",
    ),
    M(
        "policy-any-runs-at-a-site",
        "federation/site.py",
        "        self.limits.check_new_run(run)\n        part = self._part(run, held)\n",
        "        part = self._part(run, held)\n",
        "federation/test_policy.py::test_runs_per_day_outlive_the_folder_of_runs",
    ),
    M(
        "policy-any-runs-of-joining",
        "federation/site.py",
        "        self.limits.check_new_run(run)\n        part = self._parts[run]",
        "        part = self._parts[run]",
        "federation/test_policy.py::test_joining_is_within_the_policy",
    ),
    M(
        "policy-counts-repeated-rounds",
        "federation/limits.py",
        'self._answered.setdefault((entry["question"], entry["digest"]), when)',
        'self._answered.setdefault((entry["hash"], "") if "hash" in entry else (str(entry["line"]), ""), when)',
        "federation/test_policy.py::test_rounds_of_the_last_day_are_counted_once_each",
    ),
    M(
        "policy-counts-forever",
        "federation/limits.py",
        "        self._answered = {key: when for key, when in self._answered.items() if when >= since}\n",
        "",
        "federation/test_policy.py::test_what_is_a_day_old_counts_no_longer",
    ),
    M(
        "policy-counts-no-joining",
        "federation/limits.py",
        '            if entry["kind"] in ("begun", "join"):',
        '            if entry["kind"] == "begun":',
        "federation/test_policy.py::test_runs_of_the_last_day_are_counted_once_each",
    ),
    M(
        "run-begins-a-new-one-each-time",
        "federation/limits.py",
        "            if run not in self._used.runs:",
        "            if True:",
        "federation/test_policy.py::test_runs_per_day_outlive_the_folder_of_runs",
    ),
    M(
        "run-of-no-sites",
        "federation/preparation.py",
        'Envelope("begin", fields | {"sites": len(known.sites)})',
        'Envelope("begin", fields | {"sites": 1})',
        "federation/test_policy.py::test_a_run_says_how_many_sites_take_part",
    ),
    M(
        "sites-of-any-kind",
        "federation/validate/fields.py",
        "lambda value: type(value) is int and 0 < value <= MOST_SITES",
        "lambda value: True",
        "federation/test_policy.py::test_a_run_says_how_many_sites_take_part",
    ),
    # audit log and policy, with Flower
    M(
        "countersignature-by-anyone",
        "flower/countersign.py",
        "    except InvalidSignature:\n        return False\n",
        "    except InvalidSignature:\n        return True\n",
        "flower/test_audit.py::test_a_signature_is_of_one_key_and_one_text",
    ),
    M(
        "countersignature-by-no-key",
        "flower/countersign.py",
        "    except (ValueError, UnsupportedAlgorithm):\n        return False\n",
        "    except UnsupportedAlgorithm:\n        return False\n",
        "flower/test_audit.py::test_what_is_no_key_has_signed_nothing",
    ),
    M(
        "coordinator-takes-any-answer",
        "flower/coordinator.py",
        "                    self._is_admitted,\n                    self._keys,\n",
        "                    self._is_admitted,\n",
        "flower/test_audit.py::test_both_ends_log_the_same_and_every_answer_is_countersigned",
    ),
    M(
        "site-starts-with-any-policy",
        "flower/site.py",
        "    site.limits.now()  # and so is a policy that cannot be read\n",
        "",
        "flower/test_audit.py::test_a_site_does_not_start_with_a_policy_that_cannot_be_read",
    ),
    M(
        "site-is-made-without-a-policy",
        "flower/setup.py",
        "    Policy().save(folder)  # all settings by name, so that the owner sees what can be limited\n",
        "",
        "flower/test_deployment.py::test_the_examples_of_the_verbs",
    ),
    M(
        "agreed-experiment-lost",
        "flower/sites.py",
        "    replace(policy, experiment=agreed).save(folder)\n",
        "",
        "flower/test_audit.py::test_what_was_agreed_with_an_earlier_version_is_taken_over",
    ),
    M(
        "agreed-experiment-overwritten",
        "flower/sites.py",
        "    if policy.experiment not in (None, agreed):",
        "    if False:",
        "flower/test_audit.py::test_what_was_agreed_with_an_earlier_version_is_taken_over",
    ),
    M(
        "agreed-experiment-drops-the-policy",
        "flower/sites.py",
        "replace(Policy.load(folder), experiment=wanted).save(folder)",
        "Policy(experiment=wanted).save(folder)",
        "flower/test_audit.py::test_an_agreed_experiment_is_one_setting_of_the_policy",
    ),
    M(
        "flower-s-own-nodes-are-not-logged",
        "flower/app.py",
        'log.answer(unpacked(message.content) or b"", site.answer)',
        'site.answer(unpacked(message.content) or b"")',
        "flower/test_audit.py::test_a_federation_of_flower_s_own_is_logged_without_countersignatures",
    ),
    M(
        "audit-verify-is-always-content",
        "cli/audit.py",
        "return 0 if defect is None else DEFECT",
        "return 0",
        "flower/test_audit.py::test_both_ends_log_the_same_and_every_answer_is_countersigned",
    ),
    M(
        "audit-verify-one-end-twice",
        "cli/audit.py",
        "if first.end is not None and first.end == second.end:",
        "if False:",
        "flower/test_audit.py::test_both_ends_log_the_same_and_every_answer_is_countersigned",
    ),
    M(
        "policy-lifts-nothing",
        "cli/policy.py",
        " | dict.fromkeys(lifted)",
        "",
        "flower/test_audit.py::test_the_policy_is_shown_and_changed",
    ),
    # results, report
    M(
        "p-pairs-scrambled",
        "runs/significance.py",
        "both = [np.array([own[key] for key in common]) for own in (one, other)]",
        "both = [np.sort([own[key] for key in common]) for own in (one, other)]",
        "report/test_report.py::test_a_line_by_hand",
    ),
    M(
        "p-over-pooled-seeds",
        "runs/significance.py",
        "if len(cells) > 1:",
        "if False:",
        "runs/test_comparison.py::test_seeds_of_a_cell_are_no_observations_of_their_own",
    ),
    M(
        "p-uncorrected",
        "runs/significance.py",
        "value * (len(known) - place)",
        "value",
        "runs/test_comparison.py::test_p_values_are_corrected_by_holm",
    ),
    M(
        "p-corrected-not-in-order",
        "runs/significance.py",
        "most = max(most, min(1.0, value * (len(known) - place)))",
        "most = min(1.0, value * (len(known) - place))",
        "runs/test_comparison.py::test_p_values_are_corrected_by_holm",
    ),
    M(
        "deviation-of-a-population",
        "runs/significance.py",
        "np.std(values, ddof=1)",
        "np.std(values)",
        "paper/test_recipes.py::test_the_table_of_other_splits_by_hand",
    ),
    M(
        "kept-ties-to-the-earliest",
        "core/best.py",
        " | (level & (loss < best_loss - LEVEL))",
        "",
        "store/test_directory.py::test_the_round_whose_model_is_kept",
    ),
    M(
        "kept-higher-loss",
        "core/best.py",
        "loss < best_loss - LEVEL",
        "loss > best_loss + LEVEL",
        "store/test_directory.py::test_the_round_whose_model_is_kept",
    ),
    M(
        "kept-by-loss-alone",
        "core/best.py",
        "level & (loss",
        "(loss",
        "store/test_directory.py::test_the_round_whose_model_is_kept",
    ),
    M(
        "kept-nobody-can-judge",
        "core/best.py",
        "(val != val) | higher",
        "higher",
        "store/test_directory.py::test_the_round_whose_model_is_kept",
    ),
    # runs: the loop, what it keeps
    M(
        "loop-models-of-the-last-round",
        "runs/loop.py",
        "keeping.personal and store.record.best() is row:",
        "keeping.personal:",
        "runs/test_loop.py::test_the_model_of_the_best_round_is_kept_and_does_not_change_later",
    ),
    M(
        "loop-models-change-later",
        "runs/loop.py",
        "leaf.detach().cpu().clone()",
        "leaf.detach().cpu()",
        "runs/test_loop.py::test_the_model_of_the_best_round_is_kept_and_does_not_change_later",
    ),
    M(
        "loop-earlier-models-forgotten",
        "runs/loop.py",
        "models = dict(best)",
        "models: Tree = {}",
        "runs/test_loop.py::test_a_resumed_run_keeps_the_model_of_a_better_round_before",
    ),
    M(
        "loop-ctrl-c-saves-nothing",
        "runs/loop.py",
        "if due or stopped or",
        "if due or",
        "runs/test_loop.py::test_ctrl_c_saves_the_round_and_finishes_nothing",
    ),
    M(
        "loop-last-checkpoint-not-written",
        "runs/loop.py",
        " or (keeping.keep_checkpoint and row.round == last)",
        "",
        "runs/test_loop.py::test_the_last_round_is_saved_where_its_checkpoint_stays",
    ),
    M(
        "store-checkpoints-stay",
        "store/directory.py",
        "if not keep_checkpoint:",
        "if False:",
        "store/test_directory.py::test_a_finished_run_keeps_its_result_and_its_models_but_no_checkpoint",
    ),
    M(
        "store-checkpoints-never-stay",
        "store/directory.py",
        "if not keep_checkpoint:",
        "if True:",
        "store/test_directory.py::test_a_finished_run_keeps_its_result_and_its_models_but_no_checkpoint",
    ),
    M(
        "paper-summaries-read-again",
        "paper/store.py",
        "self.read.setdefault(name, {})",
        "{}",
        "paper/test_paper.py::test_each_file_of_a_finished_run_is_read_once",
    ),
    M(
        "task-test-sizes-of-training-nodes",
        "tasks/nodes.py",
        "torch.cat([own.test for own in held])",
        "torch.cat([own.train for own in held])",
        "models/test_models.py::test_metrics_by_hand",
    ),
    M(
        "task-unknown-label-is-ranked",
        "tasks/multi_label.py",
        ".masked_fill(~known_MT, clients * labels)",
        "",
        "tasks/test_targets.py::test_several_labels_are_judged_label_by_label",
    ),
    M(
        "task-unknown-label-is-predicted",
        "tasks/multi_label.py",
        "(output_MT > 0) & known_MT",
        "output_MT > 0",
        "tasks/test_targets.py::test_several_labels_are_judged_label_by_label",
    ),
    M(
        "task-unknown-label-is-learnt",
        "tasks/multi_label.py",
        "(each_MT * known_MT).sum(1) / known_MT.sum(1)",
        "each_MT.mean(1)",
        "tasks/test_targets.py::test_the_loss_of_several_labels_is_over_the_known_ones",
    ),
    M(
        "task-r2-below-zero",
        "tasks/regression.py",
        ".clamp(min=0)",
        "",
        "tasks/test_targets.py::test_numbers_are_judged_by_r2_and_rmse",
    ),
    M(
        "task-r2-of-equal-numbers",
        "tasks/regression.py",
        "target_M - least_R[owner_M]",
        "target_M",
        "tasks/test_targets.py::test_numbers_are_judged_by_r2_and_rmse",
    ),
    M(
        "task-targets-out-of-place",
        "tasks/nodes.py",
        "[classes.index(name) for name in graph.classes]",
        "[at for at, name in enumerate(graph.classes)]",
        "tasks/test_targets.py::test_a_site_places_its_labels_among_those_of_all_sites",
    ),
    M(
        "task-rmse-is-a-share",
        "tasks/__init__.py",
        'metric == "val_loss" or any(',
        'metric == "val_loss" and any(',
        "tasks/test_targets.py::test_an_error_is_an_amount_and_no_share",
    ),
    M(
        "task-targets-compared-by-classes",
        "algorithms/fedpub.py",
        'self.measure == "label" and task.of_targets',
        "False",
        "tasks/test_targets.py::test_clients_without_classes_are_not_compared_by_them",
    ),
    M(
        "task-test-sizes-of-no-edges",
        "tasks/link_prediction.py",
        "for kind in (true_P, ~true_P))",
        "for kind in (~true_P, true_P))",
        "tasks/test_link_prediction.py::test_test_examples_are_edges_and_chance_needs_both_kinds",
    ),
    M(
        "task-oracle-test-sizes",
        "tasks/link_prediction.py",
        "    if report is None:\n        owner_P",
        "    if True:\n        owner_P",
        "tasks/test_link_prediction.py::test_the_oracle_is_judged_by_each_client_s_own_pairs",
    ),
    # paper
    M(
        "paper-convergence-round",
        "paper/costs.py",
        "enumerate(values.T, 1)",
        "enumerate(values.T)",
        "paper/test_recipes.py::test_convergence_by_hand",
    ),
    M(
        "paper-runs-that-nobody-shows",
        "paper/costs.py",
        "for method in self.methods(settings) for job in self.variant(settings, method)",
        "for method in METHODS[1:] for job in self.variant(settings, method)",
        "paper/test_recipes.py::test_a_recipe_asks_for_the_runs_that_it_shows_and_for_no_others",
    ),
    M(
        "paper-runs-of-one-scenario",
        "paper/structure.py",
        "for proxy in self.paper for scenario in SCENARIOS for job",
        "for proxy in self.paper for scenario in SCENARIOS[:1] for job",
        "paper/test_recipes.py::test_a_recipe_asks_for_the_runs_that_it_shows_and_for_no_others",
    ),
    M(
        "paper-reported-splits",
        "paper/beyond.py",
        "FIRST_UNUSED = 13",
        "FIRST_UNUSED = 0",
        "paper/test_recipes.py::test_what_is_reported_is_of_splits_that_nothing_was_chosen_on",
    ),
    M(
        "paper-chosen-on",
        "paper/beyond.py",
        "CHOSEN_ON = 0",
        "CHOSEN_ON = 13",
        "paper/test_recipes.py::test_parts_are_judged_by_validation_data_of_the_splits_that_they_were_chosen_on",
    ),
    M(
        "paper-parts-by-test",
        "paper/beyond.py",
        'value=lambda summary: summary["val"]',
        'value=lambda summary: summary["test"]',
        "paper/test_recipes.py::test_parts_are_judged_by_validation_data_of_the_splits_that_they_were_chosen_on",
    ),
    M(
        "paper-part-twice",
        "paper/beyond.py",
        'PLUS | {"options": {"masks": False}}',
        'PLUS | {"options": {"masks": False, "fallback": False}}',
        "paper/test_recipes.py::test_every_part_is_taken_away_alone",
    ),
    M(
        "paper-worse-of-two",
        "paper/beyond.py",
        "most = max((means[label]",
        "most = min((means[label]",
        "paper/test_recipes.py::test_the_better_of_two_that_know_everything_is_the_measure_of_communities",
    ),
    M(
        "paper-beside-another-local",
        "paper/beyond.py",
        "zip(some, local[cell], strict=True)",
        "zip(some, local[cell][::-1], strict=True)",
        "paper/test_recipes.py::test_a_split_and_seed_is_compared_with_its_own_local",
    ),
    M(
        "paper-round-off-by-one",
        "paper/variants.py",
        "run[min(wanted, len(run)) - 1]",
        "run[min(wanted, len(run) - 1)]",
        "paper/test_recipes.py::test_similarities_after_rounds_20_to_80",
    ),
    M(
        "paper-penalties-epochs",
        "paper/variants.py",
        "options=options, epochs=2,",
        "options=options, epochs=1,",
        "paper/test_recipes.py::test_penalties_by_hand",
    ),
    M(
        "paper-bytes-down",
        "paper/costs.py",
        'up + float(np.mean([one["bytes_down"] for one in summaries]))',
        "up",
        "paper/test_recipes.py::test_efficiency_by_hand",
    ),
    M(
        "paper-model-size",
        "paper/costs.py",
        '1 - summary["sparsity"]',
        'summary["sparsity"]',
        "paper/test_recipes.py::test_efficiency_by_hand",
    ),
    M(
        "paper-measures-first-round",
        "paper/costs.py",
        'one.relation("similarity")[-1].numpy()',
        'one.relation("similarity")[0].numpy()',
        "paper/test_recipes.py::test_measures_tell_communities_apart_after_the_last_round",
    ),
    M(
        "paper-measures-with-oneself",
        "paper/costs.py",
        "apart = ~np.eye(len(same), dtype=bool)",
        "apart = np.ones_like(same)",
        "paper/test_recipes.py::test_measures_tell_communities_apart_after_the_last_round",
    ),
    M(
        "paper-heat-map-round",
        "paper/structure.py",
        "relation[min(n, len(relation)) - 1]",
        "relation[min(n, len(relation) - 1)]",
        "paper/test_recipes.py::test_heat_maps_of_rounds_five_and_thirty",
    ),
    M(
        "paper-divergence-scale",
        "paper/structure.py",
        "* np.sqrt(np.log(2))",
        "* np.log(2)",
        "paper/test_recipes.py::test_divergence_within_and_between_communities",
    ),
    M(
        "paper-divergence-swapped",
        "paper/structure.py",
        "distance[i, j][same].mean()), float(distance[i, j][~same].mean())",
        "distance[i, j][~same].mean()), float(distance[i, j][same].mean())",
        "paper/test_recipes.py::test_divergence_within_and_between_communities",
    ),
    M(
        "paper-masks-of-both",
        "paper/looks.py",
        "/ (active[i] | active[j]).sum()",
        "/ active[i].sum()",
        "paper/test_recipes.py::test_which_weights_two_clients_share_by_hand",
    ),
    M(
        "paper-masks-swapped",
        "paper/looks.py",
        '("similar", np.nanargmax(similarity_KK)), ("dissimilar", np.nanargmin',
        '("similar", np.nanargmin(similarity_KK)), ("dissimilar", np.nanargmax',
        "paper/test_recipes.py::test_which_weights_two_clients_share_by_hand",
    ),
    M(
        "paper-neighbour-is-oneself",
        "paper/looks.py",
        "leaf[nearest], kept)",
        "leaf, kept)",
        "paper/test_recipes.py::test_a_neighbour_s_model_by_hand",
    ),
    M(
        "paper-differences-far",
        "paper/differences.py",
        "abs(difference) > FAR",
        "difference > FAR",
        "paper/test_recipes.py::test_differences_of_more_than_two_points_beside_the_suspects",
    ),
    M(
        "paper-differences-decay",
        "paper/differences.py",
        '"weight_decay": PUBLISHED_DECAY}',
        '"weight_decay": 0.0}',
        "paper/test_recipes.py::test_suspects_differ_from_the_main_tables_in_one_thing",
    ),
    M(
        "paper-ten-seeds",
        "paper/differences.py",
        "TEN = 10 ",
        "TEN = 5 ",
        "paper/test_recipes.py::test_suspects_differ_from_the_main_tables_in_one_thing",
    ),
    M(
        "paper-pareto-share",
        "paper/pareto.py",
        "value / usual[cell]",
        "value / max(usual.values())",
        "paper/test_recipes.py::test_points_of_all_strengths_are_drawn",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", action="append", help="only defects whose name contains this")
    parser.add_argument("--list", action="store_true", help="list the defects and run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    asked = parser.parse_args()
    chosen = [one for one in TABLE if not asked.only or any(part in one.name for part in asked.only)]
    if asked.list or not chosen:
        print("\n".join(f"{one.name:40} {one.file:32} {one.tests}" for one in chosen) or "no defect has such a name")
        return 0 if chosen else 2
    began = time.monotonic()
    os.environ |= {"CI": "1", "OMP_NUM_THREADS": "1"}
    for module in WARM:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "src", folder / WHOLE / "src", ignore=shutil.ignore_patterns("*.egg-info"))
        tests = sorted({test for one in chosen for test in one.tests.split()})
        ((_, found),) = _tested([(WHOLE, tests)], folder, 1)
        if found != "unnoticed":
            print(f"without any defect: {found}; mend that first\n{(folder / WHOLE / 'said').read_text()[-3000:]}")
            return 2
        by_name, counts = {one.name: one for one in chosen}, Counter[str]()
        for name, found in _tested([(one.name, one.tests.split()) for one in chosen], folder, asked.jobs):
            reason = by_name[name].unnoticed
            if found == "unnoticed" and reason:
                found = f"accepted: {reason}"
            counts[found.split(":")[0]] += 1
            print(f"{name:40} {found}", flush=True)
    print(
        f"{counts['noticed']} of {len(chosen)} noticed, {counts['unnoticed']} unnoticed, {counts['accepted']} accepted "
        f"as unnoticed, {counts['error']} errors, {time.monotonic() - began:.0f} s"
    )
    return 1 if counts["unnoticed"] or counts["error"] else 0


def _tested(wanted: list[tuple[str, list[str]]], folder: Path, jobs: int) -> Iterator[tuple[str, str]]:
    """Run tests with the sources in `folder`, a defect's in a copy with it: `noticed`, `unnoticed` or an error."""
    running: dict[int, tuple[str, float]] = {}
    left = wanted[::-1]
    try:
        while left or running:
            while left and len(running) < jobs:
                name, tests = left.pop()
                try:
                    _prepare(folder, name)
                except (AssertionError, OSError) as error:
                    yield name, f"error: {error}"
                    continue
                sys.stdout.flush()
                running[_forked(folder / name, tests)] = (name, time.monotonic())
            time.sleep(0.05)
            for number, (name, began) in list(running.items()):
                done, status = os.waitpid(number, os.WNOHANG)
                late = name != WHOLE and time.monotonic() - began > LIMIT
                if late and not done:
                    _end(number)
                if done or late:
                    del running[number]
                    # 0: all passed, 1: one failed. Anything else is no answer: no such test, a file without sense.
                    code = 1 if late and not done else os.waitstatus_to_exitcode(status)
                    said = {0: "unnoticed", 1: "noticed"}.get(code)
                    yield name, said or f"error: {code}: {(folder / name / 'said').read_text()[-300:]}"
                    if name != WHOLE:
                        shutil.rmtree(folder / name, ignore_errors=True)
    finally:
        for number in running:
            _end(number)


def _prepare(folder: Path, name: str) -> None:
    """A copy of the sources, and of what was compiled of them, with a defect."""
    for one in TABLE:
        if one.name == name:
            shutil.copytree(folder / WHOLE / "src", folder / name / "src")
            one.apply(folder / name / SOURCE)


def _forked(place: Path, tests: list[str]) -> int:
    """A process that has imported what takes long, but nothing of ours, and tests the sources at a place."""
    number = os.fork()
    if number:
        return number
    code = 3
    try:
        os.setpgid(0, 0)
        said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(ROOT)
        os.environ |= {"PYTHONPATH": str(place / "src"), "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "hypothesis")}
        sys.path.insert(0, str(place / "src"))
        words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--timeout=120"]
        code = int(pytest.main([*words, f"--basetemp={place / 'temporary'}", *(f"tests/{test}" for test in tests)]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _end(number: int) -> None:
    """A process that was started here, and all that it started."""
    os.killpg(number, signal.SIGKILL)
    os.waitpid(number, 0)


if __name__ == "__main__":
    sys.exit(main())
