import types

import pytest


@pytest.fixture
def trainer():
    """What the logging functions read of a Trainer, at step 20 with a global batch of 8."""

    def make(*loggers, is_global_zero=True):
        return types.SimpleNamespace(
            global_step=20,
            is_global_zero=is_global_zero,
            loggers=list(loggers),
            datamodule=types.SimpleNamespace(batch_size=8),
        )

    return make
