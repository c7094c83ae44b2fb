"""Checks of a moment for the command: one of each kind of result, one that raises, one that hangs, one that dies."""

from __future__ import annotations

import os
import signal
import time

from diffusion_lab.cli.doctor.check import CheckPlace, Finding, check, differs, impossible, ok


@check(limit=20)
def fine(place: CheckPlace) -> Finding:
    """Holds."""
    return ok("all of it")


@check(limit=20)
def wrong(place: CheckPlace) -> Finding:
    """Does not hold."""
    return differs("by 3e-2, at most 1e-2")


@check(limit=20)
def absent(place: CheckPlace) -> Finding:
    """Cannot be checked."""
    return impossible("there is none")


@check(limit=20)
def raising(place: CheckPlace) -> Finding:
    """Ends with an error of two lines and an escape sequence."""
    raise ValueError("no\nluck \x1b]52;c;aGk=\x07")


@check(limit=0.6)
def hanging(place: CheckPlace) -> Finding:
    """Never ends, as a GPU's driver may not, and cannot be asked to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
    return ok()


@check(limit=20)
def dying(place: CheckPlace) -> Finding:
    """Ends its process, as a fault in a kernel does."""
    print("cudaErrorIllegalAddress", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return ok()


@check(limit=20)
def telling(place: CheckPlace) -> Finding:
    """Says all that a report must not hold, in the message of an error."""
    names = ("HOME", "USER", "HOSTNAME", "WANDB_API_KEY", "OTHER_TOKEN")
    home, user, host, key, token = (os.environ[name] for name in names)
    raise RuntimeError(
        f"{user}@{host}: {home}/runs/a.ckpt, '{home}/my data/b c.png', key {key}, {token}; see /opt/{user}s/x, "
        rf"C:\Users\{user}\x, ~/c, data/{user}-1/d.png, https://{host}:8080/?q={key}, 192.168.17.4, by {user.upper()} "
        f"in {place.work}"
    )


@check(limit=20, fresh=True)
def process(place: CheckPlace) -> Finding:
    """The process, which is another one than that of the checks before."""
    return ok(f"pid {os.getpid()}")


@check(limit=20)
def process_again(place: CheckPlace) -> Finding:
    """The same process."""
    return ok(f"pid {os.getpid()}")
