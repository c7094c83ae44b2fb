"""Mutations of one line, each of which falsifies a number that a report shows.

`old` must stand exactly once in the file, or the mutation proves nothing. When the code is rewritten, rewrite the
mutation so that it falsifies the same number.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One mutation.

    Attributes:
        number: which number of a report it falsifies, and how.
        file: below the root of the repository.
        old: text of one line of the file that stands in it exactly once.
        new: what replaces it.
        tests: files or folders of quick tests that are tried first; then comes the whole quick suite.
    """

    number: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


LOGGED = ("tests/callbacks/test_logged_numbers.py",)
CLOCK = ("tests/callbacks/test_progress.py",)
TABLES = ("tests/reports/test_tables.py",)
SEEDS = ("tests/test_intervals.py",)
FEATURES = ("tests/metrics/test_fidelity.py", "tests/metrics/test_moments.py")
COPIES = ("tests/metrics/test_copying.py",)
PAIRS = ("tests/metrics/test_paired.py",)
BOUND = ("tests/diffusion/test_likelihood.py",)
CELLS = ("tests/reports/test_cells.py",)
FIGURES = ("tests/reports/figures/test_figure_numbers.py",)
GANS = ("tests/callbacks/test_adversarial_log.py",)
SPEED = ("tests/reports/test_speedup.py",)
COMPARED = ("tests/reports/test_pair_metrics.py", "tests/reports/test_compare_command.py")
WALL_CLOCK = ("tests/reports/figures/test_wall_clock.py",)
NOISE = ("tests/reports/figures/test_loss_over_noise.py",)
PAPERS = ("tests/tables/test_results.py",)
COST = ("tests/reports/figures/test_throughput.py",)
AVERAGE = ("tests/callbacks/test_ema.py",)

FLOORS = ("tests/diffusion/test_floor.py",)
ANALYSES = (
    "tests/analyses/test_per_timestep.py",
    "tests/analyses/test_slots.py",
    "tests/analyses/test_reward_variance.py",
)

_COPYING = "diffusion_lab/metrics/copying.py"
_LOG = "diffusion_lab/callbacks/training_log.py"
_GAN_LOG = "diffusion_lab/callbacks/training_log.py"
_VALIDATION = "diffusion_lab/callbacks/evaluation.py"
_PROGRESS = "diffusion_lab/callbacks/progress.py"
_INTERVALS = "diffusion_lab/intervals.py"
_TABLES = "diffusion_lab/reports/comparison/rows.py"
_HOURS = "diffusion_lab/reports/comparison/hours.py"
_CELLS = "diffusion_lab/reports/comparison/cells.py"
_MEANS = "diffusion_lab/reports/figures/base.py"
_LOSSES = "diffusion_lab/reports/figures/losses.py"
_RUNS = "diffusion_lab/runs/run.py"
_FRECHET = "diffusion_lab/metrics/fidelity.py"
_MOMENTS = "diffusion_lab/metrics/generated.py"
_LIKELIHOOD = "diffusion_lab/diffusion/likelihood.py"
_DECAY = "diffusion_lab/averaging/rules.py"
_PER_TIMESTEP = "diffusion_lab/analyses/losses/per_timestep.py"
_FLOOR = "diffusion_lab/diffusion/likelihood.py"
_SPEED = "diffusion_lab/reports/pair/speedup.py"
_PAIR_METRICS = "diffusion_lab/reports/pair/pair.py"
_IMAGES = "diffusion_lab/analyses/images.py"
_SLOTS = "diffusion_lab/analyses/losses/slots.py"
_REWARD = "diffusion_lab/analyses/policy/reward_variance.py"

