"""The fixed runs of `hashes`, by name: each takes a fraction of a second to a few seconds."""

from __future__ import annotations

from typing import Any

import marltrain as mt
from tests.gymnasium_toys import BitFlipping, Film
from tests.memory_games import Recall
from tests.players_toys import Masked, Wheels
from tests.team_toys import TEAMS, Seats
from tests.toys import Crowd, Identity, Inn, Motley, Relay
from tests.whole.hash_runs import Made, Offline, Resumed, Run, Settings
from tests.whole.resuming import CASES as RESUMED

# What may get another name is written here once, if it is used more than once.
BY_PRIORITY = mt.Replay(prioritized=mt.Prioritized(0.7, mt.linear(0.4, 1.0, 200)))
BY_ERROR = mt.Replay(prioritized=mt.Prioritized(initial="error"))
REPLAYED_ROLLOUTS = mt.Replay(200, prioritized=mt.Prioritized())
RELABELED = mt.Replay(hindsight=mt.Hindsight("future"))
AGED = mt.Replay(window=0.5, half_life=60)

NETWORK = mt.MLP((8,))
GRU, LSTM = (kind((4,), units=5, sequence_length=4) for kind in (mt.GRU, mt.LSTM))
ROLLOUTS: Settings = {"network": NETWORK, "minibatches": 2}
EPOCHS: Settings = {**ROLLOUTS, "epochs": 2}
REPLAY: Settings = {"network": NETWORK, "learning_starts": 40, "batch_size": 16, "update_per_step": 0.1,
                    "capacity": 150}  # fmt: skip
Q: Settings = {**REPLAY, "epsilon": mt.linear(1.0, 0.2, 200), "target_sync": 5}
Q_IN_TIME: Settings = {**Q, "batch_size": 4}
NOISE: Settings = {**REPLAY, "random_steps": 60}
ATOMS: Settings = {**Q, "atoms": 11, "v_min": 0.0, "v_max": 20.0}
MIXED: Settings = {"mixing_units": 4, "hyper_units": 6}

CARTPOLE, PENDULUM, TICTACTOE = "marltrain/CartPole-v1", "marltrain/Pendulum-v1", "marltrain/tictactoe_v3"
SPREAD, TAG, FORAGING = "marltrain/simple_spread_v3", "marltrain/simple_tag_v3", "marltrain/foraging_v3"
SPEAKER, POKER = "marltrain/simple_speaker_listener_v4", "marltrain/leduc_poker_v1"
BOXES: Settings = {"continuous_actions": True}
LONG_CROWD: Settings = {"length": 5}
SUM, MEAN, OVERLAP = {"team_reward": "sum"}, {"team_reward": "mean"}, {"collect": "overlap"}
WORKERS: Settings = {"vector": "subproc", "num_workers": 2}
MASKED = (1, 0, 1)


def bonus(observation: Any, action: Any, reward: Any) -> Any:
    """Return other rewards, [B]."""
    return 0.5 * reward + 0.1 * action


EVERY = {
    "a2c": Run("a2c", CARTPOLE, ROLLOUTS),
    "acer": Run("acer", Identity, {"network": NETWORK, "batch_size": 8, "sequence_length": 5, "capacity": 200}),
    "bc": Run("bc", CARTPOLE, {"network": NETWORK, "update_per_step": 0.1}, imitates=True),
    "c51": Run("c51", CARTPOLE, ATOMS),
    "coma": Run("coma", SPREAD, ROLLOUTS, trainer=MEAN),
    "ddpg": Run("ddpg", PENDULUM, NOISE),
    "dqn": Run("dqn", CARTPOLE, Q),
    "gail": Run("gail", CARTPOLE, EPOCHS, imitates=True),
    "maa2c": Run("maa2c", SPREAD, ROLLOUTS, trainer=MEAN),
    "maddpg": Run("maddpg", SPREAD, NOISE, trainer=MEAN),
    "mappo": Run("mappo", SPREAD, EPOCHS, trainer=MEAN),
    "masac": Run("masac", SPREAD, NOISE, trainer=MEAN),
    "matd3": Run("matd3", SPREAD, NOISE, trainer=MEAN),
    "mmd": Run("mmd", CARTPOLE, EPOCHS),
    "nfsp": Run("nfsp", POKER, {**Q, "reservoir": 50, "eta": 0.5}),
    "ppo": Run("ppo", SPREAD, EPOCHS),
    "qmix": Run("qmix", SPREAD, {**Q, **MIXED}, trainer=SUM),
    "rainbow": Run("rainbow", CARTPOLE, ATOMS),
    "sac": Run("sac", PENDULUM, REPLAY),
    "seac": Run("seac", SPREAD, ROLLOUTS),
    "td3": Run("td3", PENDULUM, NOISE),
    "trl": Run("trl", BitFlipping, {**REPLAY, "epsilon": 0.3}),
    "trpo": Run("trpo", CARTPOLE, EPOCHS),
    "vdac": Run("vdac", SPREAD, {"network": NETWORK, **MIXED}, trainer=SUM),
    "vdn": Run("vdn", SPREAD, Q, trainer=SUM),
    "wqmix": Run("wqmix", SPREAD, {**Q, **MIXED, "central_units": 6}, trainer=SUM),
}
"""Every registered algorithm."""

