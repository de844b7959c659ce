"""Runs that are resumed: what is played, and everything that is left of it. As a program, it resumes a list of them.

`python -m tests.whole.resuming FOLDER CASE ...` goes on with each case in FOLDER/<case> and writes FOLDER/<case>.json.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import marltrain as mt
from marltrain.core.errors import SaveError
from marltrain.storage.checks import counted, of_type
from marltrain.storage.state import State
from marltrain.trainer.seats.by_player import without_seats
from tests.gymnasium_toys import Film
from tests.toys import Crowd, Identity, Motley, Relay

SMALL = mt.MLP(hidden=(8,))


@dataclasses.dataclass
class Case:
    """A run of `steps` env steps, stopped after `at`.

    agents: makes them, or a league.  settings: the trainer's.  again: what may be another when it is resumed.
    """

    env: Any
    agents: Callable[[], Any]
    args: dict[str, Any] = dataclasses.field(default_factory=dict)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    again: dict[str, Any] = dataclasses.field(default_factory=dict)
    learning: tuple[int, ...] | None = (1, 1)
    exploring: tuple[int, ...] | None = None
    test_agents: Callable[[list[mt.Agent]], list[mt.Agent]] | None = None
    rotate: bool = False
    callbacks: Callable[[], list[mt.Callback]] = list
    at: int = 81
    steps: int = 165

    def train(self, folder: Path, steps: int, *, resume: Any = None, callbacks: Any = (), again: bool = False) -> Any:
        """Run to `steps` env steps; return everything that is left."""
        return left(*self.run(folder, steps, resume=resume, callbacks=callbacks, again=again))

    def run(
        self, folder: Path, steps: int, *, resume: Any = None, callbacks: Any = (), again: bool = False
    ) -> tuple[mt.DecentralizedTrainer, list[mt.Agent], dict[str, Any]]:
        """Run to `steps` env steps; return the trainer, the agents and the result."""
        settings = {**self.settings, **(self.again if again else {})}
        trainer = mt.DecentralizedTrainer(
            self.env, self.args, steps_per_train=steps, callbacks=[*self.callbacks(), *callbacks],
            **{
                "num_train_envs": 3, "num_test_envs": 2, "update_freq": 20, "test_freq": 7, "episodes_per_test": 3,
                "batch_size": 8, "seed": 3, "progress": False, "run_dir": None if resume else folder, **settings,
            },
        )  # fmt: skip
        agents = self.agents()
        line_up = None if self.test_agents is None else self.test_agents(agents)
        result = trainer.train(
            agents, self.learning, self.exploring, plot=False, rotate=self.rotate, test_agents=line_up, resume=resume
        )
        return trainer, without_seats(agents), result


def league() -> mt.League:
    """A league whose exploiters begin again before and after the stop."""
    agent = ppo(Relay)[0]
    return mt.League(agent, every_steps=24, size=4, longest=36, present=0.3, members={"random": mt.RandomAgent()})


def left(trainer: mt.DecentralizedTrainer, agents: list[mt.Agent], result: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a run leaves, as JSON values: what is long by its checksum."""
    run = trainer.run
    assert run is not None
    tables = {name: result[name].drop(columns="seconds").to_csv() for name in ("history", "episodes")}
    schedulers = [scheduler.state() for scheduler in run.context.schedulers]
    for state in schedulers:  # a run's end abandons open rows at times of its own
        state.arrays.pop("reader/since", None)
    return {
        **tables,
        "counters": vars(run.counters),
        "metrics": result["reward_metric_stats"],
        "agents": [summary(agent.state()) for agent in agents],
        "learners": [summary(seated.learner.loop_state()) for seated in run.context.seating.learners],
        "memory": summary(run.context.streams.state()),
        "courses": [summary(state) for state in schedulers],
        "carries": summary(run.actors.state()),
        "callbacks": [str(c.state_dict()) for c in trainer.setup.callbacks if not isinstance(c, mt.Checkpoint)],
    }  # fmt: skip


