"""The end of the process, without Python's clearing of half a million objects."""

from __future__ import annotations

import atexit
import os
import sys
import threading

WATCHED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH")  # set by tools that write their result in the C library's exit


def leave(code: int) -> int:
    """End the process with an exit code, as Python does up to its last step: wait for the threads that are no daemons,
    call the functions of `atexit` (W&B, logging, temporary folders, worker processes), and write out the standard
    streams. Then end, where Python would first clear all modules: after an import of torch and Lightning 2 s of CPU, in
    which nothing is written.

    Returns the code instead, for Python to end as usual, if somebody wants to see the end: a profiler, a debugger, a
    coverage tool, `python -i`, `python -X dev` or a tool in `WATCHED`.
    """
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    tools = monitoring is not None and any(map(monitoring.get_tool, range(6)))
    flags = sys.flags.interactive or sys.flags.dev_mode
    if sys.gettrace() or sys.getprofile() or tools or flags:
        return code
    if any(map(os.environ.get, WATCHED)):
        return code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # Python has an exit code for it
        return code
    os._exit(code)
