"""PufferLib on mpe2's and Gymnasium's environments, with one set of weights for all players (W1, W4, W3).

    .venv-peers/pufferlib/bin/python -m benchmarks.peers.pufferlib W1 [--seconds 30] [--seed 0]

A gradient step uses the rows of all players: whole segments of 128 steps, drawn by PufferLib's priorities. Its learning
rate follows a cosine schedule. Its games in C are excluded: its installation would download libraries for them.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
AWAY = tempfile.TemporaryDirectory()
os.chdir(AWAY.name)  # the import of PufferLib creates a link in the working folder

import pufferlib.emulation
import pufferlib.vector
import torch
from pufferlib.pufferl import PuffeRL
from pufferlib.pytorch import layer_init
from torch import nn

from benchmarks.peers import common
from benchmarks.peers.common import CARTPOLE, WATCH, Task
from benchmarks.peers.games import cartpole, spread

FOREVER = 10**9


class ActorCritic(nn.Module):
    """Two networks of two hidden layers each."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.actor, self.critic = _network(inputs, actions, 0.01), _network(inputs, 1, 1.0)

    def forward(self, obs: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and values."""
        rows = obs.float()
        return self.actor(rows), self.critic(rows)

    forward_eval = forward


def _network(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    width = common.WIDTH
    return nn.Sequential(
        layer_init(nn.Linear(inputs, width)), nn.Tanh(), layer_init(nn.Linear(width, width)), nn.Tanh(),
        layer_init(nn.Linear(width, outputs), std=gain),
    )  # fmt: skip


class Quiet(PuffeRL):
    """PufferLib's trainer without its dashboard, which is drawn four times per second."""

    def print_dashboard(self, *args: Any, **kwargs: Any) -> None:
        """Draw nothing."""


def environments(task: Task) -> Any:
    """Return the environments, which this process steps one after another."""

    def make(buf: Any = None, seed: int = 0) -> Any:
        if task.work == "W3":
            return pufferlib.emulation.GymnasiumPufferEnv(env_creator=cartpole, buf=buf, seed=seed)
        return pufferlib.emulation.PettingZooPufferEnv(
            env_creator=spread, env_args=[task.players], buf=buf, seed=seed
        )  # fmt: skip

    return pufferlib.vector.make(make, num_envs=task.envs, seed=task.seed, backend=pufferlib.vector.Serial)


def settings(task: Task) -> dict[str, Any]:
    """Return all settings that PufferLib's trainer requires."""
    rows = task.envs * task.players * common.STEPS
    own: dict[str, Any] = {
        "learning_rate": common.PPO_RATE, "gamma": common.GAMMA, "gae_lambda": common.LAMBDA, "clip_coef": common.CLIP,
        "ent_coef": common.ENTROPY, "update_epochs": common.EPOCHS, "bptt_horizon": common.STEPS,
        "minibatch_size": rows // common.MINIBATCHES, "total_timesteps": FOREVER, "anneal_lr": False,
    }  # fmt: skip
    if task.work == "W3":
        own |= {
            "learning_rate": CARTPOLE["learning_rate"], "gamma": CARTPOLE["gamma"], "ent_coef": CARTPOLE["entropy"],
            "gae_lambda": CARTPOLE["gae_lambda"], "update_epochs": int(CARTPOLE["epochs"]),
            "bptt_horizon": int(CARTPOLE["steps"]), "minibatch_size": int(CARTPOLE["rows"]),
            "total_timesteps": int(CARTPOLE["decay_steps"]), "anneal_lr": True,
        }  # fmt: skip
    return {
        "name": "peers", "project": "peers", "env": "game", "seed": task.seed, "device": "cpu", "optimizer": "adam",
        "torch_deterministic": True, "cpu_offload": False, "precision": "float32", "use_rnn": False, "compile": False,
        "vf_coef": common.VALUE, "vf_clip_coef": 1e9, "max_grad_norm": common.MAX_NORM, "adam_beta1": 0.9,
        "adam_beta2": 0.999, "adam_eps": 1e-5, "data_dir": AWAY.name, "checkpoint_interval": FOREVER,
        "batch_size": "auto", "max_minibatch_size": FOREVER, "vtrace_rho_clip": 1.0, "vtrace_c_clip": 1.0,
        "prio_alpha": 0.0, "prio_beta0": 1.0, **own,
    }  # fmt: skip


def main() -> None:
    """Build the trainer, and train until the time is over."""
    task = common.task_of(__doc__, "W1", "W4", "W3")
    torch.manual_seed(task.seed)
    warnings.simplefilter("ignore")
    envs = environments(task)
    policy = ActorCritic(envs.single_observation_space.shape[0], envs.single_action_space.n)
    trainer = Quiet(settings(task), envs, policy)
    if task.work == "W3":
        WATCH.start()
    over = False
    while not over:
        trainer.evaluate()
        trainer.train()
        over = WATCH.spent() if task.work == "W3" else WATCH.lap(task.seconds)
    trainer.utilization.stop()
    networks = "separate" if task.work == "W3" else "shared"
    common.report("pufferlib", task, ("pufferlib", "torch", "gymnasium"), networks=networks)


if __name__ == "__main__":
    main()
