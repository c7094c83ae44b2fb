"""The process in which checks run, one after the other: `python -m diffusion_lab.cli.doctor.worker`.

Arguments: the descriptor of a pipe and, as JSON, the place and the checks. Each finding is a line of JSON in the pipe.
What libraries print goes to the log that the standard streams are.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from diffusion_lab.cli.doctor.check import Check, place_of


def main(arguments: Sequence[str]) -> int:
    """Run the checks until one crashes."""
    from diffusion_lab.cli.processes import end_with_parent

    end_with_parent(signal.SIGKILL)
    pipe, place, checks = int(arguments[0]), json.loads(arguments[1]), json.loads(arguments[2])
    where = place_of(place["device"], Path(place["work"]), place["devices"])
    where.folder.mkdir(parents=True, exist_ok=True)
    findings = open(pipe, "w", encoding="utf-8", buffering=1)  # each line is sent at once
    findings.write("\n")  # it has started
    for one in checks:
        finding = Check(*one).run(where)
        findings.write(f"{json.dumps(finding)}\n")
        if finding.crashed:
            break
    sys.stdout.flush()
    os._exit(0)  # a driver that hangs at exit, and threads that libraries left, are no concern of the findings


if __name__ == "__main__":
    main(sys.argv[1:])
