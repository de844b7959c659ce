"""Masks of legal moves: per player, on some steps only, in observations and infos, declared, and wrong ones."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marltrain as mt
from marltrain.core.errors import EnvError, SpecError
from marltrain.envs import DummyVectorEnv, FrameStack, check_env, make_vector, probe, resolve
from marltrain.envs.population import PopulationVectorEnv, population_of
from tests.envs.driving import act, column
from tests.toys import Inn

NUMBER, THREE, STEER = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32)
FREE, MIDDLE, ENDS = [1, 1, 1], [0, 1, 0], [1, 0, 1]


class Scripted(gymnasium.Env):
    """Four steps; step t (0: the reset) gives the mask infos[t] in its info and seen[t] in its observation."""

    def __init__(self, infos=None, seen=None, space=None, action_space=THREE, metadata=None):
        self.infos, self.seen = infos or {}, seen or {}
        self.observation_space, self.action_space = space or NUMBER, action_space
        self.metadata = metadata or {}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._view()

    def step(self, action):
        self.t += 1
        seen, info = self._view()
        return seen, 0.0, False, self.t == 4, info

    def _view(self):
        number = np.full(1, self.t, np.float32)
        own = {"action_mask": self.seen[self.t]} if self.t in self.seen else {}
        nested = isinstance(self.observation_space, spaces.Dict)
        data = {"action_mask": self.infos[self.t]} if self.t in self.infos else {}
        return {"observation": number, **own} if nested else number, data


PLAIN = spaces.Dict({"observation": NUMBER})
PROMISED = spaces.Dict({"observation": NUMBER, "action_mask": spaces.Box(0, 1, (3,), np.int8)})


def legal_moves(arguments, steps=4, action=1, **kind):
    """Return the legal moves at each step, the last ones at an end; None for a player without masks."""
    with make_vector(Scripted, arguments, 1, **kind) as vector:
        step = vector.reset(0)
        found = [column(vector.spec, step).get("legal", {}).get("player_0")]
        for _ in range(steps):
            step = vector.step(act(vector.spec, player_0=action))
            said = column(vector.spec, step)
            found.append(said.get("final_legal" if step.ended[0] else "legal", {}).get("player_0"))
        return found


@pytest.mark.parametrize("kind", [{}, {"vector": "subproc", "num_workers": 1}], ids=["dummy", "subproc"])
def test_a_step_without_a_mask_in_its_info_allows_every_move(kind):
    expected = [[1], [0, 1, 2], [1], [0, 1, 2], [0, 1, 2]]
    assert legal_moves({"infos": {0: MIDDLE, 2: MIDDLE}}, **kind) == expected
    assert legal_moves({"infos": {0: MIDDLE, 1: None, 2: MIDDLE}}, **kind) == expected  # as in space.sample(mask=None)


@pytest.mark.parametrize("declared", [True, ["player_0"], ("player_0",)])
def test_a_mask_that_first_appears_after_the_reset_is_followed_where_it_is_declared(declared):
    arguments = {"infos": {2: MIDDLE, 4: ENDS}, "metadata": {"action_mask": declared}}
    assert legal_moves(arguments) == [[0, 1, 2], [0, 1, 2], [1], [0, 1, 2], [0, 2]]


def test_an_entry_that_is_none_after_the_reset_announces_masks():
    assert legal_moves({"infos": {0: None, 1: MIDDLE}}, steps=1) == [[0, 1, 2], [1]]


LATE = (
    r"episode 0 \(seed \d+\), step 2: player 'player_0': its {} has an 'action_mask', but it had none after the first "
    r"reset.* declare it in the environment's metadata: 'action_mask': True, or .* \['player_0'\]"
)


@pytest.mark.parametrize(
    "kind",
    [{}, {"on_fault": "restart"}, {"on_fault": None}, {"vector": "subproc", "num_workers": 1, "on_fault": "restart"}],
    ids=["raise", "restart", "default", "subproc"],
)
def test_a_mask_that_first_appears_after_the_reset_is_an_error_under_every_policy_of_faults(kind):
    with pytest.raises(EnvError, match=LATE.format("info")):
        legal_moves({"infos": {2: MIDDLE}}, **kind)


def test_a_mask_in_an_observation_whose_space_has_none_is_followed_or_an_error():
    assert legal_moves({"seen": {0: FREE, 1: MIDDLE}, "space": PLAIN}, steps=2) == [[0, 1, 2], [1], [0, 1, 2]]
    with pytest.raises(EnvError, match=LATE.format("observation")):
        legal_moves({"seen": {2: MIDDLE}, "space": PLAIN})


def test_a_mask_that_first_appears_at_the_end_of_an_episode_is_an_error():
    with pytest.raises(EnvError, match="step 4: player 'player_0': its info has an 'action_mask'"):
        legal_moves({"infos": {4: MIDDLE}})


def test_a_mask_that_the_space_promises_must_be_there_at_every_move_but_not_at_the_end():
    seen = {0: MIDDLE, 1: FREE, 2: [1, 1, 0], 3: FREE}
    assert legal_moves({"seen": seen, "space": PROMISED}) == [[1], [0, 1, 2], [0, 1], [0, 1, 2], [0, 1, 2]]
    said = (
        r"step 1: player 'player_0': its observation has no 'action_mask', which its space promises\. Give one at every"
    )
    with pytest.raises(EnvError, match=said):
        legal_moves({"seen": {0: FREE}, "space": PROMISED})


@pytest.mark.parametrize(
    "mask",
    [MIDDLE, (0, 1, 0), np.array(MIDDLE, bool), np.array(MIDDLE, np.int8), np.array(MIDDLE, np.float64),
     [False, True, False], [0.0, 1.0, -0.0], np.array(MIDDLE, np.uint64)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("where", ["infos", "seen", "promised"])
def test_masks_of_every_dtype_are_read(mask, where):
    space = {"infos": NUMBER, "seen": PLAIN, "promised": PROMISED}[where]
    given = {"infos" if where == "infos" else "seen": {0: mask}, "space": space}
    assert legal_moves(given, steps=0) == [[1]]


WRONG = [
    ([0, 1], r"has shape \(2,\), expected \(3,\): one entry for each action of Discrete\(3\)"),
    ([[0, 1, 0]], r"has shape \(1, 3\), expected \(3,\)"),
    (1, r"has shape \(\), expected \(3,\)"),
    (["0", "1", "0"], "has dtype <U1, expected 0 and 1"),
    ([0, 0.5, 1], "holds 0.5 for action 1, expected 1 for a legal action and 0 for others"),
    ([0, 1, 2], "holds 2 for action 2"),
    ([1, -1, 0], "holds -1 for action 1"),
    ([0, 1, np.nan], "holds nan for action 2"),
    ([-np.inf, 0, -np.inf], "holds -inf for action 0"),  # a mask to add to logits says the opposite
]


@pytest.mark.parametrize(("mask", "said"), WRONG)
@pytest.mark.parametrize("t", [0, 1])
def test_a_wrong_mask_is_an_error(mask, said, t):
    with pytest.raises(EnvError, match=f"step {t}: player 'player_0': 'action_mask' {said}"):
        legal_moves({"infos": {0: FREE, t: mask}})


def test_two_masks_that_differ_are_an_error_and_equal_ones_are_not():
    both = {"infos": {0: MIDDLE, 1: FREE}, "seen": {0: np.array(MIDDLE), 1: MIDDLE}, "space": PROMISED}
    assert legal_moves(both, steps=0) == [[1]]
    said = (
        r"step 1: player 'player_0': the 'action_mask' of its observation allows \[1\] and that of its info \[0, 1, 2\]"
    )
    with pytest.raises(EnvError, match=said):
        legal_moves(both)


def test_only_choices_can_be_masked():
    with pytest.raises(
        SpecError,
        match="player 'player_0' has an action_mask, but only Discrete and MultiDiscrete actions can be masked",
    ):
        probe(Scripted, {"infos": {0: [1]}, "action_space": STEER})
    with pytest.raises(
        EnvError, match="step 1: player 'player_0' has an action_mask, but only Discrete and MultiDiscrete actions"
    ):
        legal_moves({"infos": {1: [1]}, "action_space": STEER}, action=[0.5])
    assert legal_moves({"infos": {0: None}, "action_space": STEER}, steps=1, action=[0.5]) == [None, None]
    assert legal_moves({"metadata": {"action_mask": True}, "action_space": STEER}, steps=1, action=[0.5]) == [None] * 2


@pytest.mark.parametrize(
    ("declared", "space", "said"),
    [
        (
            ["player_1"],
            THREE,
            r"names 'player_1', which is not in possible_agents \['player_0'\]. Did you mean 'player_0'",
        ),
        ("player_0", THREE, "must be True, if all players whose actions are choices have masks .* or a list"),
        (1, THREE, "must be True"),
        (
            ["player_0"],
            STEER,
            "player 'player_0' has an action_mask, but only Discrete and MultiDiscrete actions can be masked",
        ),
    ],
)
def test_a_wrong_declaration_is_an_error(declared, space, said):
    with pytest.raises(SpecError, match=said):
        probe(Scripted, {"metadata": {"action_mask": declared}, "action_space": space})


# Several players


class Guests(ParallelEnv):
    """ann and bob are there from the start, cat joins with step 2; five steps. `masks`: name -> step -> mask."""

    metadata: ClassVar[dict[str, Any]] = {"name": "guests"}

    def __init__(self, masks, bob=THREE, cat=THREE, declared=False):
        self.possible_agents, self.masks = ["ann", "bob", "cat"], masks
        self._acts = {"ann": THREE, "bob": bob, "cat": cat}
        self.metadata = {"name": "guests", "action_mask": declared}  # type: ignore[misc]

    def observation_space(self, agent):
        return NUMBER

    def action_space(self, agent):
        return self._acts[agent]

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, ["ann", "bob"]
        return self._seen(), self._infos()

    def step(self, actions):
        self.t += 1
        names = self.agents = ["ann", "bob", "cat"] if self.t > 1 else ["ann", "bob"]
        over = dict.fromkeys(names, self.t == 5)
        seen, infos = self._seen(), self._infos()
        self.agents = [] if self.t == 5 else names
        return seen, dict.fromkeys(names, 0.0), dict.fromkeys(names, False), over, infos

    def _seen(self):
        return {name: np.full(1, self.t, np.float32) for name in self.agents}

    def _infos(self):
        own = {name: self.masks.get(name, {}).get(self.t) for name in self.agents}
        return {name: {} if mask is None else {"action_mask": mask} for name, mask in own.items()}


ALWAYS = dict.fromkeys(range(6), MIDDLE)


def moves(masks, steps, **arguments):
    vector = DummyVectorEnv(resolve(Guests, {"masks": masks, **arguments}), 1)
    step = vector.reset(0)
    said = [column(vector.spec, step).get("legal", {})]
    for _ in range(steps):
        chosen = {name: options[0] for name, options in said[-1].items()}
        step = vector.step(act(vector.spec, **chosen))
        said.append(column(vector.spec, step).get("legal", {}))
    return vector.spec, said


def test_players_with_equal_spaces_form_one_group_and_those_without_a_mask_have_every_move():
    spec, said = moves({"ann": ALWAYS}, 3)
    assert len(spec.groups) == 1 and spec.groups[0].players == (0, 1, 2)
    assert said == [{"ann": [1], "bob": [0, 1, 2]}] * 2 + [{"ann": [1], "bob": [0, 1, 2], "cat": [0, 1, 2]}] * 2


def test_players_with_other_spaces_have_no_masks():
    spec, said = moves({"ann": ALWAYS}, 3, bob=STEER, cat=spaces.Discrete(4))
    assert [player.masked for player in spec.players] == [True, False, False] and len(spec.groups) == 3
    assert said == [{"ann": [1]}] * 4


def test_a_mask_of_a_player_that_joins_late_is_followed_or_an_error():
    late = {"cat": {2: [0, 0, 1, 1], 3: [1, 0, 0, 0]}}
    expected = [{}, {}, {"cat": [2, 3]}, {"cat": [0]}]
    assert moves(late, 3, cat=spaces.Discrete(4), declared=["cat"])[1] == expected
    assert moves({"ann": ALWAYS, "cat": {2: ENDS}}, 2)[1][2] == {"ann": [1], "bob": [0, 1, 2], "cat": [0, 2]}
    with pytest.raises(
        EnvError, match=r"environment 0 \(Guests\), .* step 2: player 'cat': its info has an 'action_mask'"
    ):
        moves(late, 3, cat=spaces.Discrete(4))


def test_all_discrete_players_can_be_declared_at_once():
    spec, said = moves({"bob": {1: MIDDLE}}, 2, cat=STEER, declared=True)
    assert [player.masked for player in spec.players] == [True, True, False]
    assert said == [
        {"ann": [0, 1, 2], "bob": [0, 1, 2]},
        {"ann": [0, 1, 2], "bob": [1]},
        {"ann": [0, 1, 2], "bob": [0, 1, 2]},
    ]


class Doors(Inn):
    """Inn, whose info holds a mask for `name` from move `t` on."""

    def __init__(self, name, t, declared=False):
        super().__init__()
        self.name, self.first = name, t
        self.metadata = {**self.metadata, "action_mask": declared}  # type: ignore[misc]

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._tell()

    def step(self, action):
        super().step(action)
        self._tell()

    def _tell(self):
        if self.t >= self.first and self.name in self.agents:
            self.infos[self.name] = {"action_mask": [0, 1]}


def test_masks_of_turn_based_players_from_the_start_late_and_undeclared():
    def legal(*arguments):
        vector = DummyVectorEnv(resolve(Doors, dict(zip(("name", "t", "declared"), arguments, strict=False))), 1)
        step, said = vector.reset(0), {}
        for t, (mover, *_) in enumerate(Inn.SCRIPT):
            said[t] = column(vector.spec, step).get("legal", {}).get(mover)
            step = vector.step(act(vector.spec, **{mover: 1}))
        return list(said.values())

    both = [0, 1]
    assert legal("bob", 0) == [both, [1], both, [1], both, both, both, both]  # bob waits at the reset
    assert legal("cat", 2, ["cat"]) == [both, both, both, both, [1], both, [1], both]
    with pytest.raises(EnvError, match="step 4: player 'cat': its info has an 'action_mask'"):
        legal("cat", 2)


# Through the library


def test_stacked_frames_and_populations_keep_the_masks():
    vector = make_vector(FrameStack(Scripted, 2), {"infos": {1: MIDDLE}, "metadata": {"action_mask": True}})
    step = vector.reset(0)
    assert column(vector.spec, step)["legal"] == {"player_0": [0, 1, 2]}
    assert column(vector.spec, vector.step(act(vector.spec)))["legal"] == {"player_0": [1]}
    copies = PopulationVectorEnv(population_of(resolve(Scripted, {"infos": {1: MIDDLE}}), [1, 2]), 1)
    copies.reset(0)
    copies.send(act(copies.spec))
    with pytest.raises(EnvError, match="step 1: player 'player_0': its info has an 'action_mask'"):
        copies.recv()


def test_check_env_reports_a_mask_that_appears_late():
    report = check_env(Scripted, {"infos": {2: MIDDLE}}, strict=False)
    assert not report.ok and any("step 2: " in text and "declare it" in text for text in report.problems)
    assert check_env(Scripted, {"infos": {2: MIDDLE}, "metadata": {"action_mask": True}}).ok


def test_a_trained_team_plays_no_illegal_move_where_only_one_player_is_masked_on_some_steps():
    played: dict[str, set[int]] = {"ann": set(), "bob": set()}

    class Watched(Guests):
        def step(self, actions):
            if self.t in (1, 3):
                for name in played:
                    played[name].add(int(actions[name]))
            return super().step(actions)

    env = {"masks": {"ann": {1: MIDDLE, 3: MIDDLE}}, "declared": ["ann"]}
    agents = mt.make_agents(
        "ppo", Watched, env_args=env, seed=0, update_freq=30, minibatches=1, network=mt.MLP(hidden=(4,))
    )
    settings: dict[str, Any] = {"num_train_envs": 1, "steps_per_train": 90, "test_freq": None, "seed": 0}
    run = mt.DecentralizedTrainer(Watched, env, progress=False, run_dir=False, **settings)
    run.train(agents, [1, 1, 1])
    # bob plays 36 random moves there: one of three is missing with a probability of 3 * (2 / 3)^36 = 1e-6
    assert played == {"ann": {1}, "bob": {0, 1, 2}}
