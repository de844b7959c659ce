"""The parity suite: one algorithm, two frameworks, the same numbers. Losses, metrics, gradients, then 20 updates.

Equal weights and batch give |a - b| <= 1e-5 (1 + |a|); after 20 updates on the same batches weights are within 2e-5.
The long tier makes 50 updates, takes every case, and has an agent pause in each of them that sees no images. It makes
all updates in minibatches; the short tier those of recurrent networks and of the cases with pauses: TensorFlow traces a
graph for each number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.backends.both import BOTH, TENSORFLOW, TORCH
from tests.policies.some_batches import (
    GOALS,
    IMAGE,
    PICTURE_AND_VECTOR,
    VECTOR,
    some_replayed,
    some_rollout,
    with_carries,
    with_states,
)
from tests.tiers import LONG, rounds

UPDATES, RECORDED = rounds(20, 50), 5
CLOSE, AFTER = 1e-5, 2e-5
WHOLE = 64
"""More rows than any batch has."""
Arrays = Mapping[str, np.ndarray]
Pauses = Sequence[tuple[bool, bool]]
EVERYONE, IN_TURN = [(True, True)], [(True, False), (False, True)]
PAUSES = [(True, True), (True, False), (True, True), (False, True), (True, True)]
"""Which of two agents learn from each of the recorded batches."""

DISCRETE, WHEELS, BOX = spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-2, 3, (2,), np.float32)
GREY_FRAMES, COLOR_FRAMES = spaces.Box(0, 255, (4, 9, 8), np.uint8), spaces.Box(0, 255, (2, 9, 8, 3), np.uint8)
CONVOLUTIONS = mt.CNN(hidden=(12,), filters=((4, 3, 2), (4, 2, 1)))
NETWORKS: dict[str, dict[str, Any]] = {
    "tanh": {"space": VECTOR, "network": mt.MLP(hidden=(16, 16))},
    "relu": {"space": VECTOR, "network": mt.MLP(hidden=(16,), activation="relu")},
    "elu": {"space": VECTOR, "network": mt.MLP(hidden=(16,), activation="elu")},
    "silu": {"space": VECTOR, "network": mt.MLP(hidden=(16,), activation="silu")},
    "gelu": {"space": VECTOR, "network": mt.MLP(hidden=(16, 8), activation="gelu")},
    "small": {"space": VECTOR, "network": mt.MLP(hidden=(8,), activation="gelu")},
    "cnn": {"space": IMAGE, "network": CONVOLUTIONS},
    "pixels": {"space": spaces.Box(0, 255, (4, 5), np.uint8), "network": mt.MLP(hidden=(12,))},
    "image and vector": {"space": PICTURE_AND_VECTOR, "network": CONVOLUTIONS},
    "frames": {"space": GREY_FRAMES, "frame_stack": 4, "network": CONVOLUTIONS},
    "color frames": {"space": COLOR_FRAMES, "frame_stack": 2, "network": mt.CNN(hidden=(8,), activation="tanh",
                                                                                 filters=((3, 3, 3),))},
    "own critic": {"space": VECTOR, "network": mt.MLP(hidden=(8,)), "critic_network": mt.MLP(hidden=(12, 6))},
    "goals": {"space": GOALS, "network": mt.MLP(hidden=(16,), activation="tanh")},
    "own critic, goals": {"space": GOALS, "network": mt.MLP(hidden=(8,)), "critic_network": mt.MLP(hidden=(12, 6))},
    "goals and image": {"space": spaces.Dict({**GOALS, "view": IMAGE}), "network": CONVOLUTIONS},
    "gru": {"space": VECTOR, "network": mt.GRU((8,), units=6, sequence_length=3)},
    "lstm": {"space": VECTOR, "network": mt.LSTM((), units=5, sequence_length=3)},
    "gru on images": {"space": IMAGE, "network": mt.GRU((8,), units=6, sequence_length=5, filters=((4, 3, 2),))},
    "dueling": {"space": VECTOR, "network": mt.MLP(hidden=(16, 8)), "dueling": True},
    "dueling cnn": {"space": IMAGE, "network": CONVOLUTIONS, "dueling": True},
}  # fmt: skip

SCHEDULE = mt.linear(3e-3, 1e-4, UPDATES)
PPO: dict[str, dict[str, dict[str, Any]]] = {  # actions -> network -> settings
    "discrete": {
        "tanh": {}, "cnn": {"value_clip": 0.2}, "image and vector": {}, "frames": {"learning_rate": SCHEDULE},
        "own critic": {"critic_learning_rate": 1e-3},
    },
    "masked": {
        "gelu": {"value_clip": 0.1, "learning_rate": SCHEDULE}, "cnn": {"optimizer": "sgd", "learning_rate": 0.05},
        "image and vector": {}, "color frames": {"normalize_advantage": False}, "own critic": {"max_grad_norm": None},
        "small": {"shared_trunk": True, "kl_penalty": 0.5, "epochs": 2, "target_kl": 1.0},
        "gru": {"epochs": 2, "kl_penalty": 0.5}, "gru on images": {"shared_trunk": True},
    },
    "multidiscrete": {
        "silu": {"epochs": 2, "minibatches": 2}, "cnn": {}, "image and vector": {"critic_learning_rate": SCHEDULE},
        "frames": {"optimizer": "rmsprop"}, "own critic": {"value_clip": 0.3, "gae_lambda": 1.0},
    },
    "box": {
        "elu": {"log_std": -0.5}, "cnn": {}, "image and vector": {"value_clip": 0.2}, "color frames": {},
        "own critic": {"optimizer": "sgd", "learning_rate": mt.linear(0.1, 0.01, UPDATES)},
        "tanh": {"policy": "state_gaussian", "normalize_values": "popart", "normalize_returns": True},
        "relu": {"policy": "squashed_gaussian", "normalize_values": "valuenorm", "shared_trunk": True},
    },
}  # fmt: skip
DQN: dict[str, dict[str, dict[str, Any]]] = {
    "discrete": {
        "tanh": {"target_sync": 3}, "elu": {"double": False, "optimizer": "rmsprop"}, "cnn": {"tau": 0.1},
        "image and vector": {"n_step": 3, "learning_rate": SCHEDULE}, "frames": {}, "pixels": {"max_grad_norm": None},
        "dueling": {"tau": 0.05, "n_step": 3}, "dueling cnn": {"target_sync": 7}, "lstm": {"double": False},
    },
    "masked": {
        "relu": {"tau": 0.2, "learning_rate": SCHEDULE}, "gelu": {"optimizer": "sgd", "learning_rate": 0.05},
        "cnn": {"double": False}, "image and vector": {"tau": 0.3, "optimizer": "rmsprop"},
        "color frames": {"target_sync": 4}, "dueling": {"max_grad_norm": 0.5, "n_step": 5}, "silu": {"noisy": 0.5},
        "gru": {"target_sync": 3, "dueling": True},
    },
}  # fmt: skip
A2C: dict[str, dict[str, dict[str, Any]]] = {
    "masked": {"elu": {"minibatches": 2}, "cnn": {"normalize_advantage": True}},
    "box": {"tanh": {"critic_learning_rate": 1e-3}, "lstm": {"critic_network": mt.MLP((8,))}},
}
ACER: dict[str, dict[str, dict[str, Any]]] = {
    "discrete": {"cnn": {"trust_region": None}},
    "masked": {"silu": {"average_decay": 0.8, "trust_region": 0.1, "truncation": 1.5}},
}
TRPO: dict[str, dict[str, dict[str, Any]]] = {
    "masked": {"gelu": {"damping": 0.2}, "cnn": {"minibatches": 2}},
    "multidiscrete": {"elu": {"max_kl": 0.02}},
    "box": {"tanh": {"cg_iterations": 3}},
}
MMD: dict[str, dict[str, dict[str, Any]]] = {
    "masked": {"tanh": {"temperature": SCHEDULE, "step_size": 0.1}}, "multidiscrete": {"elu": {"shared_trunk": True}},
    "discrete": {"gru": {"temperature": 0.2}},
}  # fmt: skip
NFSP: dict[str, dict[str, dict[str, Any]]] = {
    "masked": {"tanh": {"average_learning_rate": SCHEDULE, "dueling": True}}, "discrete": {"cnn": {"tau": 0.1}},
}  # fmt: skip
MAPPO: dict[str, dict[str, dict[str, Any]]] = {
    "masked": {"tanh": {"critic_input": "agent_specific", "state_size": 7}, "cnn": {"state_size": 4}},
    "box": {"relu": {"state_size": 3, "normalize_observations": True, "normalize_values": "popart"}},
    "discrete": {"gru": {"state_size": 3}},
}
COMA: dict[str, dict[str, dict[str, Any]]] = {
    "masked": {"tanh": {"state_size": 7, "joint_action_size": 9, "target_sync": 2, "entropy_coef": 0.01}},
    "discrete": {"cnn": {"critic_input": "state", "state_size": 4, "joint_action_size": 6, "optimizer": "adam"}},
}
SEAC: dict[str, dict[str, dict[str, Any]]] = {"masked": {"tanh": {"shared_coef": 0.5}}}
MAA2C: dict[str, dict[str, dict[str, Any]]] = {"discrete": {"elu": {"critic_input": "joint", "state_size": 6}}}
C51: dict[str, dict[str, dict[str, Any]]] = {
    "discrete": {"tanh": {"double": True, "n_step": 3}, "cnn": {"noisy": 0.5}, "frames": {"atoms": 11}},
    "masked": {"relu": {"target_sync": 3}, "dueling cnn": {"v_min": -3.0, "v_max": 4.0, "tau": 0.1}},
}
RAINBOW: dict[str, dict[str, dict[str, Any]]] = {
    "discrete": {"gelu": {"n_step": 5}, "image and vector": {"tau": 0.1}},
    "masked": {"tanh": {"v_min": -3.0, "v_max": 4.0, "atoms": 7}, "cnn": {"tau": 0.2}},
}
DEFAULTS: dict[Any, dict[str, Any]] = {mt.PPO: {"epochs": 1}, mt.DQN: {"target_sync": 10}, mt.C51: {"target_sync": 10},
                                      mt.Rainbow: {"target_sync": 10}, mt.MAPPO: {"epochs": 1},
                                      mt.NFSP: {"target_sync": 10}, mt.MMD: {"epochs": 1}}  # fmt: skip
DDPG: dict[str, dict[str, dict[str, Any]]] = {
    "box": {
        "tanh": {"tau": 0.1, "learning_rate": SCHEDULE}, "cnn": {"tau": 0.1, "optimizer": "rmsprop"},
        "own critic": {"tau": 0.2, "critic_learning_rate": 1e-3, "n_step": 3, "max_grad_norm": 0.5},
    }
}  # fmt: skip
TD3: dict[str, dict[str, dict[str, Any]]] = {
    "box": {
        "relu": {"tau": 0.1, "policy_delay": 3}, "image and vector": {"tau": 0.1, "n_step": 3},
        "own critic": {"tau": 0.2, "critic_learning_rate": SCHEDULE, "max_grad_norm": 0.5, "target_noise": 0.5},
    }
}  # fmt: skip
SAC: dict[str, dict[str, dict[str, Any]]] = {
    "box": {
        "relu": {"tau": 0.1, "learning_rate": 1e-3, "temperature_learning_rate": 0.01}, "cnn": {"tau": 0.2},
        "own critic": {"tau": 0.2, "temperature": 0.2, "max_grad_norm": 0.5, "n_step": 3},
        "image and vector": {"tau": 0.1, "target_entropy": -1.0, "optimizer": "sgd", "learning_rate": 0.05},
        "gru": {"tau": 0.1},
    },
    "discrete": {"tanh": {"tau": 0.1}, "frames": {"tau": 0.2, "critic_learning_rate": SCHEDULE}},
    "masked": {
        "gelu": {"tau": 0.1, "target_entropy_ratio": 0.5, "temperature_learning_rate": SCHEDULE},
        "own critic": {"tau": 0.2, "temperature": 0.3, "n_step": 3}, "cnn": {"tau": 0.2, "optimizer": "rmsprop"},
        "lstm": {"tau": 0.2}, "gru on images": {"tau": 0.1},
    },
}  # fmt: skip
TRL: dict[str, dict[str, dict[str, Any]]] = {
    "discrete": {
        "goals": {"tau": 0.1, "learning_rate": SCHEDULE},
        "goals and image": {"tau": 0.2, "expectile": 0.9, "extraction": "policy"},
    },
    "masked": {
        "own critic, goals": {"tau": 0.1, "distance_power": 1.0, "extraction": "policy", "bc_coef": 0.3, "gamma": 0.9},
        "goals": {"tau": 0.2, "optimizer": "rmsprop", "max_grad_norm": 0.5},
    },
}  # fmt: skip
ACTIONS = {"discrete": DISCRETE, "masked": DISCRETE, "multidiscrete": WHEELS, "box": BOX}
PAUSING = {"PPO discrete tanh", "PPO box own critic", "DQN discrete elu", "DQN masked relu", "TD3 box relu",
           "Rainbow masked tanh"}  # fmt: skip
"""Where an agent pauses, a second graph: with each optimizer, with targets that follow, with a delayed phase."""
SHORT = {
    "PPO": {"discrete": [], "masked": ["gelu", "cnn", "small", "gru"], "multidiscrete": ["silu"],
            "box": ["own critic", "tanh"]},
    "A2C": {"masked": ["elu"], "box": ["lstm"]},
    "ACER": {"masked": ["silu"]},
    "MAPPO": {"masked": ["tanh"]},
    "MMD": {"masked": ["tanh"]},
    "NFSP": {"masked": ["tanh"]},
    "MAA2C": {"discrete": ["elu"]},
    "COMA": {"masked": ["tanh"]},
    "SEAC": {"masked": ["tanh"]},
    "TRPO": {"masked": [], "multidiscrete": [], "box": ["tanh"]},
    "DQN": {"discrete": ["elu", "image and vector", "dueling cnn"],
            "masked": ["color frames", "silu", "gru"]},
    "C51": {"masked": ["relu"]},
    "Rainbow": {"discrete": [], "masked": ["tanh"]},
    "DDPG": {"box": ["tanh"]},
    "TD3": {"box": ["relu"]},
    "SAC": {"box": ["gru"], "masked": ["gelu"]},
    "TRL": {"masked": ["own critic, goals"]},
}  # fmt: skip
"""Each kind of network, of actions, and of settings once, with PPO or DQN, and the others' losses once each.