COMPILED = {
    "ppo, compiled": EVERY["ppo"].having(jit_compile=True),
    "ppo, compiled, cartpole": Run("ppo", CARTPOLE, {**EPOCHS, "jit_compile": True}),
    "ppo, compiled, masked": Run("ppo", SPREAD, {**EPOCHS, "jit_compile": True}, learning=MASKED),
    "ppo, compiled, turns": Run("ppo", TICTACTOE, {**EPOCHS, "jit_compile": True}),
    "mappo, compiled": EVERY["mappo"].having(jit_compile=True),
    "dqn, compiled": EVERY["dqn"].having(jit_compile=True),
    "dqn, compiled, dueling": EVERY["dqn"].having(jit_compile=True, dueling=True),
    "dqn, compiled, n steps, shared memory": Run("dqn", SPREAD, {**Q, "jit_compile": True, "n_step": 3},
                                                 learning=MASKED, trainer={"shared_memory": True}),
    "dqn, compiled, turns": Run("dqn", TICTACTOE, {**Q, "jit_compile": True}, learning=(1, 0)),
    "dqn, compiled, python game": Run("dqn", Relay, {**Q, "jit_compile": True}),
    "vdn, compiled": EVERY["vdn"].having(jit_compile=True),
    "qmix, compiled": EVERY["qmix"].having(jit_compile=True),
    "qmix, compiled, masked": Run("qmix", SPREAD, {**Q, **MIXED, "jit_compile": True}, learning=MASKED, trainer=MEAN),
    "a2c, torch.compile": EVERY["a2c"].having(jit_compile=True),
    "a2c, XLA": EVERY["a2c"].having(jit_compile=True, backend="tensorflow"),
}  # fmt: skip
"""Kernels of numba, and a run with the compiler of each framework."""

TEAM = {
    "qmix, masked": Run("qmix", SPREAD, {**Q, **MIXED}, learning=MASKED, exploring=(1, 1, 0), trainer=MEAN),
    "qmix, deaths": Run("qmix", Crowd, {**Q, **MIXED, "skip_connection": True}, LONG_CROWD, trainer=SUM),
    "qmix, shared": Run("qmix", SPREAD, {**Q, **MIXED, "share": True, "identify": True}, trainer=SUM),
    "qmix, legal moves": Run("qmix", Masked, {**Q, **MIXED}, {"masks": "seen"}, trainer=SUM),
    "qmix, two teams": Run("qmix", Seats, {**Q, **MIXED, "teams": TEAMS}, trainer={"team_reward": TEAMS}),
    "qmix, joint observations": Run("qmix", FORAGING, {**Q, **MIXED, "mixer_input": "joint"}, trainer=SUM),
    "wqmix, optimistic": EVERY["wqmix"].having(weighting="optimistic"),
    "vdn, deaths": Run("vdn", Crowd, Q, LONG_CROWD, trainer=MEAN),
    "vdn, dueling": EVERY["vdn"].having(dueling=True),
    "vdac, deaths": Run("vdac", Crowd, {"network": NETWORK, "mixing": "sum"}, LONG_CROWD, trainer=SUM),
    "mappo, deaths": Run("mappo", Crowd, {**EPOCHS, "critic_input": "agent_specific"}, LONG_CROWD),
    "mappo, turns": Run("mappo", Relay, {**EPOCHS, "critic_input": "joint"}),
    "mappo, shared": EVERY["mappo"].having(share=True, identify=True),
    "coma, turns, legal moves": Run("coma", Relay, ROLLOUTS, trainer=SUM),
    "coma, deaths": Run("coma", Crowd, ROLLOUTS, LONG_CROWD, trainer=SUM),
    "seac, masked": Run("seac", SPREAD, ROLLOUTS, learning=MASKED),
    "maddpg, box": Run("maddpg", SPREAD, NOISE, BOXES, trainer=MEAN),
    "maddpg, deaths": Run("maddpg", Crowd, NOISE, LONG_CROWD),
    "matd3, box": Run("matd3", SPREAD, NOISE, BOXES, learning=MASKED, trainer=MEAN),
    "matd3, kinds of players": Run("matd3", SPEAKER, NOISE),
    "masac, box": Run("masac", SPREAD, REPLAY, BOXES, trainer=MEAN),
    "masac, masked": Run("masac", SPREAD, REPLAY, learning=MASKED),
}

