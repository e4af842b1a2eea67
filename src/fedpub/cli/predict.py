"""The verb `predict`."""

from __future__ import annotations

from pathlib import Path


def predict(
    *,
    model: Path,
    graph: str,
    out: Path,
    client: str | None = None,
    pairs: Path | None = None,
    data_root: Path | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Classes of a graph's nodes as predicted by a personal model, with their probabilities, or links between pairs.

    Example: fedpub predict --model runs/first --client 0 --graph communities --out predictions.parquet

    Args:
        model: Folder of a model, or a run directory.
        graph: Graph file, with or without labels, or a name from `fedpub data list`.
        out: Table to write, CSV or Parquet by its ending; an existing file is replaced.
        client: Number or name of the client whose model is used, if `model` is a run directory.
        pairs: Table of two columns with node ids, for a model that predicts links.
        quiet: No output.
        json: Summary as JSON.
    """
    # Imported here, so that --help does not wait for torch.
    from rich.console import Console

    import fedpub.runs.prediction as of
    from fedpub.cli.show import as_json, pairs_table
    from fedpub.data.datasets import load
    from fedpub.runs.progress import steps
    from fedpub.store.run_models import open_model

    of.check_out(out, [Path(graph), *([pairs] if pairs else [])])
    with steps(quiet or json) as step:
        step("loading", 0, None)
        weights, card = open_model(model, client, data_root)
        given = load(graph, data_root, labelled=False)
        step("predicting", 0, None)
        found = of.predict(weights, card, given, None if pairs is None else of.read_pairs(pairs, given))
        step("writing", 0, None)
        of.write_table(out, of.table_of(found))
    if as_json({**found.numbers(), "notes": of.notes(card, given), "out": out}, json) or quiet:
        return
    console = Console(markup=False, highlight=False)
    console.print(pairs_table(found.lines()))
    for note in of.notes(card, given):
        console.print(note, soft_wrap=True)
    console.print(out, soft_wrap=True)
