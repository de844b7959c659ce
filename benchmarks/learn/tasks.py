"""The tasks of the learning table: environments and their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from examples.apples import Apples


@dataclass(frozen=True, eq=False)
class Task:
    """An environment of the table.

    env, env_args: as for `DecentralizedTrainer`.  group: the make target that trains its rows.
    players: number of players whose returns are added; 1: the table shows the mean return of a player.
    scored: pattern of the names of the players whose returns count; in mixed games, those of one team.
    original: the environment of another package that the task's environment equals, on which agents can be tested, too.
    """

    name: str
    title: str
    env: Any
    env_args: Mapping[str, Any] = field(default_factory=dict)
    group: str = "learn"
    players: int = 1
    scored: str = "*"
    original: Any = None

    @property
    def score(self) -> str:
        """The name of the score in the table."""
        players = "a player" if self.scored == "*" else self.scored.replace("*", "i")
        return f"return of {players if self.players == 1 else 'all players'}"


CARTPOLE = Task("cartpole", "CartPole-v1", "gymnasium/CartPole-v1")
ACROBOT = Task("acrobot", "Acrobot-v1", "gymnasium/Acrobot-v1")
PENDULUM = Task("pendulum", "Pendulum-v1", "gymnasium/Pendulum-v1")
CAR = Task("mountaincar", "MountainCar-v0", "gymnasium/MountainCar-v0")
CAR_CONTINUOUS = Task("mountaincar-continuous", "MountainCarContinuous-v0", "gymnasium/MountainCarContinuous-v0")
LANDER = Task("lunarlander", "LunarLander-v3", "gymnasium/LunarLander-v3")
LANDER_CONTINUOUS = Task("lunarlander-continuous", "LunarLanderContinuous-v3", "gymnasium/LunarLanderContinuous-v3")
CHEETAH = Task("halfcheetah", "HalfCheetah-v5", "gymnasium/HalfCheetah-v5", group="learn-mujoco")
HOPPER = Task("hopper", "Hopper-v5", "gymnasium/Hopper-v5", group="learn-mujoco")
SPREAD = Task("spread", "mpe2 simple_spread, discrete actions", "mpe2/simple_spread_v3")
SPREAD_CONTINUOUS = Task(
    "spread-continuous", "mpe2 simple_spread, continuous actions", "mpe2/simple_spread_v3",
    {"continuous_actions": True},
)  # fmt: skip
TOGETHER = Task(
    "together-spread", "simple_spread, native", "marltrain/simple_spread_v3", original="mpe2/simple_spread_v3"
)
TOGETHER_LONG = Task(
    "together-spread-10m", "simple_spread, native, 10M env steps", "marltrain/simple_spread_v3",
    original="mpe2/simple_spread_v3",
)  # fmt: skip
REFERENCE = Task("reference", "simple_reference, native", "marltrain/simple_reference_v3")
SPEAKER = Task("speaker-listener", "simple_speaker_listener, native", "marltrain/simple_speaker_listener_v4")
TAG = Task("tag", "simple_tag, native, return of a pursuer", "marltrain/simple_tag_v3", scored="adversary_*")
ADVERSARY = Task(
    "adversary", "simple_adversary, native, return of a good agent", "marltrain/simple_adversary_v3", scored="agent_*"
)
FORAGING = Task(
    "foraging-8x8", "foraging 8x8-2p-2f-coop, native, sum of players", "marltrain/foraging_v3", {"force_coop": True},
    players=2,
)  # fmt: skip
_LARGE = {"players": 3, "field_size": (10, 10), "max_num_food": 3, "sight": 10}
FORAGING_LARGE = Task(
    "foraging-10x10", "foraging 10x10-3p-3f, native, sum of players", "marltrain/foraging_v3", _LARGE, players=3
)
FORAGING_ONE_HOT = Task(
    "foraging-10x10-one-hot", "foraging 10x10-3p-3f, one-hot observations, native, sum of players",
    "marltrain/foraging_v3", {**_LARGE, "one_hot_observation": True}, players=3,
)  # fmt: skip
FORAGING_FOUR = Task(
    "foraging-15x15", "foraging 15x15-4p-5f, native, sum of players", "marltrain/foraging_v3",
    {"players": 4, "field_size": (15, 15), "max_num_food": 5, "sight": 15}, players=4,
)  # fmt: skip
WAREHOUSE = Task("rware-tiny-2ag", "RWARE tiny-2ag, native, sum of players", "marltrain/rware_v2", players=2)
WAREHOUSE_FOUR = Task(
    "rware-tiny-4ag", "RWARE tiny-4ag, native, sum of players", "marltrain/rware_v2", {"n_agents": 4}, players=4
)
KITCHEN_STEPS, KITCHEN_ENVS = 1_500_000, 32
"""Env steps of training in Overcooked, in whose first half rewards are shaped, and its environments."""
KITCHENS = tuple(
    Task(
        f"overcooked-{layout.replace('_', '-')}", f"Overcooked {layout}, native", "marltrain/overcooked_v1",
        {"layout": layout, "shaping": 1.0, "shaping_steps": KITCHEN_STEPS // 2 // KITCHEN_ENVS},
    )
    for layout in ("cramped_room", "asymm_advantages", "coord_ring", "forced_coord", "counter_circuit")
)  # fmt: skip
MARINES = Task("smax-3m", "SMAX 3m, native", "marltrain/smax_v2", {"scenario": "3m"})
STALKERS = Task("smax-2s3z", "SMAX 2s3z, native", "marltrain/smax_v2", {"scenario": "2s3z"})
OUTNUMBERED = Task("smax-5m-vs-6m", "SMAX 5m_vs_6m, native", "marltrain/smax_v2", {"scenario": "5m_vs_6m"})
APPLES = Task("apples", "examples/apples.py (images)", Apples)

TASKS = (
    CARTPOLE, ACROBOT, PENDULUM, CAR, CAR_CONTINUOUS, LANDER, LANDER_CONTINUOUS, SPREAD, SPREAD_CONTINUOUS, TOGETHER,
    TOGETHER_LONG, REFERENCE, SPEAKER, TAG, ADVERSARY, FORAGING, FORAGING_LARGE, FORAGING_ONE_HOT, FORAGING_FOUR,
    WAREHOUSE, WAREHOUSE_FOUR, *KITCHENS, MARINES, STALKERS, OUTNUMBERED, APPLES, CHEETAH, HOPPER,
)  # fmt: skip