RECURRENT = {
    "ppo, gru": Run("ppo", Recall, {**EPOCHS, "network": GRU}),
    "ppo, lstm, turns": Run("ppo", Relay, {**EPOCHS, "network": LSTM}),
    "mappo, gru": Run("mappo", SPREAD, {**EPOCHS, "network": GRU}, trainer=MEAN),
    "a2c, lstm": Run("a2c", Recall, {**ROLLOUTS, "network": LSTM}),
    "dqn, gru, burn-in": Run("dqn", Recall, {**Q_IN_TIME, "network": GRU, "burn_in": 2}),
    "dqn, lstm": Run("dqn", Recall, {**Q_IN_TIME, "network": LSTM}),
    "sac, gru": Run("sac", PENDULUM, {**REPLAY, "network": GRU, "batch_size": 4}),
    "qmix, gru": Run("qmix", SPREAD, {**Q_IN_TIME, **MIXED, "network": GRU}, learning=MASKED, trainer=SUM),
    "maa2c, gru": Run("maa2c", SPREAD, {**ROLLOUTS, "network": GRU}, trainer=MEAN),
    "vdn, lstm": Run("vdn", SPREAD, {**Q_IN_TIME, "network": LSTM}, trainer=SUM),
}

PLAYERS = {
    "ppo, masked": Run("ppo", SPREAD, EPOCHS, learning=MASKED, exploring=(1, 1, 0)),
    "ppo, shared": Run("ppo", SPREAD, {**EPOCHS, "share": True}, learning=MASKED),
    "ppo, turns": Run("ppo", TICTACTOE, EPOCHS),
    "ppo, turns, legal moves": Run("ppo", Relay, EPOCHS),
    "ppo, turns, arrivals": Run("ppo", Inn, EPOCHS),
    "ppo, deaths": Run("ppo", Crowd, EPOCHS, LONG_CROWD),
    "ppo, wheels": Run("ppo", Wheels, EPOCHS),
    "ppo, mean of the team": Run("ppo", Relay, EPOCHS, trainer=MEAN),
    "ppo, kinds of players": Run("ppo", TAG, EPOCHS),
    "dqn, turns": Run("dqn", TICTACTOE, Q),
    "dqn, turns, legal moves": Run("dqn", Relay, {**Q, "n_step": 2}, learning=MASKED),
    "dqn, cards": Run("dqn", POKER, Q),
    "dqn, turns, arrivals": Run("dqn", Inn, Q),
    "dqn, deaths": Run("dqn", Crowd, Q, LONG_CROWD),
    "dqn, shared": Run("dqn", SPREAD, {**Q, "share": True, "identify": True}, learning=MASKED),
    "sac, legal moves": Run("sac", Relay, REPLAY),
    "ppo and dqn and random moves": Run([("ppo", EPOCHS), ("dqn", Q), "random"], Relay, {}, learning=(1, 1, 0)),
    "pictures and wheels": Run(["ppo", "sac"], Motley, {"batch_size": 8}),
}  # fmt: skip

