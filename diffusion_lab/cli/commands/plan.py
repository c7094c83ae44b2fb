"""`diffusion-lab plan SETTINGS`: which ratio how many seeds and samples of a sweep decide, and in how many hours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.planning import (
    ARCHIVE,
    ARCHIVE_SOURCE,
    Components,
    Price,
    cheapest_samples,
    ratio_decided,
    two_figures,
)

if TYPE_CHECKING:
    from diffusion_lab.cli.cost.cost import Cost
    from diffusion_lab.runs.run import Run

SEEDS = (3, 5, 8)
USAGE = """usage: diffusion-lab plan [pilot=DIR] [key=value ...]

Which ratio between two rows of a sweep is decided with a probability of 80 %, for 3, 5 and 8 seeds and those of the
sweep, with its number of samples and the cheapest one, and in how many hours. Nothing is trained but some timed steps.

  key=value   the sweep, as after `diffusion-lab train -m`
  pilot=DIR   finished runs of two methods or more, whose values tell how much they vary: two seeds for training, and
              `diffusion-lab evaluate run=DIR seeds=[0,1,2,3]` of each run for measuring; without: values of digits

examples
  diffusion-lab plan experiment=demo
  diffusion-lab plan experiment=demo pilot=runs/demo
"""


def main(words: list[str]) -> int:
    """Answer and return 0, or the exit code of a sweep that could not start."""
    if any(word in ("-h", "--help") for word in words):
        print(USAGE, end="")
        return 0
    from diffusion_lab.cli.app import App

    pilots = [word.partition("=")[2].strip("'\"") for word in words if word.startswith("pilot=")]
    settings = [word for word in words if not word.startswith("pilot=") and word not in ("-m", "--multirun")]
    app = App("train", ["-m", *settings, "dry_run=true"], typed=["plan", *words])
    app.answer = partial(answer, pilot=Path(pilots[-1]) if pilots else None)
    return app.run()


def answer(cfgs: list[DictConfig], folders: list[Path], pilot: Path | None) -> None:
    """Print the plan of a sweep; ConfigError if it cannot be planned with what there is."""
    from diffusion_lab.cli.config import group_hash
    from diffusion_lab.cli.dry_run import costs_of, print_rows
    from diffusion_lab.cli.question import question_of, words
    from diffusion_lab.printable import make_console

    asked, rows = question_of(cfgs), len({group_hash(cfg) for cfg in cfgs})
    if rows < 2:
        raise ConfigError(
            "plan must have two rows to compare, e.g. sampler=uniform,logit_normal; add a setting's values"
        )
    if asked["samples"] is None:
        raise ConfigError("metrics.num_samples must be the same number >= 1 for all rows; use metrics=default")
    parts, source = _components(asked, pilot, cfgs[0])
    costs, missing = costs_of(cfgs)
    price, console = _price(cfgs, costs), make_console()
    least = two_figures(max(cheapest_samples(parts, price), 10)) if parts.training else asked["samples"]
    table = _table(parts, price, rows, sorted({*SEEDS, *({asked["seeds"]} - {1, 2})}), {asked["samples"], least})
    print_rows(console, ("seeds", "samples", "ratio decided", "hours"), [line for line, _ in table])
    for text in missing:
        console.print(f"missing here: {text}", soft_wrap=True)
    seeds = asked["seeds"] if asked["seeds"] > 2 else 5
    console.print(next(said for line, said in table if line[:2] == (str(seeds), f"{least:,}")), soft_wrap=True)
    console.print(f"question: {words(asked)}; {rows} rows in one table", soft_wrap=True)
    console.print(
        f"variance of a log ratio: training {parts.training:.2g}, measuring with {parts.samples:,} samples "
        f"{parts.measuring:.2g} ({source})",
        soft_wrap=True,
    )
    console.print(
        "assumed: normal log ratios, rows that vary alike, latents of the seed; one run after another, "
        f"{costs[0].basis}; nothing was written",
        soft_wrap=True,
    )


def _table(
    parts: Components, price: Price, rows: int, seeds: list[int], samples: set[int]
) -> list[tuple[tuple[str, ...], str]]:
    """The cells of each line, and its sentence."""
    found = []
    for m in sorted(samples):
        for n in seeds:
            ratio, hours = ratio_decided(parts, m, n, rows), f"{price.hours(rows, n, m):.2g}"
            said = f"With {n} seeds and {m:,} samples a ratio of {ratio:.2f} is decided with 80 %, in {hours} hours."
            found.append(((str(n), f"{m:,}", f"{ratio:.2f}", hours), said))
    return found


def _is_frechet(metric: str) -> bool:
    """Whether it is a Fréchet distance, by its name, fid or fd1k_digits."""
    return metric.startswith(("fid", "fd"))


def _components(asked: dict[str, Any], pilot: Path | None, cfg: DictConfig) -> tuple[Components, str]:
    """The variances and their source: the pilot, or those of digits for a Fréchet distance."""
    from diffusion_lab.runs.find import read_runs
    from diffusion_lab.runs.pilot import pilot_of

    known, name = ARCHIVE[asked["estimand"]], asked["metric"] or "fid"
    if pilot is None:
        if not _is_frechet(name):
            raise ConfigError(
                f"question.metric={name} must have a pilot, because it varies in its own way; use pilot=DIR"
            )
        return known, ARCHIVE_SOURCE
    try:
        done = [run for run in read_runs(pilot).runs if run.status == "done"]
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(f"pilot: {error}") from error
    done = _on_one_data_set(done, cfg, pilot)
    names = dict.fromkeys(one for run in done for one in run.metric_names if run.better(one) == "lower")
    metric = name if name in names else next(iter(names), name)
    if cfg.question.metric and metric != name and not (_is_frechet(metric) and _is_frechet(name)):
        raise ConfigError(
            f"question.metric={cfg.question.metric} must be a metric for which smaller is better and of which "
            f"pilot={pilot} has values; use question.metric={metric}, or another pilot"
        )
    groups: dict[str, list[Run]] = {}
    for run in done:
        groups.setdefault(run.group_key, []).append(run)
    found = pilot_of(list(groups.values()), metric, asked["estimand"])
    if found is None or found.sets.shape[1:] == (1, 1):
        raise ConfigError(
            f"pilot={pilot} must hold finished runs of two methods, with values of {metric} for two seeds in common, "
            "or for several sets of latents; use `diffusion-lab evaluate run=DIR seeds=[0,1,2,3]`"
        )
    alike = _is_frechet(metric)  # varies as the known values do
    parts = found.moderated(known) if alike else found.components(known)
    return parts, f"{metric} of {pilot}: {found.words}" + _other(found.sets.shape, alike)


def _on_one_data_set(runs: list[Run], cfg: DictConfig, pilot: Path) -> list[Run]:
    """The runs; of those on several data sets, whose values cannot be compared, the ones on that of the sweep."""
    from diffusion_lab.reports.comparison.differences import canonical, lookup

    by_source: dict[str, list[Run]] = {}
    for run in runs:
        by_source.setdefault(canonical(lookup(run.config, "dataset.source")), []).append(run)
    if len(by_source) < 2:
        return runs
    same = by_source.get(canonical(OmegaConf.to_container(cfg.dataset.source, resolve=True)))
    if same is None:
        raise ConfigError(
            f"pilot={pilot} must hold runs on the data set of the sweep, but has runs on {len(by_source)} others; "
            "name a folder with runs on one data set"
        )
    return same


def _other(shape: tuple[int, ...], alike: bool) -> str:
    """What the pilot does not tell, or not alone."""
    part = "a part of " * (shape[1] > 1)
    left = ["measuring"] * (shape[2] == 1) + [f"{part}training"] * (shape[1] == 1 or alike)
    return f"; {' and '.join(left)}: {ARCHIVE_SOURCE}" if left else ""


def _price(cfgs: list[DictConfig], costs: list[Cost]) -> Price:
    """The mean over the jobs; seconds of a sample are those of its network calls."""
    from diffusion_lab.cli.cost.counts import measured_steps

    jobs = {id(cost): (cfg, cost) for cfg, cost in zip(cfgs, costs, strict=True)}  # those of one seed have one cost
    sampling = {key: _sampling_seconds(*job) for key, job in jobs.items()}
    added, whole = (sum(some) / len(costs) for some in ([sampling[id(c)] for c in costs], [c.seconds for c in costs]))
    evaluations = sum(measured_steps(cfgs[0]))
    return Price(whole - added, added / (evaluations * cfgs[0].metrics.num_samples), evaluations)


def _sampling_seconds(cfg: DictConfig, cost: Cost) -> float:
    """Seconds of a run that grow with the number of samples.

    Raises:
        ConfigError: there are none.
    """
    from diffusion_lab.cli.config import with_value
    from diffusion_lab.cli.cost.cost import saving_seconds
    from diffusion_lab.cli.cost.counts import count_beside
    from diffusion_lab.cli.run_parts import part

    twice = with_value(cfg, "metrics.num_samples", 2 * cfg.metrics.num_samples)
    # Of one seed, with one grid.
    once, doubled = (count_beside(one, part(one, "dataset")).calls for one in (cfg, twice))
    if doubled == once:
        raise ConfigError(
            f"metrics.names=[{','.join(cfg.metrics.names)}] must have one whose cost grows with metrics.num_samples; "
            "use metrics=default"
        )
    return (doubled - once) * (cost.evaluation_seconds - saving_seconds(cost.counts)) / cost.counts.beside.calls
