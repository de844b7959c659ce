"""Plans of trainings, their readings and outcomes."""

import math

import pytest

from marltrain.core.errors import ConfigError
from marltrain.tools.search.training import OF_TOOLS, Plan, loss_of
from tests.toys import Identity


@pytest.mark.parametrize("name", sorted(OF_TOOLS))
def test_arguments_that_trainings_of_tools_do_not_have_are_refused(name):
    """A run of many trainings counts no episodes, and its metric is none: hooks and budgets of them would be lost."""
    with pytest.raises(ConfigError, match=rf"find: trainer=\{{'{name}': 7\}} cannot be given: \w+"):
        Plan.of("find", Identity, None, 20, None, {name: 7})


def test_losses_by_name():
    losses = {"loss/actor": 1.0, "loss/critic": 2.0}
    assert loss_of(losses) == 3.0 and loss_of({**losses, "loss/total": 7.0}) == 7.0
    assert loss_of(losses, "loss/critic") == 2.0 and math.isnan(loss_of({}))
    with pytest.raises(ConfigError, match="the updates measure loss/actor, loss/critic"):
        loss_of(losses, "loss/x")