SETTINGS: dict[str, Made] = {
    "ppo, box": Run("ppo", PENDULUM, EPOCHS),
    "ppo, beta": Run("ppo", PENDULUM, {**EPOCHS, "policy": "beta"}),
    "ppo, squashed": Run("ppo", PENDULUM, {**EPOCHS, "policy": "squashed_gaussian"}),
    "ppo, normalized": Run("ppo", SPREAD, {**EPOCHS, "normalize_observations": True, "normalize_values": "popart",
                                           "normalize_returns": True}),
    "ppo, limits": Run("ppo", CARTPOLE, {**EPOCHS, "target_kl": 0.01, "kl_penalty": 0.5, "value_clip": 0.2,
                                         "shared_trunk": True, "optimizer": "adamw", "weight_decay": 0.01}),
    "ppo, rollouts again": Run("ppo", CARTPOLE, {**EPOCHS, "memory": REPLAYED_ROLLOUTS, "sequence_length": 8}),
    "dqn, n steps": Run("dqn", SPREAD, {**Q, "n_step": 3}, learning=(1, 1, 0), trainer={"shared_memory": True}),
    "dqn, priorities": Run("dqn", SPREAD, {**Q, "memory": BY_PRIORITY, "n_step": 2}, learning=MASKED),
    "dqn, priorities by errors": Run("dqn", CARTPOLE, {**Q, "memory": BY_ERROR}),
    "dqn, aged": Run("dqn", CARTPOLE, {**Q, "memory": AGED}),
    "dqn, hindsight": Run("dqn", BitFlipping, {**Q, "memory": RELABELED}),
    "dqn, noisy, dueling": Run("dqn", CARTPOLE, {**Q, "noisy": 0.5, "dueling": True, "tau": 0.05}),
    "dqn, softmax": Run("dqn", CARTPOLE, {**REPLAY, "exploration": "softmax", "temperature": 0.5}),
    "dqn, own rewards": Run("dqn", CARTPOLE, {**Q, "reward_model": bonus}),
    "dqn, pictures": Run("dqn", mt.FrameStack(Film, 3), {**Q, "network": mt.CNN((8,))}, {"size": 9, "length": 11}),
    "c51, priorities": Run("c51", CARTPOLE, {**ATOMS, "memory": BY_PRIORITY}),
    "sac, discrete": Run("sac", CARTPOLE, {**REPLAY, "n_step": 2}),
    "sac, priorities": Run("sac", PENDULUM, {**REPLAY, "memory": BY_PRIORITY}),
    "td3, correlated noise": Run("td3", PENDULUM, {**NOISE, "exploration": "ornstein_uhlenbeck"}),
    "trl, policy": Run("trl", BitFlipping, {**REPLAY, "extraction": "policy"}),
    "bc, box": Run("bc", PENDULUM, {"network": NETWORK, "update_per_step": 0.1}, imitates=True),
    "sac, offline": Offline("sac", PENDULUM, REPLAY),
    "dqn, offline, tensorflow": Offline("dqn", CARTPOLE, {**Q, "backend": "tensorflow"}),
}  # fmt: skip

PROCESSES = {
    "ppo, overlap": Run("ppo", Identity, EPOCHS, trainer=OVERLAP),
    "dqn, overlap": Run("dqn", Identity, Q, trainer=OVERLAP),
    "mappo, overlap": Run("mappo", SPREAD, EPOCHS, trainer={**MEAN, **OVERLAP}),
    "ppo, overlap, tensorflow": Run("ppo", Identity, {**EPOCHS, "backend": "tensorflow"}, trainer=OVERLAP),
    "ppo, workers": Run("ppo", Identity, EPOCHS, trainer=WORKERS),
    "dqn, workers": Run("dqn", Relay, Q, trainer=WORKERS),
}

FILES = {
    "ppo, files": Run("ppo", CARTPOLE, EPOCHS, export="onnx"),
    "sac, gru, files": Run("sac", PENDULUM, {**REPLAY, "network": GRU, "batch_size": 4}, export="onnx"),
    "dqn, legal moves, files": Run("dqn", TICTACTOE, Q, export="torch"),
    "td3, files, tensorflow": Run("td3", PENDULUM, {**NOISE, "backend": "tensorflow"}, export="saved_model"),
}
"""Policies that are saved, loaded and exported."""

CASES: dict[str, Made] = {
    **EVERY,
    **{f"{name}, tensorflow": run.having(backend="tensorflow") for name, run in (EVERY | TEAM | RECURRENT).items()},
    **COMPILED, **TEAM, **RECURRENT, **PLAYERS, **SETTINGS, **PROCESSES, **FILES,
    **{f"{name} (interrupted and resumed)": Resumed(case) for name, case in RESUMED.items()},
}  # fmt: skip