def summary(state: State) -> dict[str, Any]:
    """Return a state with a checksum in each array's place."""
    arrays = {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]
        for name, array in sorted(state.arrays.items())
    }
    return {"info": json.loads(json.dumps(state.info)), "arrays": arrays}


class Switch(mt.Callback):
    """Changes masks and a learning rate at certain batch steps of the whole run, and counts them."""

    def __init__(self, changes: dict[int, Callable[[Any], None]]) -> None:
        self.changes, self.steps = changes, 0

    def on_step(self, moment):
        self.steps += 1
        if self.steps in self.changes:
            self.changes[self.steps](moment.trainer)

    def state_dict(self):
        return {"steps": self.steps, "worst": float("-inf")}

    def load_state_dict(self, state):
        if of_type("worst", state["worst"], float) != float("-inf"):
            raise SaveError(f"worst must be -inf, got {state['worst']!r}")
        self.steps = counted("steps", state["steps"])


class Counting(mt.Agent):
    """An agent of the user's own that learns: it plays the move that paid most so far."""

    def __init__(self) -> None:
        self.sums = np.zeros(3)
        self.told: list[int] = []

    def act(self, observation, legal=None, explore=False):
        return np.full(len(observation), int(self.sums.argmax()))

    def observe(self, batch):
        np.add.at(self.sums, batch.action, batch.reward)

    def update(self, env_steps):
        self.told.append(env_steps)
        self.sums *= 0.9
        return {"best": float(self.sums.max())}

    def state(self):
        return mt.AgentState({"type": "Counting", "told": self.told}, {"sums": self.sums})

    def restore(self, state):
        self.told, self.sums = list(state.info["told"]), state.arrays["sums"].copy()


def ppo(env: Any, args: dict[str, Any] | None = None, algo: str = "ppo", **more: Any) -> list[mt.Agent]:
    """Agents of the smallest size."""
    own = {"epochs": 2, "minibatches": 2}
    return mt.make_agents(algo, env, env_args=args, **{"seed": 1, "network": SMALL, **own, **more})


def dqn(env: Any, args: dict[str, Any] | None = None, algo: str = "dqn", **more: Any) -> list[mt.Agent]:
    """The same, off-policy, with a memory that wraps around and a schedule."""
    own = {"capacity": 60, "n_step": 3, "update_per_step": 0.3, "learning_starts": 30, "target_sync": 7,
           "epsilon": mt.linear(1, 0.1, 140), "batch_size": 16}  # fmt: skip
    return mt.make_agents(algo, env, env_args=args, **{"seed": 1, "network": SMALL, **own, **more})


def rainbow(env: Any) -> list[mt.Agent]:
    """The same with noise of the weights, which acts and updates draw."""
    return dqn(env, algo="rainbow")


def mixed() -> list[mt.Agent]:
    """A learner on-policy, one off-policy, a frozen copy and two strangers."""
    three = {"players": 5}
    return [
        ppo(Identity, three)[0], dqn(Identity, three)[1], mt.FrozenAgent(dqn(Identity, three, epsilon=0.3)[2]),
        mt.RandomAgent(), mt.FunctionAgent(lambda symbol: 1),
    ]  # fmt: skip


def custom() -> list[mt.Agent]:
    """A user's own models."""
    from tests.policies.own import with_torch  # what loads slowly is loaded by those who play it

    return [with_torch.q_agent(3, 3, dropout=0.2), with_torch.actor_critic_agent(3, 3)]


def tianshou() -> list[mt.Agent]:
    """tianshou's, off-policy and on-policy."""
    from tests.policies.agents.tianshou import making

    replaying = mt.OffPolicyAgent(making.dqn(3, 3), memory=mt.Replay(60), update_per_step=0.2)
    return [replaying, mt.OnPolicyAgent(making.discrete_ppo(3, 3))]


