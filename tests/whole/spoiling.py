"""Wrong values for every argument, and configurations in which 1 to 3 arguments have one."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import marltrain as mt
from tests.toys import Identity
from tests.whole.configurations import BOARD, HELPERS, OURS, VALID, Call, Configuration, command, custom, loss, sgd


class Twice:
    """Compares to everything with an array, and has no truth value, as numpy's arrays."""

    def __eq__(self, other: object) -> Any:
        """Return no truth value."""
        return np.zeros(2, bool)

    __hash__ = None  # type: ignore[assignment]


class Misspelt(mt.Callback):
    """Listens to an event that there is not."""

    def on_updat_end(self, moment: Any) -> None:
        """Never called."""


class Bare(mt.Callback):
    """Takes no moment."""

    def on_step(self) -> None:  # type: ignore[override]
        """Cannot be called."""


LONG = [10**9, 10**12, 1e9]
"""Valid for how long an episode is, which then never ends."""
NUMBERS: list[Any] = [
    *LONG,
    0, 1, 2, -1, 3, 0.5, -0.5, 1e-3, 2.0, np.int64(3), np.int64(0), np.int64(-1), np.int32(1), np.float32(0.5),
    np.float64(2.0), np.float32("nan"), np.float64("inf"), float("nan"), float("inf"), float("-inf"),
    2**63, 10**30, 10**400, -(10**400), 1e39, 1e300, -1e300, 1j, Fraction(1, 2), Decimal("0.5"), np.uint8(2),
]  # fmt: skip
SMALL: list[Any] = [
    0, 1, 2, 3, 5, 7, 20, 64, None, True, False, 0.0, 1e-8, 0.25, 0.5, 1.0, np.int64(3), np.int32(1), np.uint8(2),
    np.float32(0.25), np.float64(1.0), np.True_,
]  # fmt: skip
OTHERS: list[Any] = [
    True, False, np.True_, np.False_, None, "", "three", "1", "0.5", "nan", "None", "torch", "\0", "é" * 500, b"bytes",
    [], [1], [1, 2, 3], (), (1, 2), {}, {"a": 1}, {1}, range(3), object(), object, int, print, len, Path("x"),
    np.zeros(2), np.zeros(()), np.array([]), np.array(2), np.array("a"), np.array([None]), np.ones((2, 2)), Twice(),
    torch.zeros(2), torch.tensor(1), ..., NotImplemented, ValueError("given"), lambda: None, lambda *a: None,
]  # fmt: skip


FUNCTIONS: list[Any] = [
    lambda: None, lambda a: None, lambda a, b: None, lambda a, b, c: None, lambda *, key: None, lambda *a, key: None,
    lambda *a: np.zeros(3), lambda *a: "yes", lambda *a: None, lambda *a: 0.5, lambda *a: float("nan"), lambda *a: [],
    print, 3, "mean",
]  # fmt: skip
WIDTHS: Any = (
    (),
    (0,),
    (-1,),
    (2.0,),
    "four",
    4,
    (np.int64(4),),
    (True,),
    None,
    (10**9,),
    (10**30,),
    [4],
    np.array([4]),
    ((4,),),
    ("4",),
    {4: 4},
    {4},
    (4, None),
    (float("nan"),),
)
FILTERS: Any = (
    (),
    (1,),
    ((1, 2),),
    ((1, 1, 0),),
    3,
    None,
    "abc",
    ((2, 1, 1),),
    (("a", 1, 1),),
    ((1.5, 1, 1),),
    ((1, 1, 10**9),),
)
NETWORKS: list[Any] = [
    *(Call(mt.MLP, {"hidden": hidden}) for hidden in WIDTHS),
    *(Call(mt.CNN, {"filters": filters}) for filters in FILTERS), Call(mt.MLP, {"activation": "rellu"}),
    Call(mt.MLP, {"hiden": (4,)}), mt.MLP, torch.nn.Linear(6, 3), torch.nn.Linear(1, 1), "mlp", [4], (4,),
    lambda: torch.nn.Linear(2, 2), lambda: None, lambda a: None,
]  # fmt: skip
ENDS: list[Any] = [
    (0.5, 0.1, 20), (0.5, -1.0, 20), (-1.0, 0.5, 20), (0.0, 0.5, 20), (0.5, float("nan"), 20), (float("inf"), 0.5, 20),
    ("1", 0, 20), (None, 0.1, 20), (0.5, 0.1, 0), (0.5, 0.1, -3), (0.5, 0.1, 2.5), (0.5, 0.1, "20"), (0.5, 0.1, None),
    (0.5, 0.1, 10**400), (np.float32(0.5), np.float64(0.1), np.int64(20)), (0.5, 1e300, 20), ([0.5], 0.1, 20),
    (0.5, 0.1, True), (0.5, 0.1, float("inf")),
]  # fmt: skip
SCHEDULES: list[Any] = [
    Call(kind, {"start": start, "stop": stop, "steps": steps})
    for kind in (mt.linear, mt.cosine, mt.exponential) for start, stop, steps in ENDS
]  # fmt: skip


