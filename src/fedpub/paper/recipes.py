"""Every table and figure of the paper by name; those that start with `more-` are ours."""

from __future__ import annotations

from fedpub.paper import attacks, beyond, costs, differences, hops, main, noise, pareto, secure, structure, variants
from fedpub.paper.recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "table-overlapping": main.OVERLAPPING,
    "table-disjoint": main.DISJOINT,
    "table-statistics": structure.Statistics(),
    "table-efficiency": costs.Efficiency(),
    "table-links": main.LINKS,
    "table-imbalanced": main.IMBALANCED,
    "table-sensitivity": variants.SENSITIVITY,
    "table-louvain": main.LOUVAIN,
    "table-random": main.RANDOM,
    "table-three-clients": main.THREE,
    "table-proxies": structure.ProxyGraphs(),
    "table-similarities": variants.SIMILARITIES,
    "table-communities": variants.EXPLICIT,
    "table-oracle": main.ORACLE,
    "figure-collapse": costs.Collapse(),
    "figure-measures": costs.Measures(),
    "figure-convergence-overlapping": costs.CONVERGENCE_OVERLAPPING,
    "figure-convergence-disjoint": costs.CONVERGENCE_DISJOINT,
    "figure-convergence-links": costs.CONVERGENCE_LINKS,
    "figure-heatmaps": structure.HeatMaps(),
    "figure-ablation": variants.ABLATION,
    "figure-epochs": variants.EPOCHS,
    "figure-neighbours": structure.Neighbours(),
    "figure-masks": structure.Masks(),
    "figure-divergence": structure.Divergence(),
    "more-weight-decay": differences.WEIGHT_DECAY,
    "more-weight-decay-large": differences.WEIGHT_DECAY_LARGE,
    "more-splits": differences.SPLITS,
    "more-differences": differences.Differences(),
    "more-fedgnn": differences.FEDGNN,
    "more-twitch": differences.TWITCH,
    "more-beyond": beyond.Beyond(),
    "more-hops": hops.RESULTS,
    "more-pareto": pareto.Pareto(),
    "more-parts": beyond.PARTS,
    "more-communities": beyond.Community(),
    "more-attacks": attacks.Attacks(),
    "more-secure": secure.Secure(),
    "more-noise": noise.Noise(),
}
