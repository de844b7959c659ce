"""CustomAgent: a user's own torch model, trained by the user's own losses and optimizers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from marltrain.config import build, setting
from marltrain.errors import AgentError, SaveError
from marltrain.layout import Array, Layout, Obs, Space, without_mask
from marltrain.policies.agent import action_dtype, action_shape
from marltrain.policies.batch import Acted, AgentState, Batch, Needs, Rollout, Transitions
from marltrain.policies.foreign import ForeignAgent, check_legal, seeded
from marltrain.policies.hyper import Numbers
from marltrain.policies.learner import Pace
from marltrain.policies.memory.choices import Replay, Rollouts, chosen_memory
from marltrain.policies.schedules import Schedule
from marltrain.policies.solo import what_followed
from marltrain.policies.torch_state import packed, unpacked

Loss = Callable[[nn.Module, "LossBatch"], Tensor]


@dataclass(frozen=True, kw_only=True)
class CustomSettings:
    """Settings of `CustomAgent`."""

    gamma: float | Schedule = setting(0.99, doc="discount a decision", above=0, high=1, per_row=True)
    epsilon: float | Schedule = setting(
        0.1, doc="share of random legal actions when exploring (Discrete)", low=0, high=1, per_row=True
    )
    noise: float | Schedule = setting(
        0.1, doc="deviation of the noise when exploring (Box), in halves of a bounded width, else in units",
        low=0, per_row=True,
    )  # fmt: skip
    max_grad_norm: float | None = setting(None, doc="largest gradient norm of a loss; None: not clipped", above=0)
    epochs: int = setting(1, doc="times that each rollout is gone through (on-policy)", low=1)
    minibatches: int | None = setting(None, doc="minibatches an epoch, in place of batch_size (on-policy)", low=1)
    batch_size: int | None = setting(None, doc="rows of a batch", low=1)
    update_freq: int | None = setting(None, doc="env steps between updates", low=1)
    update_per_step: float = setting(1.0, doc="gradient passes an env step (off-policy)", above=0)
    learning_starts: int = setting(0, doc="env steps before the first update (off-policy)", low=0)


@dataclass
class LossBatch:
    """B rows to learn from, as torch tensors on the model's device.

    obs, next_obs: [B, *O] at the decision and at what followed; a mapping where images stand beside other parts.
    legal, next_legal: [B, A] bool, or None where every action is legal.
    action: [B] int64 counted from 0, [B, D] int64, or [B, A] float32 in the environment's units.
    reward: [B], summed and discounted over the steps of the row.
    discount: [B]: what the value of `next_obs` counts: gamma (to the n-th) where it goes on, 0 where it terminated.
    terminated: [B] bool.  weight: [B].
    cut: [B] bool, on-policy only: the next row is not this one's next decision. An epoch of one minibatch has its rows
    in order of time, player by player and environment by environment; smaller minibatches are drawn.
    """

    obs: Any
    legal: Tensor | None
    action: Tensor
    reward: Tensor
    next_obs: Any
    next_legal: Tensor | None
    discount: Tensor
    terminated: Tensor
    weight: Tensor
    cut: Tensor | None

    def rows(self, index: Tensor) -> LossBatch:
        """Return some of the rows."""
        return LossBatch(**{name: _each(lambda x: x[index], value) for name, value in vars(self).items()})


@dataclass
class _Phase:
    """One loss, its optimizer and the parameters that this optimizer steps."""

    name: str
    loss: Loss
    optimizer: torch.optim.Optimizer
    parameters: list[nn.Parameter]


class CustomAgent(ForeignAgent):
    """An agent that trains a `torch.nn.Module` of your own with losses and optimizers of your own.

    model: what `loss_fn` and the acting call. By default `model(obs)` gives [B, A]: scores of the actions, of which the
    best legal one is taken (Discrete; a random legal one with probability `epsilon` when exploring), or the action in
    the environment's units (Box; plus normal noise when exploring, and clipped).
    loss_fn(model, batch: LossBatch) -> a scalar tensor; or a list of such functions, one an optimizer.
    optimizers: a torch optimizer over parameters of the model, or a list of them. The losses run in order; each moves
    only its own optimizer's parameters, and sees the weights that the one before left.
    act_fn(model, obs, legal, explore, rng) -> actions [B, ...] like `LossBatch.action`, in place of the default: obs
    and legal as in a LossBatch, explore [B] bool tensor, rng a numpy Generator.
    after_update(model): called after every gradient pass; a target network inside the model follows here.
    observation_space, action_space: None: those of the seat.
    memory: `Replay(capacity, n_step)` to learn off-policy, or `Rollouts()` to learn each row once.
    settings: those of `CustomSettings`; `agent.hyper.epsilon = 0.1` sets a number later, schedules are taken too.

    Raises AgentError for a model, loss or optimizer that does not fit, ConfigError for a wrong setting.
    """

    def __init__(
        self,
        model: Any,
        loss_fn: Loss | Sequence[Loss],
        optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        act_fn: Callable[..., Any] | None = None,
        after_update: Callable[[nn.Module], Any] | None = None,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        memory: Replay | Rollouts | None = None,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        """Check everything that can be known before the first update."""
        self.model, self.act_fn, self.after_update = _checked_model(model), act_fn, after_update
        self.observation_space, self.action_space, self.seed = observation_space, action_space, seed
        if observation_space is not None:
            self.layout = Layout(without_mask(observation_space)[0])
        self.settings = build(CustomSettings, settings, "CustomAgent")
        self.hyper = Numbers(self.settings, "CustomAgent")
        self.memory: Replay | Rollouts = chosen_memory(memory, (Replay, Rollouts), "CustomAgent")
        self.pace = Pace(**{f.name: getattr(self.settings, f.name) for f in dataclasses.fields(Pace)})
        self._phases = _phases(self.model, loss_fn, optimizers)

    def needs(self) -> Needs:
        """Return what the memory asks for."""
        if isinstance(self.memory, Replay):
            return Needs(on_policy=False, capacity=self.memory.capacity, n_step=self.memory.n_step)
        return Needs(on_policy=True)

    def gamma(self) -> float:
        """Return the discount."""
        return float(self.hyper.gamma)

    def at(self, env_steps: int) -> None:
        """Let the numbers follow their schedules."""
        self.hyper.follow(env_steps)

    # acting

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Decide for Step arrays [B, ...]; raises AgentError for an output of another shape or an illegal action."""
        space = self._seated()[1]
        with seeded(rng), torch.no_grad(), _mode(self.model, training=False):
            if self.act_fn is None:
                action = self._default(space, self._tensor(obs), legal, explore, rng)
            else:
                coin = self._tensor(explore)
                action = _numpy(self.act_fn(self.model, self._tensor(obs), self._tensor(legal), coin, rng))
        expected = (len(turn), *action_shape(space))
        if action.shape != expected:
            raise AgentError(
                f"CustomAgent: act_fn gave actions of shape {action.shape}, expected {expected} for {space}"
            )
        check_legal(legal, action, turn, "CustomAgent", "Let act_fn choose among the legal actions only")
        if isinstance(space, spaces.Box):
            action = np.clip(action, space.low.reshape(-1), space.high.reshape(-1))
        return Acted(action.astype(action_dtype(space)), carry)

    def _default(self, space: Space, obs: Any, legal: Array | None, explore: Array, rng: np.random.Generator) -> Array:
        if not isinstance(space, spaces.Discrete | spaces.Box):
            raise AgentError(f"CustomAgent: actions in {space} have no default: give act_fn=")
        width = int(space.n) if isinstance(space, spaces.Discrete) else int(np.prod(space.shape, dtype=int))
        out = self.model(obs)
        if not isinstance(out, Tensor) or out.shape != (len(explore), width):
            came = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise AgentError(
                f"CustomAgent: model {type(self.model).__name__} gave {came} for {len(explore)} rows, expected shape "
                f"({len(explore)}, {width}) for {space}. Give act_fn= for a model with other outputs"
            )
        values = _numpy(out)
        if isinstance(space, spaces.Discrete):
            coin, choice = rng.random(len(values)), rng.random(values.shape)
            if legal is not None:
                values, choice = np.where(legal, values, -np.inf), np.where(legal, choice, -1.0)
            best, random = values.argmax(1), choice.argmax(1)
            chosen: Array = np.where(explore & (coin < self.hyper.epsilon), random, best)
            return chosen
        half = ((space.high - space.low) / 2).reshape(-1)
        spread = np.where(np.isfinite(half), half, 1.0) * self.hyper.noise
        noisy: Array = values + explore[:, None] * spread * rng.standard_normal(values.shape)
        return noisy

    # learning

    def learn(self, batch: Batch, batch_size: int) -> tuple[dict[str, float], int]:
        """Make one gradient pass over transitions, or epochs x minibatches of a rollout."""
        tensors = self._loss_batch(batch)
        passes = [tensors] if isinstance(batch, Transitions) else self._minibatches(tensors, batch_size)
        measured: list[dict[str, float]] = []
        with _mode(self.model, training=True):
            for part in passes:
                measured.append(self._pass(part))
                if self.after_update is not None:
                    self.after_update(self.model)
        return {name: float(np.mean([m[name] for m in measured])) for name in measured[0]}, len(measured)

    def _minibatches(self, batch: LossBatch, batch_size: int) -> Iterator[LossBatch]:
        rows = len(batch.reward)
        parts = min(rows, self.settings.minibatches or -(-rows // batch_size))
        for _ in range(self.settings.epochs):
            if parts == 1:
                yield batch
                continue
            order = self.learner().rngs("update")[0].permutation(rows)
            for index in np.array_split(order, parts):
                yield batch.rows(self._tensor(index))

    def _pass(self, batch: LossBatch) -> dict[str, float]:
        """Run the phases in order; no gradient reaches a parameter of another phase's optimizer."""
        metrics: dict[str, float] = {}
        for phase in self._phases:
            loss = phase.loss(self.model, batch)
            _check_loss(loss, phase)
            # as named arguments only these get gradients; whatever else the loss touched stays as it is
            grads = torch.autograd.grad(loss, phase.parameters, allow_unused=True)
            if all(grad is None for grad in grads):
                raise AgentError(f"CustomAgent: loss {phase.name!r} depends on none of its optimizer's parameters")
            for parameter, grad in zip(phase.parameters, grads, strict=True):
                parameter.grad = grad
            limit = float("inf") if self.settings.max_grad_norm is None else self.settings.max_grad_norm
            norm = float(nn.utils.clip_grad_norm_(phase.parameters, limit))
            phase.optimizer.step()
            phase.optimizer.zero_grad(set_to_none=True)
            metrics[f"loss/{phase.name}"] = float(loss.detach())
            metrics[f"grad_norm/{phase.name}"] = norm
            metrics[f"grad_norm_clipped/{phase.name}"] = min(norm, limit)
            metrics[f"learning_rate/{phase.name}"] = float(phase.optimizer.param_groups[0]["lr"])
        metrics["loss/total"] = sum(metrics[f"loss/{phase.name}"] for phase in self._phases)
        return metrics

    def _loss_batch(self, batch: Batch) -> LossBatch:
        """Turn row k = 0 of what the reader gave into tensors."""

        def first(value: Any) -> Any:
            return _each(lambda x: x[0], value)

        if isinstance(batch, Transitions):
            followed = first(batch.next_obs), first(batch.next_legal)
        elif isinstance(batch, Rollout):
            followed = what_followed(batch, np.arange(batch.reward.shape[1]))
        else:
            raise TypeError(f"CustomAgent learns from Transitions or a Rollout, got {type(batch).__name__}")
        same = {
            name: first(getattr(batch, name)) for name in ("obs", "legal", "action", "reward", "discount", "weight")
        }
        more = {
            "next_obs": followed[0], "next_legal": followed[1], "terminated": same["discount"] == 0,
            "cut": batch.cut[0] if isinstance(batch, Rollout) else None,
        }  # fmt: skip
        return LossBatch(**{name: self._tensor(value) for name, value in {**same, **more}.items()})

    def _tensor(self, value: Any) -> Any:
        device = next(self.model.parameters()).device
        return _each(lambda x: torch.as_tensor(np.array(x), device=device), value)

    # saving

    def state(self) -> AgentState:
        """Return weights, optimizers and numbers; the code has to be supplied again to load it.

        Supply a function that makes the agent, by the model's class name:
        `marltrain.load(path, supply={"MyModel": make_agent})`.
        """
        arrays: dict[str, Array] = {}
        optimizers = [phase.optimizer.state_dict() for phase in self._phases]
        info = {
            "type": "custom", **self.described(), "model": type(self.model).__name__,
            "weights": packed(dict(self.model.state_dict()), "weights", arrays),
            "optimizers": packed(optimizers, "optimizers", arrays),
            "hyper": self.hyper.describe(), "learner": self.learner().describe(),
        }  # fmt: skip
        return AgentState(info, arrays)

    @classmethod
    def from_state(cls, state: AgentState, supply: Mapping[str, Any], backend: str | None) -> CustomAgent:
        """Make the agent with the supplied function and give it the saved weights, moments, numbers and streams."""
        info, name = state.info, state.info["model"]
        make = supply.get(name)
        if make is None or isinstance(make, ForeignAgent | nn.Module) or not callable(make):
            raise SaveError(
                f"the saved agent trains a model of your own, {name!r}: give supply={{{name!r}: a function that makes "
                f"the CustomAgent}}, got {'nothing' if make is None else type(make).__name__}"
            )
        agent = make()
        if not isinstance(agent, CustomAgent):
            raise SaveError(f"supply[{name!r}] must make a CustomAgent, it made a {type(agent).__name__}")
        optimizers = unpacked(info["optimizers"], state.arrays)
        try:
            agent.model.load_state_dict(unpacked(info["weights"], state.arrays))
            for phase, saved in zip(agent._phases, optimizers, strict=True):
                phase.optimizer.load_state_dict(saved)
        except (RuntimeError, ValueError, KeyError) as error:
            raise SaveError(f"the saved {name} does not fit the one supplied: {error}") from error
        agent.hyper.restore(info["hyper"])
        agent.seed = int(info["learner"]["seed"])
        agent.adopt(info)
        agent.learner().restore(info["learner"])
        return agent


def _checked_model(model: Any) -> nn.Module:
    if isinstance(model, nn.Module):
        if not any(True for _ in model.parameters()):
            raise AgentError(f"CustomAgent: model {type(model).__name__} has no parameters: there is nothing to train")
        return model
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if roots & {"keras", "tensorflow", "tf_keras"}:
        raise AgentError(
            f"CustomAgent: {type(model).__name__} is a Keras model, and the models of CustomAgent are torch ones: give "
            "a torch.nn.Module"
        )
    raise AgentError(f"CustomAgent: model must be a torch.nn.Module, got {type(model).__name__}")


def _phases(model: nn.Module, losses: Any, optimizers: Any) -> list[_Phase]:
    """Pair losses with optimizers; raises AgentError for unequal numbers or an optimizer of foreign parameters."""
    losses = list(losses) if isinstance(losses, list | tuple) else [losses]
    optimizers = list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]
    if len(losses) != len(optimizers) or not losses:
        raise AgentError(f"CustomAgent: {len(losses)} losses and {len(optimizers)} optimizers were given: one each")
    mine = {id(parameter) for parameter in model.parameters()}
    phases: list[_Phase] = []
    for i, (loss, optimizer) in enumerate(zip(losses, optimizers, strict=True)):
        if not callable(loss):
            raise AgentError(f"CustomAgent: loss_fn[{i}] must be a function of (model, batch), got {loss!r}")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise AgentError(f"CustomAgent: optimizers[{i}] must be a torch optimizer, got {type(optimizer).__name__}")
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        strangers = [tuple(p.shape) for p in parameters if id(p) not in mine]
        if strangers:
            raise AgentError(
                f"CustomAgent: optimizers[{i}] ({type(optimizer).__name__}) steps parameters that are not the model's, "
                f"of shapes {strangers}: make it from parameters of this {type(model).__name__}"
            )
        name = "total" if len(losses) == 1 else _loss_name(loss, i, {phase.name for phase in phases})
        phases.append(_Phase(name, loss, optimizer, [p for p in parameters if p.requires_grad]))
    return phases


def _loss_name(loss: Any, i: int, taken: set[str]) -> str:
    """Name a loss after its function, "actor" for `actor_loss`; by its place where that is not telling."""
    name = getattr(loss, "__name__", "").removesuffix("_loss").strip("_")
    return name if name.isidentifier() and name != "total" and name not in taken else f"loss_{i}"


def _check_loss(loss: Any, phase: _Phase) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        came = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise AgentError(f"CustomAgent: loss {phase.name!r} must return a scalar tensor, got {came}")
    if not loss.requires_grad:
        raise AgentError(f"CustomAgent: loss {phase.name!r} depends on no parameter: it has no gradient")


@contextmanager
def _mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a model into training or evaluation mode, and back."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


def _numpy(value: Any) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to an array, or to each array of a mapping; None stays None."""
    if isinstance(value, dict):
        return {name: function(inner) for name, inner in value.items()}
    return None if value is None else function(value)