def _same() -> Callable[[], Any]:
    """Return a function that gives one and the same environment every time."""
    result = Identity()
    return lambda: result


ENVIRONMENTS: list[Any] = [
    "marltrain/rock_paper_scisors_v1", "rock_paper_scissors_v1", "gymnasium/CartPol-v1", "nowhere:Nothing",
    "tests.toys:Nobody", "tests.toys:", ":", "/", "", Identity(), lambda: None, lambda: 3, lambda n: Identity(),
    lambda: Identity, Call(_same), 3, None, ["x"], mt.MLP, object, "gymnasium/nowhere:CartPole-v1",
]  # fmt: skip
ENV_ARGS: list[Any] = [
    {"num_round": 4}, {"num_rounds": 0}, {"num_rounds": "4"}, {"num_rounds": float("nan")}, {"num_rounds": None},
    {"num_rounds": 10**30}, {"players": 0}, {"players": "two"}, {"length": None}, {"choices": -1},
    {"sutton_barto": True}, {"render_mode": "nothing"}, {3: 4}, {"": 1}, [("num_rounds", 4)], ["num_rounds"],
    "num_rounds=4", 3,
]  # fmt: skip
MASKS: list[Any] = [
    [1], [1, 1, 1], [], [0, 0], [0], [2, 1], [None, 1], ["1", "0"], "10", [float("nan"), 1], [[1, 1]], np.ones(2),
    np.ones((2, 2)), np.ones(3, bool), [True, np.True_], [np.int64(1), 0], {0: 1, 1: 1}, {1, 0}, count(), 1, None,
    [1, [0, 1]], [np.ones(2), np.zeros(2)], (1.0, 0.0), [0, 1], [object(), 1],
]  # fmt: skip
SEATS: list[Any] = [
    [], None, 3, "agents", [3, 4], [None, None], [mt.RandomAgent, mt.RandomAgent], Call(mt.RandomAgent),
    {"player_0": 1}, count(), [Call(mt.RandomAgent)], [Call(mt.RandomAgent), Call(mt.RandomAgent)],
    [Call(mt.RandomAgent)] * 3, np.array([1, 2]), [Call(mt.FunctionAgent, {"function": lambda: 0})] * 2,
    [Call(mt.FunctionAgent, {"function": 3})] * 2, [Call(mt.FrozenAgent, {"agent": 3})] * 2,
    [Call(mt.FrozenAgent, {"agent": Call(mt.RandomAgent)}), Call(mt.RandomAgent)],
    [Call(mt.RandomAgent, {"seed": "x"}), Call(mt.RandomAgent)], [Call(mt.Agent), Call(mt.Agent)],
]  # fmt: skip
CALLBACKS: list[Any] = [
    [3], ["progress"], mt.Callback, [mt.Callback], Call(mt.Callback), [None], None, 3, "callbacks", [Call(Misspelt)],
    [Call(Bare)], [print], [Call(mt.Checkpoint, {"every_steps": 8}), Call(mt.Checkpoint, {"every_steps": 8})],
    [Call(mt.Checkpoint)], [Call(mt.Callback)], [Call(mt.Checkpoint, {"every_step": 8})],
]  # fmt: skip
STRATEGIES: list[Any] = [
    *(Call(mt.DataParallel, {"processes": wrong}) for wrong in (0, -1, 1.5, "2", None, float("nan"), True, [2])),
    "DataParalel", "MirroredStrategy", "", 3, object(), Call(mt.MirroredStrategy, {"replicas": 2}), mt.DataParallel,
]  # fmt: skip
MEMORIES: list[Any] = [
    *(Call(mt.Replay, {"capacity": wrong}) for wrong in (0, -1, 1.5, "40", None, True, 10**12, 10**30, np.int64(40))),
    Call(mt.Replay, {"n_step": 0}), Call(mt.Replay, {"capasity": 3}), mt.Replay, "replay", 3, [], Call(mt.Rollouts),
    mt.Rollouts,
]  # fmt: skip
LINE_UPS: list[Any] = [*SEATS, [Call(mt.RandomAgent), Call(mt.FrozenAgent, {"agent": Call(mt.RandomAgent)})]]