MUTANTS = [
    Mutant("train/loss, doubled", _LOG, "float(loss.sum() / rows.sum())", "float(2 * loss.sum() / rows.sum())", LOGGED),
    Mutant(
        "train/loss, weighted",
        "diffusion_lab/training/module.py",
        "losses.loss.detach(),",
        "losses.objective.detach(),",
        LOGGED,
    ),
    Mutant("train/loss, of the whole run", _LOG, "self._recent.reset()", "pass", LOGGED),
    Mutant(
        "train/loss_t and quarters, reversed",
        _LOG,
        "_binned(rows, index)).tolist()",
        "_binned(rows, index)).flip(0).tolist()",
        LOGGED,
    ),
    Mutant(
        "sampler/drawn, reversed",
        _LOG,
        "_binned(drawn / drawn.sum(), self._bin).tolist()",
        "_binned(drawn / drawn.sum(), self._bin).flip(0).tolist()",
        LOGGED,
    ),
    Mutant("sampler/drawn, since the last log", _LOG, "drawn = drawn + rows", "drawn = rows", LOGGED),
    Mutant(
        "sampler/p, reversed", _LOG, "_binned(p, self._bin).tolist()", "_binned(p, self._bin).flip(0).tolist()", LOGGED
    ),
    Mutant(
        "sampler/objective, reversed",
        _LOG,
        "_binned(weights, self._bin).tolist()",
        "_binned(weights, self._bin).flip(0).tolist()",
        LOGGED,
    ),
    Mutant("sampler/objective, on the x0-loss", _LOG, ".double() * scale / snr", ".double() * scale", LOGGED),
    Mutant(
        "sampler/objective, without the draw's weight",
        _LOG,
        "p * sampler.weight(t, step).double() * eps_weight",
        "p * eps_weight",
        LOGGED,
    ),
    Mutant(
        "val/loss_t, reversed",
        _VALIDATION,
        '"val/loss_t": loss.tolist()}',
        '"val/loss_t": loss.flip(0).tolist()}',
        LOGGED,
    ),
    Mutant("val/loss, summed over bins", _VALIDATION, "torch.nanmean(loss)", "torch.nansum(loss)", LOGGED),
    Mutant("val/loss, of the raw weights", _VALIDATION, "averaged_weights(trainer, module), ", "", LOGGED),
    Mutant(
        "val/loss, of the easier half of the timesteps",
        "diffusion_lab/training/validation_loss.py",
        "(order[ids] + 0.5) * num_timesteps / total",
        "(order[ids] + 0.5) * num_timesteps / total / 2",
        LOGGED,
    ),
    Mutant("averaged weights, shares exchanged", _DECAY, "[1.0 - min(float(decay)", "[min(float(decay)", AVERAGE),
    Mutant(
        "averaged weights, warm-up one step late",
        _DECAY,
        "(1 + step) / (10 + step) if",
        "step / (9 + step) if",
        AVERAGE,
    ),
    Mutant(
        "images/s of a run, in steps",
        _PROGRESS,
        "(self._step - self._first) * self._batch /",
        "(self._step - self._first) /",
        CLOCK,
    ),
    Mutant(
        "time of a run, since the last start", _PROGRESS, "return self.seconds + (0.0 if", "return 0.0 + (0.0 if", CLOCK
    ),
    Mutant("images/s in the table, inverted", _RUNS, "return images / seconds", "return seconds / images", CLOCK),
    Mutant(
        "mean, of the first values",
        _RUNS,
        "return finite(float(values[-1]))",
        "return finite(float(values[0]))",
        TABLES,
    ),
    Mutant("standard deviation, divisor n", _INTERVALS, "for v in values) / (n - 1))", "for v in values) / n)", SEEDS),
    Mutant(
        "interval, n degrees of freedom",
        _INTERVALS,
        "student_quantile(level, n - 1) * std",
        "student_quantile(level, n) * std",
        SEEDS,
    ),
    Mutant("interval, without the root of n", _INTERVALS, "* std / math.sqrt(n)", "* std / n", SEEDS),
    Mutant(
        "difference, of the wrong sign",
        _INTERVALS,
        "mean_interval([x - y for x, y in",
        "mean_interval([y - x for x, y in",
        SEEDS,
    ),
    Mutant("claim, of improvements never", _INTERVALS, "(self.low > 0 or self.high < 0)", "self.low > 0", SEEDS),
    Mutant(
        "cost, inverted",
        _HOURS,
        "reference / own for own, reference in",
        "own / reference for own, reference in",
        TABLES,
    ),
    Mutant("cost, its mean as that of a difference", _HOURS, "return ratio_interval(", "return mean_interval(", TABLES),
    Mutant(
        "difference, seeds paired in order instead of by number",
        "diffusion_lab/reports/comparison/metrics.py",
        "return [(ours[seed], theirs[seed]) for seed in common]",
        "return list(zip(ours.values(), list(theirs.values())[::-1]))[: len(common)]",
        TABLES,
    ),
    Mutant(
        "arrow, against the record",
        "diffusion_lab/reports/comparison/metrics.py",
        '"lower") == "higher"',
        '"lower") == "lower"',
        ("tests/reports/test_directions.py",),
    ),
    Mutant("FID, half of the covariance's root", _FRECHET, "- 2 * roots.sum()", "- roots.sum()", FEATURES),
    Mutant("FID, without the means", _FRECHET, "(mu_a - mu_b).square().sum() + ", "", FEATURES),
    Mutant(
        "FID, covariance with divisor n",
        _MOMENTS,
        "torch.outer(sums, mean)) / max(count - 1, 1)",
        "torch.outer(sums, mean)) / count",
        FEATURES,
    ),
    Mutant(
        "KID, of half as many rows",
        "diffusion_lab/metrics/fidelity.py",
        "min(subset_size, len(a), len(b))",
        "min(subset_size, len(a), len(b)) // 2",
        FEATURES,
    ),
    Mutant(
        "precision and recall, exchanged",
        "diffusion_lab/metrics/fidelity.py",
        'PrecisionRecall(result["precision"], result["recall"])',
        'PrecisionRecall(result["recall"], result["precision"])',
        FEATURES,
    ),
    Mutant(
        "inception score, without the exponential", _MOMENTS, "divergence.exp().mean()", "divergence.mean()", FEATURES
    ),
    Mutant(
        "agreement, inverted",
        "diffusion_lab/metrics/sample_metrics.py",
        "batch.logits.argmax(1) ==",
        "batch.logits.argmax(1) !=",
        ("tests/metrics/test_agreement.py",),
    ),
    Mutant(
        "share of copies, exchanged",
        _COPYING,
        "(train < held_out).double()",
        "(train > held_out).double()",
        COPIES,
    ),
    Mutant(
        "interval of the share of copies, of independent samples",
        _COPYING,
        "return min(float(count), count**2",
        "return max(float(count), count**2",
        COPIES,
    ),
    Mutant(
        "distance to held-out images, to training images",
        "diffusion_lab/metrics/held_out.py",
        "return given.held_out",
        "return given.reference",
        COPIES,
    ),
    Mutant(
        "sample variance, divisor n",
        "diffusion_lab/metrics/sample_metrics.py",
        "(len(images) - 1)",
        "len(images)",
        ("tests/metrics/test_sample_variance.py",),
    ),
    Mutant(
        "PSNR, 20 log10",
        "diffusion_lab/metrics/sample_metrics.py",
        "return 10 * torch.log10",
        "return 20 * torch.log10",
        PAIRS,
    ),
    Mutant(
        "hue error, divided by C",
        "diffusion_lab/metrics/sample_metrics.py",
        "math.sqrt(images.shape[1])",
        "images.shape[1]",
        PAIRS,
    ),
    Mutant(
        "PSNR of a run, of the worst sample",
        "diffusion_lab/metrics/metric.py",
        "1).mean(0)[0]",
        "1).amin(0)[0]",
        PAIRS,
    ),
    Mutant("bits/dim, mean of the terms", _LIKELIHOOD, "table.sum(1) + prior", "table.mean(1) + prior", BOUND),
    Mutant(
        "bits/dim, prior in nats",
        _LIKELIHOOD,
        "(per_dim.flatten(1).mean(1) / math.log(2))",
        "per_dim.flatten(1).mean(1)",
        BOUND,
    ),
    Mutant(
        "images seen, of one image per step",
        "diffusion_lab/loggers/base.py",
        '{"images": trainer.global_step * batch_size}',
        '{"images": trainer.global_step}',
        LOGGED,
    ),
    Mutant(
        "mean, of failed runs too",
        "diffusion_lab/reports/comparison/groups.py",
        'sorted((run for run in self.runs if run.status == "done"), key=_by_seed)',
        "sorted((run for run in self.runs), key=_by_seed)",
        CELLS,
    ),
    Mutant(
        "interval as printed, ends exchanged",
        _CELLS,
        "for value in (interval.mean, interval.low, interval.high)",
        "for value in (interval.mean, interval.high, interval.low)",
        CELLS,
    ),
    Mutant("val loss as printed, halved", _CELLS, "number(row.val_loss.mean)", "number(row.val_loss.mean / 2)", CELLS),
    Mutant(
        "images/s as printed, doubled",
        _CELLS,
        "number(row.images_per_second.mean, 3)",
        "number(row.images_per_second.mean * 2, 3)",
        CELLS,
    ),
    Mutant(
        "time as printed, of all seeds", _CELLS, "duration(row.seconds.mean)", "duration(row.seconds.mean * 2)", CELLS
    ),
    Mutant(
        "time as printed, minutes of 36 s",
        "diffusion_lab/progress.py",
        "divmod(round(seconds), 60)",
        "divmod(round(seconds), 36)",
        ("tests/test_progress.py",),
    ),
    Mutant(
        "quality in the figure, of the best seed",
        _MEANS,
        "Mean(images, stack.mean(0),",
        "Mean(images, stack.min(0),",
        FIGURES,
    ),
    Mutant(
        "loss ratio in the figure, inverted",
        _LOSSES,
        "_line(axes[1], one, x, one.last / same[0].last)",
        "_line(axes[1], one, x, same[0].last / one.last)",
        FIGURES,
    ),
    Mutant(
        "loss over timesteps in the figure, reversed",
        _LOSSES,
        "len(one.last)), one.last)",
        "len(one.last)), one.last[::-1])",
        FIGURES,
    ),
    Mutant(
        "difference in the figure, of the other sign",
        "diffusion_lab/reports/figures/table_rows.py",
        "mean, low, high = interval.mean, interval.low, interval.high",
        "mean, low, high = -interval.mean, interval.low, interval.high",
        FIGURES,
    ),
    Mutant(
        "loss of an analysis, its standard error",
        _PER_TIMESTEP,
        "losses.std(1, ddof=1) / n**0.5",
        "losses.std(1, ddof=1)",
        ANALYSES,
    ),
    Mutant(
        "loss of an analysis, the noise of another t", _IMAGES, "int(ids[i]))", "int(ids[i]), id(x0) % 997)", ANALYSES
    ),
    Mutant(
        "loss of an analysis, largest over smallest",
        _PER_TIMESTEP,
        "{large / small:,.3g} times",
        "{large - small:,.3g} times",
        ANALYSES,
    ),
    Mutant(
        "floor of an analysis, its share",
        _PER_TIMESTEP,
        "float(floor.sum() / max(mean.sum()",
        "float(floor.max() / max(mean.sum()",
        ANALYSES,
    ),
    Mutant(
        "floor of an analysis, in another space", _PER_TIMESTEP, "scale * value[:, None]", "value[:, None]", ANALYSES
    ),
    Mutant("excess of an analysis, the loss", _PER_TIMESTEP, "float(excess[gain])", "float(mean[gain])", ANALYSES),
    Mutant("loss of an analysis, in eps-space", _PER_TIMESTEP, '"eps": snr,', '"eps": 1 / snr,', ANALYSES),
    Mutant(
        "floor, without the posterior's mean", _FLOOR, "square / total - (mean", "square / total - 0 * (mean", FLOORS
    ),
    Mutant(
        "floor of mirrored images",
        "diffusion_lab/metrics/floor.py",
        "if data.flip:",
        "if not data.flip:",
        ANALYSES,
    ),
    Mutant("slots of an analysis, their share", _SLOTS, "/ before[-1]", "/ before[-2]", ANALYSES),
    Mutant("variance of the reward, fresh noise", _REWARD, "2 * k + (not common))", "2 * k + common)", ANALYSES),
    Mutant(
        "variance of the reward, over images",
        _REWARD,
        "rewards.var(2, ddof=1).mean(2)",
        "rewards.var(3, ddof=1).mean(2)",
        ANALYSES,
    ),
    Mutant(
        "figure of an analysis, of another model",
        _PER_TIMESTEP,
        "values, errors = data[key], data[error]",
        "values, errors = data[key][::-1], data[error]",
        ANALYSES,
    ),
    Mutant("judged right, of generated images", _GAN_LOG, "record.fake < 0", "record.fake > 0", GANS),
    Mutant("loss of a generator, since the start", _GAN_LOG, "self._sums.zero_()", "pass", GANS),
    Mutant("speed-up, inverted", _SPEED, "Factor(math.exp(end - first),", "Factor(math.exp(first - end),", SPEED),
    Mutant(
        "speed-up, of the other direction",
        "diffusion_lab/reports/pair/speedup.py",
        'better == "lower" else -1.0',
        "better else -1.0",
        SPEED,
    ),
    Mutant(
        "speed-up, of seeds that reached it only",
        _SPEED,
        "values = [one.value for one in factors]",
        "values = [one.value for one in factors if not one.bound]",
        SPEED,
    ),
    Mutant("speed-up by the sign test, one rank off", _SPEED, "return k or None", "return k + 1", SPEED),
    Mutant(
        "time of a run, with its evaluations",
        _PROGRESS,
        "round(self.elapsed() - self.evaluated(), 3)",
        "round(self.elapsed(), 3)",
        CLOCK,
    ),
    Mutant(
        "time at an evaluation, of the line after it",
        "diffusion_lab/runs/run.py",
        "np.append(0, self.steps), np.append(0.0, self.seconds))",
        "self.steps, self.seconds)",
        ("tests/runs/test_clock.py",),
    ),
    Mutant(
        "time in the figure, of the first seed",
        "diffusion_lab/reports/figures/curves.py",
        "group, times.mean, values.mean,",
        "group, times.low, values.mean,",
        WALL_CLOCK,
    ),
    Mutant(
        "speed-up in seconds, in images",
        "diffusion_lab/reports/pair/speedup_of_runs.py",
        "_usable(timed.clock.values, timed",
        "_usable(timed.curve.images, timed",
        COMPARED,
    ),
    Mutant(
        "difference of a comparison, A - B",
        _PAIR_METRICS,
        "return self.table.rows[-1]",
        "return self.table.rows[0]",
        COMPARED,
    ),
    Mutant(
        "verdict of a comparison, as if all metrics fell",
        _TABLES,
        "better = rising(groups, metric) if directed(groups, metric) else None",
        "better = False if directed(groups, metric) else None",
        COMPARED,
    ),
    Mutant(
        "log SNR of a range: that of its first timestep",
        "diffusion_lab/reports/figures/losses.py",
        "return np.add.reduceat(log_snr, at[:-1]) / np.diff(at)",
        "return log_snr[at[:-1]]",
        NOISE,
    ),
    Mutant(
        "memory: the smallest that was read",
        "diffusion_lab/runs/run.py",
        "return max((mb for row in self._timing",
        "return min((mb for row in self._timing",
        COST,
    ),
    Mutant(
        "answer of a paper's table: one claim too many",
        "diffusion_lab/tables/said.py",
        "counts = {word: words.count(word) for word in VERBS if word in words}",
        "counts = {word: words.count(word) + 1 for word in VERBS if word in words}",
        PAPERS,
    ),
    Mutant(
        "answer of a paper's table: the most seeds alone",
        "diffusion_lab/tables/said.py",
        'if seeds[0] == seeds[-1] else f"{seeds[0]:,} to',
        'if seeds[0] == seeds[-1] else f"{seeds[-1]:,} to',
        PAPERS,
    ),
]