Other combinations are long.

An activation or an optimizer is in one of the two: it is the same code. DQN with "tanh" is in the test of signs.
"""
TABLES = {"PPO": PPO, "A2C": A2C, "ACER": ACER, "TRPO": TRPO, "DQN": DQN, "C51": C51, "Rainbow": RAINBOW,
          "DDPG": DDPG, "TD3": TD3, "SAC": SAC, "TRL": TRL, "MMD": MMD, "NFSP": NFSP, "MAPPO": MAPPO, "MAA2C": MAA2C,
          "COMA": COMA, "SEAC": SEAC}  # fmt: skip
CASES = [
    pytest.param((getattr(mt, name), actions, network, settings), id=f"{name} {actions} {network}")
    for name, table in TABLES.items()
    for actions, networks in table.items()
    for network, settings in networks.items()
    if network in SHORT[name].get(actions, ()) or LONG
]


def learner(backend: Any, make: Any, actions: str, network: str, settings: Mapping[str, Any]) -> AlgorithmLearner:
    """Return two agents as one learner; equal seeds, so equal weights."""
    data = {**DEFAULTS.get(make, {}), **NETWORKS[network], **settings}
    agent = make(data.pop("space"), ACTIONS[actions], seed=0, backend=backend.name, **data)
    return AlgorithmLearner(agent.algorithm, backend, [0, 1], draw=True)


def recorded(one: AlgorithmLearner, make: Any, actions: str, network: str, settings: Mapping[str, Any]) -> list[Any]:
    """Return batches of both agents: rollouts of different lengths, or transitions."""
    rng, masked = np.random.default_rng(0), actions == "masked"
    space = Layout(NETWORKS[network]["space"], NETWORKS[network].get("frame_stack", 1))
    if make.algorithm_class.on_policy:
        return [some_rollout(rng, space, ACTIONS[actions], [7, 9], masked=masked) for _ in range(RECORDED)]
    steps = settings.get("n_step", 1)
    return [some_replayed(rng, one.algorithm, 2, 11, n_step=steps, masked=masked) for _ in range(RECORDED)]


def exported(one: AlgorithmLearner, kind: str) -> dict[str, np.ndarray]:
    """Return the arrays of all agents whose names begin with `kind`."""
    agents = [one.export(k).arrays for k in range(one.num_agents)]
    return {name: np.stack([agent[name] for agent in agents]) for name in agents[0] if name.startswith(kind)}


def gradients(one: AlgorithmLearner, before: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the gradients of a learner's first pass, (clipped) as its optimizers took them."""
    slots = exported(one, "optimizer/")
    if kept := {name: array / 0.1 for name, array in slots.items() if name.endswith("first")}:
        return kept
    if squares := {name: np.sqrt(array / 0.01) for name, array in slots.items() if name.endswith("second")}:
        return squares
    rate = one.hyper.get(0, "learning_rate")
    return {
        name: (before[name] - array) / rate for name, array in exported(one, "net/").items() if "target_" not in name
    }


