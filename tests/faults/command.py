"""`python -m tests.faults.command WORDS`: `diffusion-lab WORDS` in a new process, which records its training batches.

For a run whose other processes Lightning starts by executing the command again, which in a fork would be the campaign.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from diffusion_lab.cli.main import main

SEEN = "DIFFUSION_LAB_FAULTS_SEEN"  # the file of `record_batches`

if __name__ == "__main__":
    if os.environ.get(SEEN):
        from tests.faults.runs import record_batches

        record_batches(Path(os.environ[SEEN]))
    sys.exit(main())