ANY = [*NUMBERS, *OTHERS]
OWN_POOLS: dict[str, list[Any]] = {
    "env": ENVIRONMENTS, "env_args": ENV_ARGS, "learning_mask": MASKS, "exploration_mask": MASKS, "agents": SEATS,
    "test_agents": LINE_UPS, "callbacks": CALLBACKS, "strategy": STRATEGIES, "memory": MEMORIES, "network": NETWORKS,
    "critic_network": NETWORKS, "model": NETWORKS, "name": ["pppo", "PPO", "sac", "", "dqn", "random"],
    "optimizer": ["adm", "Adam", torch.optim.Adam, ""], "backend": ["torc", "jax", "PyTorch"],
    "device": ["cpuu", "cuda:99", "gpu", "tpu", "cpu:-1"], "vector": ["dumy", "Subproc", "ray"],
    "collect": ["overlap", "serail", ""], "on_fault": ["raise", "restart", "restrat", ""],
    "team_reward": ["mean", "summ", lambda: 0, lambda a, b: 0, *FUNCTIONS[-3:]],
    "optimizers": [[], [sgd], "sgd", 0.1, sgd, Call(sgd, {"model": torch.nn.Linear(1, 1)})],
    "loss_fn": [[], [loss, loss], [None], "mse", lambda: 0, lambda model: 0, len],
    "hidden": [(), (0,), (2.5,), "44", (10**9,), [4, 4], (np.int64(4),), (True,)], "activation": ["rellu", "Tanh", ""],
    "resume": ["nowhere", "taken", "taken/below", "run", Path("."), "\0", "", "/proc/1/mem"],
    "run_dir": ["taken", "taken/below", "", "\0", Path("other")],
}  # fmt: skip
"""What a certain argument is given beside the values that any is."""
HOOKS = ("train_fn", "test_fn", "save_best_fn", "save_last_fn", "stop_fn", "reward_metric", "act_fn", "after_update")
WORDS = [
    "", "0", "-1", "1.5", "nan", "inf", "1e400", "x", "None", "True", "[1]", "1000000000", str(10**30), "9" * 5000, "=",
    "linear(1)", "linear(1, 0)", "linear(1, 0, 'x')", "MLP((0,))", "MLP(4)", "CNN()", "MPL((4,))", "MLP(hiden=(4,))",
    "os.remove('x')", "__import__('os')", "(" * 300, "'", "linear(*[1])", "linear(**{})", "mean", "dqn",
    "tests.toys:Identity", "é", "num_round=4", "num_rounds=x", "3",
]  # fmt: skip