def faultless(learner: AlgorithmLearner) -> None:
    """Leave a learner as it is."""


def run(
    backend: Any, case: Any, pauses: Pauses, rows: int = 5, fault: Callable[[AlgorithmLearner], None] = faultless
) -> tuple[Arrays, Arrays]:
    """Return metrics and gradients of a first pass over all rows, and the weights after all updates.

    Those are in minibatches of at most `rows` rows, of which the agents have different numbers.
    """
    one, rng = learner(backend, *case), np.random.default_rng(9)
    batches = [with_carries(rng, with_states(rng, batch, one), one) for batch in recorded(one, *case)]
    fault(one)
    before = exported(one, "net/")
    first: dict[str, np.ndarray] = {}
    for i in range(UPDATES):
        one.apply_schedules(i)
        metrics = one.update(
            batches[i % RECORDED], learn=np.array(pauses[i % len(pauses)]), batch_size=rows if i else WHOLE
        )
        first = first or {**metrics, **gradients(one, before)}
    after = exported(one, "net/")
    assert all(np.abs(after[name] - array).max() > 1e-4 for name, array in before.items()), "nothing was learned"
    return first, after


def apart(mine: Arrays, theirs: Arrays, relative: float) -> dict[str, float]:
    """Return by how much each array differs at most, over 1 + relative * |a|."""
    assert mine.keys() == theirs.keys()
    assert all((np.isnan(mine[name]) == np.isnan(theirs[name])).all() for name in mine)
    return {name: float(np.nanmax(np.abs(a - theirs[name]) / (1 + relative * np.abs(a)))) for name, a in mine.items()}


