"""QMIX, monotonic value mixing: Rashid et al. 2018 (arXiv:1803.11485)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from marltrain.core.layout import Layout, Space
from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.central_critic import INPUTS
from marltrain.policies.algorithms.mixer import MIXER, MonotonicMixer
from marltrain.policies.algorithms.value_mixing import ValueMixing, ValueMixingSettings
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, CompiledForm
from marltrain.policies.interface.joint import Team
from marltrain.policies.memory.needs import Needs
from marltrain.policies.networks.specs import WIDEST, NetworkDefinition
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class QMIXSettings(ValueMixingSettings):
    """Settings of QMIX."""

    mixing_units: int = setting(32, doc="hidden units of the mixing network", low=1, high=WIDEST)
    hyper_units: int = setting(64, doc="hidden units of the networks that make its weights", low=1, high=WIDEST)
    mixer_gain: float = setting(1.0, doc="gain of the initial weights of the last layer of the latter", above=0)
    mixer_learning_rate: float | Schedule | None = setting(
        None, doc="step size of the mixing network; None: learning_rate", low=0, high=FASTEST, per_row=True
    )
    skip_connection: bool = setting(False, doc="add the sum of the players' values to the mixture")
    mixer_input: str = setting(
        "state", doc="state: the environment's global state (without one: joint); joint: the observations of all "
        "players", choices=("state", "joint"),
    )  # fmt: skip

    @classmethod
    def state_kind(cls, given: Any) -> str | None:
        """Return the kind of state that the mixer reads."""
        asked = given.get("mixer_input", cls.mixer_input)
        return INPUTS.get(asked) if isinstance(asked, str) else None  # the check of settings refuses other values


class Mixing(ValueMixing):
    """Value mixing by a network whose weights the global state gives; none of the weights on values is negative."""

    Settings: ClassVar[type[QMIXSettings]] = QMIXSettings
    shared_settings = (*ValueMixing.shared_settings, "mixer_input", "skip_connection")

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """See `ValueMixing`."""
        self.mixer = MonotonicMixer(settings, gain=settings.mixer_gain, skip=settings.skip_connection)
        super().__init__(settings, layout, action_space)

    def needs(self) -> Needs:
        """Return those of `ValueMixing`, and the global state."""
        return replace(super().needs(), state=self.mixer.need)

    def rate_name(self, network: str) -> str:
        """Return "mixer_learning_rate" for the mixer if it is set, otherwise "learning_rate"."""
        own = network == MIXER and self.settings.mixer_learning_rate is not None
        return "mixer_learning_rate" if own else "learning_rate"

    def team_networks(self) -> dict[str, NetworkDefinition]:
        """Return the mixer."""
        return {MIXER: self.mixer.network()}

    def team_targets(self) -> tuple[str, ...]:
        """Return the name of the mixer, which has a target network."""
        return (MIXER,)

    def mixed(self, ops: Ops, team: Team, values: Any, *, target: bool) -> Any:
        """Return Q_tot, which increases in every q_i; see `MonotonicMixer`."""
        if target:
            return self.mixer.mixed(ops, team.nets[f"target_{MIXER}"], values, team.rows.next_state)
        return self.mixer.mixed(ops, team.nets[MIXER], values, team.rows.state)


class QMIXAlgorithm(Mixing):
    """QMIX: a monotonic mixture of the players' values."""

    name = "qmix"

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting."""
        return self.acting_form()


@dataclass(frozen=True, kw_only=True)
class QMIXArguments(AgentArguments, QMIXSettings):
    """Arguments of `QMIX`."""


class QMIX(LearningAgent):
    """Agent that learns with QMIX, together with its team."""

    algorithm_class = QMIXAlgorithm

    @accepts(QMIXArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
