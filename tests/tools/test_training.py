"""Plans of trainings, their readings and outcomes."""

import math

import pytest

from marltrain.errors import ConfigError
from marltrain.tools.training import loss_of


def test_losses_by_name():
    losses = {"loss/actor": 1.0, "loss/critic": 2.0}
    assert loss_of(losses) == 3.0 and loss_of({**losses, "loss/total": 7.0}) == 7.0
    assert loss_of(losses, "loss/critic") == 2.0 and math.isnan(loss_of({}))
    with pytest.raises(ConfigError, match="the updates measure loss/actor, loss/critic"):
        loss_of(losses, "loss/x")