def compared(
    second: Any,
    case: Any,
    pauses: Pauses = EVERYONE,
    rows: int = 5,
    fault: Callable[[AlgorithmLearner], None] = faultless,
) -> tuple[dict[str, float], dict[str, float]]:
    """Run a case in torch and on a second backend with a fault; return how far apart the first pass and the end are."""
    return between(run(TORCH, case, pauses, rows), run(second, case, pauses, rows, fault))


def between(one: tuple[Arrays, Arrays], other: tuple[Arrays, Arrays]) -> tuple[dict[str, float], dict[str, float]]:
    """Return how far apart the first pass and the end of two runs are."""
    (start, end), (other_start, other_end) = one, other
    return apart(start, other_start, 1.0), apart(end, other_end, 0.0)


def assert_within(found: Mapping[str, float], limit: float) -> None:
    """Fail with all that is too far apart, the worst first."""
    wrong = {name: far for name, far in sorted(found.items(), key=lambda item: -item[1]) if not far <= limit}
    assert not wrong, wrong


def assert_equal(found: tuple[dict[str, float], dict[str, float]]) -> None:
    """Fail where the first pass or the end is too far apart."""
    assert_within(found[0], CLOSE)
    assert_within(found[1], AFTER)


@pytest.mark.parametrize("case", CASES)
def test_both_frameworks_compute_the_same(case, request):
    images = Layout(NETWORKS[case[2]]["space"]).images
    pausing = request.node.callspec.id in PAUSING or (LONG and not images)
    parts = LONG or pausing or hasattr(NETWORKS[case[2]]["network"], "sequence_length")
    assert_equal(compared(TENSORFLOW, case, PAUSES if pausing else EVERYONE, 5 if parts else WHOLE))


