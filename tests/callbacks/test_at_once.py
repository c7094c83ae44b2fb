"""A signal ends an evaluation at once, whatever the code inside makes of the exception."""

from __future__ import annotations

import signal

import pytest

from diffusion_lab.callbacks.signals import Interrupted, Signals


def test_an_error_that_a_signal_has_caused_is_the_signal() -> None:
    """PyTorch's compiler reports what is raised while it traces as an error of the traced code."""
    signals = Signals()
    with pytest.raises(Interrupted, match="stopped by SIGTERM after step 5"), signals.at_once(5):
        try:
            signals._remember(signal.SIGTERM, None)
        except Interrupted as stop:
            raise RuntimeError("the traced code failed") from stop


def test_an_error_without_a_signal_stays_one() -> None:
    with pytest.raises(RuntimeError, match="^its own fault$"), Signals().at_once(5):
        raise RuntimeError("its own fault")
