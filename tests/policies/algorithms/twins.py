"""tianshou's DDPG, TD3 and SAC with the weights of our agents, and updates of both from the same rows and noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tianshou.algorithm.modelfree.ddpg import DDPG, ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.discrete_sac import DiscreteSAC, DiscreteSACPolicy
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha, SACPolicy
from tianshou.algorithm.modelfree.td3 import TD3
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

from marltrain.policies.batches.batch import Transitions
from tests.policies.some_batches import VECTOR, some_transitions

BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32))
HIDDEN, RATE, ON = (9, 7), 2e-3, np.ones(1, bool)
Layers = list[tuple[str, list[torch.nn.Linear]]]


def body(**settings: Any) -> Net:
    return Net(state_shape=(5,), hidden_sizes=list(HIDDEN), activation=torch.nn.ReLU, **settings)


def linears(*nets: torch.nn.Module) -> list[torch.nn.Linear]:
    return [layer for net in nets for layer in net.modules() if isinstance(layer, torch.nn.Linear)]


def critic_of(space: Any) -> torch.nn.Module:
    if isinstance(space, spaces.Discrete):
        return DiscreteCritic(preprocess_net=body(), last_size=int(space.n))
    return ContinuousCritic(preprocess_net=body(action_shape=space.shape, concat=True))


def deterministic(space: spaces.Box) -> ContinuousDeterministicPolicy:
    actor = ContinuousActorDeterministic(preprocess_net=body(), action_shape=space.shape)
    return ContinuousDeterministicPolicy(actor=actor, action_space=space)


class Twin:
    """tianshou's algorithm of an agent's class, with the agent's weights and settings."""

    def __init__(self, agent: Any) -> None:
        self.agent, space, settings = agent, agent.action_space, agent.settings
        optim = AdamOptimizerFactory(lr=RATE)
        common: dict[str, Any] = {"policy_optim": optim, "critic_optim": optim, "tau": settings.tau}
        common |= {"critic": critic_of(space)}
        kind = type(agent).__name__
        if kind == "DDPG":
            self.other: Any = DDPG(policy=deterministic(space), **common)
        elif kind == "TD3":
            own = {"policy_noise": settings.target_noise, "noise_clip": settings.target_noise_clip}
            delay = settings.policy_delay
            self.other = TD3(policy=deterministic(space), update_actor_freq=delay, **own, **common)
        else:
            self.other = self._sac(common)
        for name, layers in self._layers().items():
            for place, layer in zip(("hidden0", "hidden1", "head0"), layers, strict=True):
                self._copy(name, place, layer)
        for old, new in self._lagged():
            getattr(old, "module", old).load_state_dict(new.state_dict())

    def _sac(self, common: dict[str, Any]) -> Any:
        space, settings = self.agent.action_space, self.agent.settings
        if isinstance(space, spaces.Discrete):
            target = settings.target_entropy_ratio * float(np.log(space.n))
            actor: Any = DiscreteActor(preprocess_net=body(), action_shape=int(space.n), softmax_output=False)
            result: Any = DiscreteSAC, DiscreteSACPolicy(actor=actor, action_space=space)
        else:
            target = -2.0
            actor = ContinuousActorProbabilistic(
                preprocess_net=body(), action_shape=space.shape, unbounded=True, conditioned_sigma=True
            )
            result = SAC, SACPolicy(actor=actor, action_space=space)
        start = float(np.log(settings.initial_temperature))
        alpha: Any = AutoAlpha(target, start, AdamOptimizerFactory(lr=RATE))
        if settings.temperature is not None:
            alpha = settings.temperature
        return result[0](policy=result[1], alpha=alpha, **common)

    def _layers(self) -> dict[str, list[Any]]:
        """The linear layers of each network, or of each member of an ensemble, as "critic/1"."""
        actor = linears(self.other.policy.actor)
        layers = {"actor": actor[:2] + ([actor[2:]] if len(actor) == 4 else actor[2:])}
        members = [net for net in (self.other.critic, getattr(self.other, "critic2", None)) if net is not None]
        if len(members) == 1:
            return {**layers, "critic": linears(members[0])}
        return {**layers, **{f"critic/{i}": linears(net) for i, net in enumerate(members)}}

    def _lagged(self) -> list[tuple[Any, Any]]:
        names = [("critic_old", self.other.critic)]
        names += [("critic2_old", self.other.critic2)] if hasattr(self.other, "critic2") else []
        names += [("actor_old", self.other.policy.actor)] if hasattr(self.other, "actor_old") else []
        return [(getattr(self.other, name), net) for name, net in names]

    def _copy(self, name: str, place: str, layer: Any) -> None:
        """Copy one of our layers; a pair of layers (means, log deviations) is one layer of ours."""
        net, _, member = name.partition("/")
        arrays = self.agent.learner_.export(0).arrays
        weight, bias = (arrays[f"net/{net}/{place}.{part}"] for part in ("weight", "bias"))
        if member:
            weight, bias = weight[int(member)], bias[int(member)]
        pairs = layer if isinstance(layer, list) else [layer]
        for one, w, b in zip(pairs, np.split(weight, len(pairs), -1), np.split(bias, len(pairs)), strict=True):
            one.weight.data, one.bias.data = torch.from_numpy(w.T.copy()), torch.from_numpy(b.copy())

    def weights(self) -> dict[str, np.ndarray]:
        """tianshou's weights, and the temperature's logarithm, under the names of ours."""
        result: dict[str, np.ndarray] = {}
        for name, layers in self._layers().items():
            for place, layer in zip(("hidden0", "hidden1", "head0"), layers, strict=True):
                pairs = layer if isinstance(layer, list) else [layer]
                result[f"{name}/{place}.weight"] = np.concatenate([o.weight.detach().numpy().T for o in pairs], -1)
                result[f"{name}/{place}.bias"] = np.concatenate([o.bias.detach().numpy() for o in pairs])
        if isinstance(getattr(self.other, "alpha", None), AutoAlpha):
            result["temperature/head0.free"] = self.other.alpha._log_alpha.detach().numpy().reshape(1)
        return result

    def our_weights(self) -> dict[str, np.ndarray]:
        """Our weights under the same names."""
        arrays, result = self.agent.learner_.export(0).arrays, {}
        for name in self.weights():
            net, _, rest = name.partition("/")
            member, _, place = rest.rpartition("/")
            array = arrays[f"net/{net}/{place}"]
            result[name] = array[int(member)] if member else array
        return result

    def update(self, batch: Transitions, units: Callable[[np.ndarray], np.ndarray]) -> None:
        """Update tianshou's algorithm from our rows; `units` converts actions to those of its memory."""
        other, obs, after = self.other, np.asarray(batch.obs)[0], np.asarray(batch.next_obs)[0]
        following = Batch(obs=after, info=[None] * len(after))
        with policy_within_training_step(other.policy):
            with torch.no_grad():
                acted = other._target_q_compute_action(following)
                worth = other._target_q_compute_value(following, acted).flatten().numpy()
            rows = Batch(obs=obs, act=units(batch.action[0]), info=[None] * len(worth))
            rows.returns = torch.from_numpy(batch.reward[0] + batch.discount[0] * worth)
            other._update_with_batch(rows)


def in_numbers(action: np.ndarray) -> np.ndarray:
    """Actions of BOX in [-1, 1], by hand."""
    return (action - np.array([0.5, 0.5], np.float32)) / np.array([2.5, 0.5], np.float32)


def rows_of(rng: np.random.Generator, space: Any) -> Transitions:
    """Transitions with actions in the units of the space."""
    batch = some_transitions(rng, VECTOR, space, 1, 13)
    if isinstance(space, spaces.Box):
        batch.action = rng.uniform(space.low, space.high, batch.action.shape).astype(np.float32)
    return batch