def with_alpha() -> list[mt.Agent]:
    """An algorithm of which a part has an optimizer of its own."""
    from tests.policies.agents.tianshou import making

    sac = making.sac(4, mt.make_agents("random", Motley)[1].action_space)
    return [mt.RandomAgent(), mt.OffPolicyAgent(sac, memory=mt.Replay(60), update_per_step=0.2)]


def faster(trainer: mt.DecentralizedTrainer) -> None:
    """Change a number in the middle of a run."""
    trainer.run.context.seating.agents[0].hyper.learning_rate = 0.01  # type: ignore[union-attr]


def masked(learning: list[int], exploring: list[int]) -> Callable[[mt.DecentralizedTrainer], None]:
    """Set the masks in the middle of a run."""

    def change(trainer: mt.DecentralizedTrainer) -> None:
        trainer.learning_mask, trainer.exploration_mask = learning, exploring

    return change


SUBPROC: dict[str, Any] = {"vector": "subproc", "num_workers": 2}
DUMMY: dict[str, Any] = {"vector": "dummy", "num_workers": None}
STACKED = mt.FrameStack(Film, 3)
PENDULUM = "gymnasium/Pendulum-v1"


def replay(algo: str, env: Any, **more: Any) -> list[mt.Agent]:
    """Agents of an off-policy actor-critic algorithm, of the smallest size."""
    own = {"network": SMALL, "learning_starts": 30, "batch_size": 8, "update_per_step": 0.3, "update_freq": None}
    return mt.make_agents(algo, env, **{"seed": 1, **own, **more})


