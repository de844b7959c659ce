"""CustomAgent: a custom torch or Keras model, trained with custom losses and optimizers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.encoding import action_dtype, action_shape
from marltrain.core.errors import AgentError, ConfigError, SaveError, error_text
from marltrain.core.layout import Array, Obs, Space, map_tree
from marltrain.core.seeds import MOST_SEED, chosen_seed
from marltrain.core.settings import build, check_function, checked_arguments, setting
from marltrain.core.spaces import action_bounds
from marltrain.policies.agents.agent_learner import what_followed
from marltrain.policies.agents.arguments import AgentSignature, accepts
from marltrain.policies.agents.custom_losses import Loss, LossBatch, named_losses
from marltrain.policies.agents.external import ExternalAgent, check_legal, seeded
from marltrain.policies.backends import check_jit_compile
from marltrain.policies.backends.base import REQUIRE, JitCompile
from marltrain.policies.backends.frameworks import framework_of, makes_models, named
from marltrain.policies.backends.own import OwnModel
from marltrain.policies.batches.batch import Acted, AgentState, Batch, Rollout, Transitions, TripletTransitions
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.hyperparameters.stacked import AgentHyperparameters, StackedHyperparameters
from marltrain.policies.interface.algorithm import MOST_PASSES, MOST_ROWS
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.learner.parallel.model_replicas import ModelSteps, model_steps
from marltrain.policies.memory.config import MOST_STEPS, Replay, Rollouts
from marltrain.policies.memory.needs import Needs
from marltrain.storage.state import State


@dataclass(frozen=True, kw_only=True)
class CustomSettings:
    """Settings of `CustomAgent`."""

    gamma: float | Schedule = setting(0.99, doc="discount per decision", above=0, high=1, per_row=True)
    epsilon: float | Schedule = setting(
        0.1, doc="share of random legal actions when exploring (Discrete)", low=0, high=1, per_row=True
    )
    noise: float | Schedule = setting(
        0.1, doc="standard deviation of exploration noise (Box), in half widths of the bounds, else in units",
        low=0, per_row=True,
    )  # fmt: skip
    max_grad_norm: float | None = setting(None, doc="largest gradient norm of a loss; None: not clipped", above=0)
    epochs: int = setting(1, doc="passes over each rollout (on-policy)", low=1,
                          high=MOST_PASSES)  # fmt: skip
    minibatches: int | None = setting(None, doc="minibatches per epoch, instead of batch_size (on-policy)", low=1)
    batch_size: int | None = setting(None, doc="rows of a batch", low=1, high=MOST_ROWS)
    update_freq: int | None = setting(None, doc="env steps between updates", low=1, high=MOST_STEPS)
    update_per_step: float = setting(1.0, doc="gradient steps per env step (off-policy)", above=0,
                                     high=MOST_PASSES)  # fmt: skip
    learning_starts: int = setting(0, doc="env steps before the first update (off-policy)", low=0)


@dataclass(frozen=True)
class CustomArguments(CustomSettings):
    """Arguments of `CustomAgent`, for type checkers and signatures."""

    model: Any
    loss_fn: Loss | Sequence[Loss] | Mapping[str, Loss]
    optimizers: Any
    _: KW_ONLY
    act_fn: Callable[..., Any] | None = None
    after_update: Callable[[Any], Any] | None = None
    observation_space: Space | None = None
    action_space: Space | None = None
    memory: Replay | Rollouts | None = None
    seed: int | None = None
    jit_compile: bool = False
    strategy: Any = None


class CustomAgent(ExternalAgent):
    """Agent that trains a custom `torch.nn.Module` or `keras.Model` with custom losses and optimizers.

    model: the model that `loss_fn` and acting call. By default `model(obs)` returns [B, A].
        For Discrete actions the outputs are scores. The agent takes the best legal action, or, when exploring, a random
        legal action with probability `epsilon`. For Box actions the outputs are the action in the environment's units.
        When exploring, normal noise is added. The action is clipped to the bounds.
    loss_fn: function (model, batch: LossBatch) -> scalar tensor; or a list of such functions, one per optimizer; or a
        mapping name -> function. With a prioritized memory, one of them returns (scalar, the rows' errors [B]); the
        losses of rows must be multiplied by `batch.weight`.
    optimizers: a torch optimizer over parameters of the model, or a Keras optimizer; or a list of them; or a mapping
        with the names of the losses. The losses run in the order of `loss_fn`. Each updates only the variables of its
        own optimizer and uses the weights updated by the previous loss.
        A Keras optimizer updates the variables that it was built for, or those of a pair (optimizer, variables). A
        single Keras optimizer updates all variables.
        In mappings, a name may refer to a part of the model (`model.actor`, `model["actor"]` of a ModuleDict, or a
        layer with this name). A Keras optimizer without variables then updates the weights of that part. A torch
        optimizer must update some of its weights, and none that belong only to another named part. Any other name is
        a label.
    act_fn: function (model, obs, legal, explore, rng) -> actions [B, ...] in the format of `LossBatch.action`; replaces
        the default acting. obs and legal are as in a LossBatch, explore is a [B] bool tensor, rng a numpy Generator.
    after_update: function (model), called after every gradient pass, for example to update a target network.
    observation_space, action_space: None: the spaces of the seat.
    memory: `Replay(capacity, n_step)` to learn off-policy, or `Rollouts()` to learn on-policy from each row once.
    jit_compile: compile the gradient passes of a Keras model with XLA.
    strategy: distribution of the gradient passes over devices or processes, see `LearningAgent`. The losses must be
        means over rows. The processes get copies of the model, so that losses and `after_update` may use no other one.
    settings: settings of `CustomSettings`. `agent.hyper.epsilon = 0.1` sets a hyperparameter later, to a value or a
        schedule.

    A torch module is in training mode in its losses and in evaluation mode when it acts. The default acting calls a
    Keras model with `training=False`; `loss_fn` and `act_fn` must pass `training` themselves. The losses of a Keras
    model are traced as graphs. The weight regularizers of the variables of a loss are added to that loss, so `loss_fn`
    must not add `model.losses`.
    Raises AgentError for an unsuitable model, loss or optimizer, ConfigError for a wrong setting.
    """

    __signature__: ClassVar[AgentSignature] = AgentSignature(CustomArguments, lambda kind: CustomSettings)

    @accepts(CustomArguments)
    @checked_arguments
    def __init__(
        self,
        model: Any,
        loss_fn: Loss | Sequence[Loss] | Mapping[str, Loss],
        optimizers: Any,
        *,
        act_fn: Callable[..., Any] | None = None,
        after_update: Callable[[Any], Any] | None = None,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        memory: Replay | Rollouts | None = None,
        seed: int | None = None,
        jit_compile: JitCompile = False,
        strategy: Any = None,
        **settings: Any,
    ) -> None:
        """Check all arguments that can be checked before the first update."""
        for name, function, arguments in (
            ("act_fn", act_fn, ("model", "obs", "legal", "explore", "rng")), ("after_update", after_update, ("model",)),
        ):  # fmt: skip
            if function is not None:
                check_function(f"CustomAgent: {name}", function, *arguments)
        check_jit_compile("CustomAgent: ", jit_compile)
        if jit_compile == REQUIRE:
            raise ConfigError(
                f"CustomAgent: jit_compile={REQUIRE!r} allows only gradient steps by marltrain's own compiled code, "
                "and the framework computes those of a model of your own: leave it out, or give True for a Keras model"
            )
        self.act_fn, self.after_update = act_fn, after_update
        self._set_spaces(observation_space, action_space)
        self.seed = None if seed is None else chosen_seed(seed, "CustomAgent")
        self.settings = build(
            CustomSettings, settings, "CustomAgent", [f.name for f in dataclasses.fields(CustomArguments)]
        )
        self._hyper = StackedHyperparameters(self.settings, "CustomAgent")
        self._remember(memory, (Replay, Rollouts))
        values = dataclasses.asdict(self.settings)
        self.update_schedule = UpdateSchedule(
            **{f.name: values[f.name] for f in dataclasses.fields(UpdateSchedule) if f.name in values}
        )
        self.own: OwnModel = _own_type(model)(
            model, named_losses(loss_fn, optimizers), optimizers,
            batch_type=LossBatch, max_grad_norm=self.settings.max_grad_norm, jit_compile=bool(jit_compile),
        )  # fmt: skip
        self.framework, self._by_name = self.own.framework, isinstance(optimizers, Mapping)
        self._steps = model_steps(self.own, after_update, strategy, self.replay)

    def _phases(self) -> list[str] | None:
        """Return the loss names of a mapping, in order; None if the losses were not given as a mapping."""
        return [phase.name for phase in self.own.phases] if self._by_name else None

    def _marks(self) -> list[str]:
        return [type(self.model).__name__, *super()._marks()]

    @property
    def model(self) -> Any:
        """The custom model."""
        return self.own.model

    @property
    def hyper(self) -> Any:
        """The settings; hyperparameters may be set at any time."""
        return AgentHyperparameters(self._hyper, 0, self._hyper.set)

    def frozen_copy(self) -> CustomAgent:
        """Return an independent copy with the current weights."""
        own = self.own.frozen()
        steps = ModelSteps(own, self.after_update)
        return copy.deepcopy(self, {id(self.own): own, id(self.model): own.model, id(self._steps): steps})

    def needs(self) -> Needs:
        """Return the `Needs` of `memory`."""
        return Needs.of(self.replay) if isinstance(self.replay, Replay) else Needs(on_policy=True)

    def gamma(self) -> float:
        """Return the current discount."""
        return float(self.hyper.gamma)

    def apply_schedules(self, env_steps: int) -> None:
        """Set all scheduled hyperparameters to their values after `env_steps` env steps."""
        super().apply_schedules(env_steps)
        self._hyper.apply_schedules(env_steps)

    # acting

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Choose actions for Step arrays [B, ...]; raises AgentError for a wrong output shape or an illegal action."""
        space, own = self._seated()[1], self.own
        with seeded(self.framework, rng), own.acting():
            if self.act_fn is None:
                action = self._default(space, own.tensors(obs), legal, explore, rng)
            else:
                action = own.numpy(
                    self.act_fn(self.model, own.tensors(obs), own.tensors(legal), own.tensors(explore), rng)
                )
        expected = (len(turn), *action_shape(space))
        if action.shape != expected:
            raise AgentError(
                f"CustomAgent: act_fn returned actions of shape {action.shape}, expected {expected} for {space}"
            )
        check_legal(space, legal, action, turn, "CustomAgent", "Let act_fn choose among the legal actions only")
        if isinstance(space, spaces.Box):
            action = np.clip(action.astype(np.float32), *action_bounds(space))
        return Acted(action.astype(action_dtype(space)), carry)

    def _default(self, space: Space, obs: Any, legal: Array | None, explore: Array, rng: np.random.Generator) -> Array:
        if not isinstance(space, spaces.Discrete | spaces.Box):
            raise AgentError(f"CustomAgent: actions in {space} have no default: give act_fn=")
        width = int(space.n) if isinstance(space, spaces.Discrete) else int(np.prod(space.shape, dtype=int))
        try:
            out = self.own.outputs(obs)
        except Exception as error:
            seen = {name: tuple(part.shape) for name, part in (obs if isinstance(obs, dict) else {"obs": obs}).items()}
            raise AgentError(
                f"CustomAgent: model {type(self.model).__name__} raised for observations of shape {seen}: "
                f"{error_text(error)}"
            ) from error
        if not isinstance(out, np.ndarray) or out.shape != (len(explore), width):
            came = f"shape {out.shape}" if isinstance(out, np.ndarray) else f"a {type(out).__name__}"
            raise AgentError(
                f"CustomAgent: model {type(self.model).__name__} returned {came} for {len(explore)} rows, expected "
                f"shape ({len(explore)}, {width}) for {space}. Give act_fn= for a model with other outputs"
            )
        values: Array = out
        if isinstance(space, spaces.Discrete):
            chance, choice = rng.random(len(values)), rng.random(values.shape)
            if legal is not None:
                values, choice = np.where(legal, values, -np.inf), np.where(legal, choice, -1.0)
            best, random = values.argmax(1), choice.argmax(1)
            return np.where(explore & (chance < self.hyper.epsilon), random, best)
        half = ((space.high - space.low) / 2).reshape(-1)
        spread = np.where(np.isfinite(half), half, 1.0) * self.hyper.noise
        return values + explore[:, None] * spread * rng.standard_normal(values.shape)

    # learning

    def learn(self, batch: Batch, batch_size: int) -> tuple[dict[str, float], int]:
        """Make one gradient pass over transitions, or epochs x minibatches over a rollout; see `ExternalAgent`."""
        columns = self._columns(batch)
        passes = iter([columns]) if isinstance(batch, Transitions) else self._minibatches(columns, batch_size)
        measured: list[dict[str, float]] = []
        self._steps.begin()
        with self.own.learning():
            measured.extend(map(self._steps.step, passes))
        self._steps.end(finite=bool(np.isfinite([list(metrics.values()) for metrics in measured]).all()))
        if isinstance(batch, Transitions) and batch.rows is not None:
            batch.errors = self._errors(len(batch.rows[0]))[None]
        return {name: float(np.mean([m[name] for m in measured])) for name in measured[0]}, len(measured)

    def _errors(self, rows: int) -> Array:
        """Return the rows' errors [B] of the last gradient pass; raises AgentError if no loss gave them."""
        errors = self.own.errors
        if errors is None or errors.shape != (rows,):
            came = "no loss returned any" if errors is None else f"they have shape {errors.shape}"
            raise AgentError(
                f"CustomAgent: a prioritized memory needs the sizes of the {rows} rows' errors, and {came}: return "
                f"(loss, errors) from one loss_fn, errors of shape ({rows},), such as the absolute temporal-difference "
                "errors. Multiply the rows' losses by batch.weight, the importance weights"
            )
        return errors

    def _minibatches(self, columns: dict[str, Any], batch_size: int) -> Iterator[dict[str, Any]]:
        rows = len(columns["reward"])
        parts = min(rows, self.settings.minibatches or -(-rows // batch_size))
        for _ in range(self.settings.epochs):
            if parts == 1:
                yield columns
                continue
            order = self.learner().rngs("update")[0].permutation(rows)
            for index in np.array_split(order, parts):
                yield {name: map_tree(itemgetter(index), value) for name, value in columns.items()}

    def close(self) -> None:
        """See `ExternalAgent`."""
        self._steps.close()

    def _columns(self, batch: Batch) -> dict[str, Any]:
        """Return agent 0 of the reader's batch as the arrays of a LossBatch."""

        def first(value: Any) -> Any:
            return map_tree(lambda x: x[0], value)

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
            "triplets": first({name: getattr(batch, name) for name in TripletTransitions.added})
            if isinstance(batch, TripletTransitions) else None,
        }  # fmt: skip
        return {**same, **more}

    # saving

    def state(self) -> AgentState:
        """Return weights, optimizer states, hyperparameters and random streams, without code.

        To load the agent, give a function that makes it under the model's class name:
        `marltrain.load(path, custom_objects={"MyModel": make_agent})`.
        """
        arrays: dict[str, Array] = {}
        hyper = self._hyper.export(0)
        info = {
            "type": "custom", **self.described(), "model": type(self.model).__name__, "backend": self.framework,
            "structure": self.own.structure(), "phases": self._phases(),
            **self.own.state(arrays), "hyper": {"values": hyper["hyper"], "schedules": hyper["schedules"]},
            "learner": self.learner().describe(),
        }  # fmt: skip
        return AgentState(info, arrays)

    @classmethod
    def from_state(cls, state: AgentState, custom_objects: Mapping[str, Any], backend: str | None) -> CustomAgent:
        """Make the agent with the supplied function, then restore its state; raises SaveError if they do not match."""
        info, name = state.info, state.info["model"]
        make = custom_objects.get(name)
        if make is None or not makes_models(make):
            raise SaveError(
                f"the saved agent trains a model of your own, {name!r}: give custom_objects={{{name!r}: a function "
                f"that makes the CustomAgent}}, got {'nothing' if make is None else type(make).__name__}"
            )
        agent = make()
        if not isinstance(agent, CustomAgent):
            raise SaveError(f"custom_objects[{name!r}] must make a CustomAgent, it made a {type(agent).__name__}")
        if agent.framework != (saved := info.get("backend", "torch")):
            raise SaveError(f"the saved {name} is a model of {saved}, the one supplied is one of {agent.framework}")
        agent.restore(state)
        return agent

    def restore(self, state: AgentState) -> None:
        """Restore the state that `state` returned; raises SaveError for another model or other optimizers."""
        info = state.info
        if info.get("phases") not in (None, self._phases()):
            raise SaveError(
                f"the saved {info['model']} has losses of the names {info['phases']}, the one supplied has "
                f"{self._phases()}: make it with the same names in the same order"
            )
        try:
            self.own.load(info, state.arrays)
        except (RuntimeError, ValueError, KeyError) as error:
            raise SaveError(f"the saved {info['model']} does not fit the one supplied: {error}") from error
        hyper = state.value("hyper", dict)
        self._hyper.load(0, State({"hyper": hyper["values"], "schedules": hyper["schedules"]}, name=state.name))
        self.seed = state.part("learner").count("seed", high=MOST_SEED)
        self.adopt(info)
        self.learner().restore(state.part("learner"))


def _own_type(model: Any) -> Any:
    """Return the `OwnModel` class of the model's framework; raises AgentError for a model of another framework."""
    framework = framework_of(model)
    known_by = {"torch": "parameters", "tensorflow": "trainable_variables"}.get(framework or "", "")
    if framework is None or not callable(model) or not hasattr(model, known_by):
        raise AgentError(
            f"CustomAgent: model must be a torch.nn.Module, or a keras.Model of Keras 3, got {named(model)}"
        )
    return import_module(f"marltrain.policies.backends.{framework}.models").OwnModel
