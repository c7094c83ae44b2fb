"""A sweep of 30 jobs, of which 6 fail in 6 ways.

An exception, sys.exit(0), sys.exit(1), SIGKILL, a weight that is not a number, and a job that exceeds its time limit,
all in the third step. 24 jobs must be done and exactly the other 6 reported, with overrides and a log, with exit code
1. After the cause is removed, the same command must run only those 6 and end with code 0, and every job must be bitwise
equal to a single run of its command.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tests.faults import ways
from tests.faults.case import Case, Outcome
from tests.faults.runs import Command
from tests.faults.sweeps import JOB, compare_jobs, done, results, single, trained_again
from tests.faults.ways import CURED, WAYS

LIMIT_S = 40  # of one job, many times its duration
YAML = """_target_: failing.Failing
num_timesteps: ${schedule.num_timesteps}
seed: ${seed}
fails: [%s]
"""
OWN = ["--config-dir", "conf", "sampler=failing"]


def cases(quick: bool) -> list[Case]:
    """One sweep; quick: 8 jobs."""
    jobs, fails = (8, range(1, 7)) if quick else (30, (2, 7, 11, 16, 20, 25))
    return [Case(f"{jobs} jobs", lambda folder: sweep(folder, jobs, list(fails)), limit=1800)]


def sweep(folder: Path, jobs: int, fails: list[int]) -> Outcome:
    """Run the command, check its output, run it again, and compare with single runs."""
    outcome = Outcome(counts={"jobs": jobs, "fail": len(fails)})
    yaml = folder / "conf" / "sampler" / "failing.yaml"
    yaml.parent.mkdir(parents=True)
    yaml.write_text(YAML % ", ".join(map(str, fails)))
    shutil.copy(ways.__file__, folder / "failing.py")  # a user's module in the working folder
    os.environ[CURED] = str(folder / "cured")
    words = ["train", "-m", *OWN, *JOB, f"seed=range(0,{jobs})", f"hydra.launcher.timeout_s={LIMIT_S}", "name=jobs"]
    folder_of_jobs = folder / "runs" / "jobs"
    first = Command(words, folder)
    code = first.end(outcome, 1200)
    outcome.expect(code == 1, f"exit code {code} instead of 1")
    before = done(folder_of_jobs)
    judge_first(outcome, folder_of_jobs, first.output, fails, jobs)
    (folder / "cured").touch()
    second = Command(words, folder)
    second.done(outcome, 0, 600)
    skipped = second.output.count("done before")
    outcome.expect(skipped == jobs - len(fails), f"{skipped} jobs were skipped instead of {jobs - len(fails)}")
    after = done(folder_of_jobs)
    trained_again(outcome, before, after)
    outcome.expect(len(after) == jobs, f"{len(after)} jobs are done instead of {jobs}: {_missing(after, jobs)}")
    outcome.counts["run again"] = len(after) - len(before)
    for seed in range(jobs):
        single(folder, OWN, seed)
    compare_jobs(outcome, folder_of_jobs, folder / "alone")
    return outcome


def judge_first(outcome: Outcome, folder: Path, output: str, fails: list[int], jobs: int) -> None:
    """Check that all but the failing jobs are done, and that those are reported with their overrides and a log."""
    finished = {seed_of(name) for name in done(folder)}
    for seed, way in zip(fails, WAYS, strict=True):
        outcome.expect(seed not in finished, f"the job that fails by '{way}' counts as done")
    good = set(range(jobs)) - set(fails)
    outcome.expect(finished >= good, f"not done although nothing is wrong with them: {sorted(good - finished)}")
    short = [name for name, result in results(folder).items() if result["status"] == "done" and result["step"] != 12]
    outcome.expect(not short, f"done before the last step: {short}")
    summary = output.partition("jobs are not done:")[2]
    named = {int(seed) for seed in re.findall(r"^    \S*\bseed=(\d+)", summary, re.MULTILINE)}
    outcome.expect(named == set(fails), f"named {sorted(named)} instead of {fails}")
    logs = [Path(folder.parent.parent, path) for path in re.findall(r"^      log: (.*)$", summary, re.MULTILINE)]
    outcome.expect(len(logs) == len(fails), f"{len(logs)} logs are named")
    outcome.expect(all(log.is_file() for log in logs), "a log that is named does not exist")
    outcome.counts |= {"done": len(finished & good), "named": len(named & set(fails))}


def seed_of(name: str) -> int:
    """The seed in the name of a run folder."""
    match = re.search(r"-s(\d+)-", name)
    return int(match[1]) if match else -1


def _missing(after: dict[str, tuple[int, int]], jobs: int) -> list[int]:
    return sorted(set(range(jobs)) - {seed_of(name) for name in after})