CASES = {
    "ppo": Case(Identity, lambda: ppo(Identity)),
    "ppo after an update": Case(Identity, lambda: ppo(Identity), at=63),
    "ppo normalizes": Case(Relay, lambda: ppo(Relay, normalize_values="popart", normalize_returns=True, target_kl=0.01,
                                              kl_penalty=0.5, shared_trunk=True), learning=(1, 1, 0), at=84),
    "dqn": Case(Identity, lambda: dqn(Identity)),
    "dqn normalizes": Case(Relay, lambda: dqn(Relay, normalize_rewards=True), learning=(1, 0, 1), at=87),
    "sac by turns": Case(Relay, lambda: replay("sac", Relay), learning=(1, 1, 0), at=84),
    "acer and trpo by turns": Case(Relay, lambda: mt.make_agents(
        [("acer", {"batch_size": 9, "sequence_length": 4, "capacity": 60}), ("trpo", {"batch_size": 8}), "ppo"], Relay,
        seed=1, network=SMALL), learning=(1, 1, 0), at=84),
    "td3": Case(PENDULUM, lambda: replay("td3", PENDULUM, exploration="ornstein_uhlenbeck", random_steps=50),
                learning=(1,)),
    "dqn shares memory": Case(Identity, lambda: dqn(Identity), settings={"shared_memory": True, "team_reward": "sum"}),
    "gru by turns": Case(Relay, lambda: ppo(Relay, network=mt.GRU((4,), units=5, sequence_length=3)),
                         learning=(1, 1, 0), at=84),
    "lstm from a memory": Case(Relay, lambda: dqn(Relay, network=mt.LSTM((), units=4, sequence_length=3), n_step=1),
                               learning=(1, 0, 1), at=87),
    "ppo by turns": Case(Relay, lambda: ppo(Relay), learning=(1, 1, 0), at=84),
    "sac with a gru": Case(PENDULUM, lambda: replay("sac", PENDULUM, network=mt.GRU((4,), units=5, sequence_length=3),
                                                    exploration="ornstein_uhlenbeck"), learning=(1,)),
    "dqn by turns": Case(Relay, lambda: dqn(Relay), {"truncate": True}, learning=(1, 0, 1), at=87),
    "mappo": Case(Crowd, lambda: ppo(Crowd, algo="mappo"), {"length": 5}, learning=(1, 1, 0)),
    "mappo by turns": Case(Relay, lambda: ppo(Relay, algo="mappo", critic_input="agent_specific"), learning=(1, 1, 0),
                           at=84),
    "qmix": Case(Crowd, lambda: replay("qmix", Crowd, optimizer="rmsprop"), {"length": 5}, {"team_reward": "sum"},
                 learning=(1, 0, 1), at=63),
    "qmix normalizes": Case(Crowd, lambda: replay("qmix", Crowd, normalize_rewards=True, reward_scale=2.0),
                            {"length": 5}, {"team_reward": "sum"}, learning=(0, 1, 1), at=63),
    "matd3": Case(Crowd, lambda: replay("matd3", Crowd, random_steps=20), {"length": 5}, learning=(1, 0, 1), at=63),
    "ragged": Case(Crowd, lambda: [*ppo(Crowd)[:2], dqn(Crowd)[2]], {"length": 5}, learning=(1, 1, 1)),
    "one agent in two seats": Case(Crowd, lambda: dqn(Crowd, share=True), learning=(1, 0, 1), exploring=(1, 1, 0)),
    "mixed": Case(Identity, mixed, {"players": 5}, learning=(1, 1, 0, 0, 0)),
    "line-up": Case(Identity, lambda: ppo(Identity, share=True),
                    test_agents=lambda agents: [agents[0], mt.FrozenAgent(dqn(Identity)[1])]),
    "boxes and pictures": Case(Motley, lambda: [mt.RandomAgent(), *ppo(Motley)[1:]], learning=(0, 1)),
    "nfsp by turns": Case(Relay, lambda: dqn(Relay, algo="nfsp", eta=0.5, reservoir=12), learning=(1, 0, 1), at=87),
    "noisy": Case(Relay, lambda: rainbow(Relay), learning=(1, 0, 1), at=87),
    "frames": Case(STACKED, lambda: dqn(STACKED, {"size": 9}, network=mt.CNN((8,))), {"size": 9, "length": 11},
                   {"test_freq": 99}, learning=(1,), at=63, steps=120),
    "frames on-policy": Case(STACKED, lambda: ppo(STACKED, {"size": 9}, network=mt.CNN((8,))),
                             {"size": 9, "length": 11}, {"test_freq": 99}, learning=(1,), at=63, steps=120),
    "to workers": Case(Relay, lambda: ppo(Relay), again=SUBPROC, learning=(1, 1, 1)),
    "from workers": Case(Identity, lambda: dqn(Identity), settings=SUBPROC, again=DUMMY),
    "native": Case("marltrain/CartPole-v1", lambda: ppo("marltrain/CartPole-v1"), learning=(1,), again=SUBPROC),
    "gymnasium": Case("gymnasium/CartPole-v1", lambda: dqn("gymnasium/CartPole-v1"), learning=(1,)),
    "masks change": Case(Identity, lambda: ppo(Identity), callbacks=lambda: [
        Switch({11: masked([0, 1], [1, 0]), 27: masked([1, 1], [0, 1]), 34: faster, 41: masked([1, 0], [1, 1])})]),
    "tensorflow": Case(Identity, lambda: [
        *ppo(Identity, backend="tensorflow")[:1], *dqn(Identity, backend="tensorflow")[1:]], at=63, steps=120),
    "league": Case(Relay, league, {}, {"num_train_envs": 6, "test_freq": 14}, learning=None, rotate=True,
                   at=84),
    "agent of one's own": Case(Identity, lambda: [Counting(), *dqn(Identity)[1:]]),
    "custom": Case(Identity, custom),
    "tianshou": Case(Identity, tianshou),
    "tianshou's own optimizer": Case(Motley, with_alpha, learning=(0, 1)),
}  # fmt: skip


def main() -> None:
    """Resume the cases that are named."""
    folder, *names = sys.argv[1:]
    for name in names:
        case, run = CASES[name], Path(folder) / name
        result = case.train(run, case.steps, resume=run, again=True)
        (Path(folder) / f"{name}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