COMPILED = {name: make_backend(name, "cpu", jit_compile=True) for name in BOTH}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's compiler warns of torch's own
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "case", "pauses", "rows"),
    [
        *LONG * [pytest.param("tensorflow", (mt.PPO, "masked", "pixels", {"value_clip": 0.1}), EVERYONE, 5,
                              id="XLA, PPO")],
        pytest.param("tensorflow", (mt.DQN, "masked", "dueling", {"tau": 0.1}), PAUSES, 5, id="XLA, DQN"),
        *LONG * [pytest.param("tensorflow", (mt.DQN, "discrete", "frames", {}), EVERYONE, 5, id="XLA, DQN, frames")],
        # torch.compile makes a graph for all agents, one where some pause, and one for each number of minibatches
        *LONG * [pytest.param("torch", (mt.DQN, "masked", "pixels", {"tau": 0.1}), IN_TURN, 5,
                              id="torch.compile, DQN")],
        *LONG * [pytest.param("torch", (mt.PPO, "masked", "small", {"value_clip": 0.1}), EVERYONE, WHOLE,
                              id="torch.compile, PPO")],
        pytest.param("torch", (mt.PPO, "masked", "tanh", {}), PAUSES, 5, id="numba, PPO"),
    ],
)  # fmt: skip
def test_compiled_passes_compute_the_same(name, case, pauses, rows):
    assert_equal(compared(COMPILED[name], case, pauses, rows))


