"""A quadratic bandit: a linear policy learns it by gradient descent, whose best learning rate is known.

An observation is 1 or -1, an action costs the square of its distance to 3. The loss of action w * obs + b is
(w * obs + b - 3)^2 / 2, whose Hessian is the identity if both observations are equally frequent. Gradient descent with
rate r multiplies the error by 1 - r: the rate 1 needs a single step, and rates of more than 2 diverge.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import marltrain as mt

TARGET = 3.0
RATES = [2.0**power for power in range(-5, 4)]


class Bandit(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([self.np_random.choice([-1.0, 1.0])], np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), -min((float(action[0]) - TARGET) ** 2, 1e30), True, False, {}


class Regression(mt.Algorithm):
    """Regression of the known target."""

    name, Settings, on_policy = "regression", mt.Settings, True

    def networks(self):
        return {"actor": mt.NetworkDefinition(self.settings.network, [mt.Head(1)], self.layout)}

    def needs(self):
        return mt.Needs(on_policy=True)

    @property
    def phases(self):
        return (mt.Phase("policy", ("actor",), self.loss),)

    def noise(self, rngs, rows):
        return {}

    def act(self, ops, nets, inputs):
        (out,) = nets["actor"](inputs.obs)
        return mt.Acted(out)

    def loss(self, ops, nets, batch, hyper):
        (out,) = nets["actor"](batch.obs)
        error = (out - TARGET)[..., 0]
        loss = mt.weighted_mean(ops, 0.5 * error * error, batch.weight)
        return loss, {"loss/total": loss}


@dataclass(frozen=True, kw_only=True)
class RegressionArguments(mt.AgentArguments, mt.Settings):
    pass


class Regressor(mt.LearningAgent):
    algorithm_class = Regression

    @mt.accepts(RegressionArguments)
    def __init__(self, *args, **arguments):
        super().__init__(*args, **arguments)


SETTINGS: dict[str, Any] = {"network": mt.MLP(hidden=()), "optimizer": "sgd", "max_grad_norm": None, "batch_size": 8}
TRAINER: dict[str, Any] = {"num_train_envs": 4, "update_freq": 8, "num_test_envs": 4, "episodes_per_test": 4}
