"""`python -m tests.faults.command WORDS`: `diffusion-lab WORDS` in a fresh process, which notes what training sees.

For a run whose other processes Lightning starts by executing the command again; a fork of the campaign would be
executed as the campaign.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from diffusion_lab.cli.main import main

SEEN = "DIFFUSION_LAB_FAULTS_SEEN"  # the file of `note_what_is_seen`

if __name__ == "__main__":
    if os.environ.get(SEEN):
        from tests.faults.runs import note_what_is_seen

        note_what_is_seen(Path(os.environ[SEEN]))
    sys.exit(main())