# Would it be noticed? -------------------------------------------------------------------------------------------------


def test_a_wrong_epsilon_in_adam_is_far_outside():
    """1e-7 where PPO says 1e-5."""

    def fault(learner: AlgorithmLearner) -> None:
        for optimizer in learner.weights.optimizers.values():
            assert optimizer.epsilon == 1e-5
            optimizer.epsilon = 1e-7

    start, end = compared(TENSORFLOW, (mt.PPO, "discrete", "tanh", {}), fault=fault)
    assert_within(start, CLOSE)  # the first gradient is right
    assert max(end.values()) > 10 * AFTER


SIGNS = [
    (TORCH, "absolute", lambda absolute: lambda x: -absolute(x)),
    (TORCH, "linear", lambda linear: lambda x, weight, bias: linear(x, weight, -bias)),
    (TENSORFLOW, "linear", lambda linear: lambda x, weight, bias: linear(x, -weight, bias)),
    (TENSORFLOW, "minimum", lambda minimum: lambda x, y: -minimum(-x, -y)),
]


def test_a_changed_sign_in_one_backend_is_seen(monkeypatch):
    case = (mt.DQN, "discrete", "tanh", DQN["discrete"]["tanh"])
    right = {backend.name: run(backend, case, EVERYONE) for backend in (TORCH, TENSORFLOW)}
    assert_equal(between(*right.values()))
    for backend, operation, turned in SIGNS:
        with monkeypatch.context() as patch:
            patch.setattr(backend.ops, operation, turned(getattr(backend.ops, operation)))
            wrong = run(backend, case, EVERYONE)
        other = TENSORFLOW if backend is TORCH else TORCH
        with pytest.raises(AssertionError):
            assert_equal(between(right[other.name], wrong))
