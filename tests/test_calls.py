"""How many functions of ours run from the command line to the first draw of a training.

Counted are the `call` events of `sys.setprofile`, from before `diffusion_lab` is imported to the call of the sampler's
`draw` itself, whose code lies in the package: functions, methods, lambdas, comprehensions, and each time that a
generator goes on. Bodies of modules and classes are left out, and functions that other libraries call count as well.
What a processor with matrix units does beside, timed passes of the network (`cli.bfloat16`), is no part of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MOST = 2500
PROGRAM = """
import collections, importlib.util, inspect, os, sys
import hydra, torch  # none of ours: without an event for each call of their own import

package = os.path.dirname(importlib.util.find_spec("diffusion_lab").origin) + os.sep
calls, probing = collections.Counter(), [False]

def count(frame, event, argument):
    code = frame.f_code
    if event not in ("call", "return") or not code.co_filename.startswith(package):
        return
    if code.co_name == "faster_bfloat16":
        probing[0] = event == "call"
    if probing[0] or event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:
        return
    calls[code.co_filename.removeprefix(package), code.co_qualname] += 1
    if code.co_name == "draw" and code.co_filename.startswith(package + "timesteps"):
        print(calls.total(), *calls.most_common(40), sep="\\n", flush=True)
        os._exit(0)

sys.setprofile(count)
from diffusion_lab.cli.main import main
main(sys.argv[1:])
"""


def test_few_calls_to_the_first_draw(tmp_path: Path) -> None:
    words = ["train", "sampler=clts", "scale=smoke", f"paths.root={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, env=os.environ, check=True, timeout=300
    )
    text = done.stdout[done.stdout.index("->") :].split("\n", 1)[1]
    assert 1000 < int(text.split()[0]) <= MOST, text