def _misspelt(name: str, place: int) -> str:
    """Leave out a letter, write one twice, or swap two."""
    i = place // 3 % len(name)
    return [name[:i] + name[i + 1 :], name[:i] + name[i] + name[i:], name[:i] + name[i : i + 2][::-1] + name[i + 2 :]][
        place % 3
    ]


CONTRADICTIONS: list[dict[str, Any]] = [
    {"vector": "dummy", "num_workers": 2}, {"shared_memory": True}, {"batch_size": 64}, {"update_freq": 1000},
    {"learning_starts": 500}, {"minibatches": 50}, {"exploration_mask": [0, 0], "epsilon": 0.5},
    {"learning_mask": [0, 0]}, {"dueling": True, "network": torch.nn.Linear(1, 1)},
    {"test_agents": [Call(mt.RandomAgent), Call(mt.RandomAgent)]}, {"name": "random", "learning_mask": [1, 1]},
    {"jit_compile": True, "strategy": "DataParallel"}, {"steps_per_train": 4, "update_freq": 64},
    {"n_step": 50, "capacity": 2}, {"resume": "nowhere", "run_dir": "run"}, {"resume": 3}, {"any_threads": np.zeros(2)},
    {"update_per_step": 0.001}, {"capacity": 1}, {"frame_stack": 2}, {"frame_stack": "x"},
    {"env": BOARD, "env_args": None},
]  # fmt: skip
"""Arguments that do not go together, with each other or with the rest."""


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Draw a configuration with 1 to 3 arguments spoilt."""
    result = Configuration(VALID[draw(st.sampled_from(sorted(VALID)))]())
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3)))):
        call, name = draw(st.sampled_from([place for place in result.call.places() if place[1] not in OURS]))
        how = draw(st.integers(0, 11))
        if result.call.function is command:
            _spoil_words(result, how, draw(st.integers(0, 50)), draw(st.sampled_from(WORDS)), call, name)
        elif how == 0:
            wrong = _misspelt(name, draw(st.integers(0, 50)))
            if wrong not in call.arguments and call.function not in HELPERS:
                result.spoilt.append(name)
                result.spoil(call, wrong, call.arguments.pop(name), f"{name} is written {wrong}")
        elif how == 1:
            for name, value in draw(st.sampled_from(CONTRADICTIONS)).items():
                result.spoil(_home(result.call, name), name, value)
        else:
            result.spoil(call, name, draw(st.sampled_from(_pool(name, how))))
    return result


def _pool(name: str, how: int) -> list[Any]:
    if name in HOOKS:
        return FUNCTIONS if how < 9 else [value for value in ANY if not callable(value)]
    if name == "jit_compile":  # true is right, and takes long
        return [0, -1, 2, 0.5, np.int64(3), False, np.False_, None, "yes", [], np.zeros(2), object()]
    if name in ("num_rounds", "length", "players", "choices"):
        return [value for value in ANY if all(value is not long for long in LONG)]
    if name in OWN_POOLS and how < 9:
        return OWN_POOLS[name]
    return SMALL if how < 6 else NUMBERS if how < 8 else SCHEDULES if how < 9 else ANY


def _home(call: Call, name: str) -> Call:
    """Return the call that has such an argument, else the one that makes agents."""
    places = list(call.places())
    at = [place for place, known in places if known == name]
    agents = [place for place, _ in places if place.function in (mt.make_agents, custom)]
    return at[0] if at else agents[0] if agents else call


def _spoil_words(made: Configuration, how: int, place: int, word: str, call: Call, name: str) -> None:
    if how == 0 and name != "env" and (wrong := _misspelt(name.removeprefix("set "), place)) not in call.arguments:
        wrong = f"set {wrong}" if name.startswith("set ") else wrong
        made.spoilt.append(name)
        made.spoil(call, wrong, call.arguments.pop(name), f"{name} is written {wrong}")
    else:
        made.spoil(call, name, word)
