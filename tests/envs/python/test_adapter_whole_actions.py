"""Actions of MultiBinary spaces and of Boxes of integers: agents choose among the values of each number."""

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import EnvError, SpecError
from marltrain.envs import DummyVectorEnv, probe, resolve
from tests.envs.driving import act, rewards
from tests.gymnasium_toys import Whole

BINARY, LEVERS = spaces.MultiBinary((2, 2)), spaces.Box(np.array([-2, 3]), np.array([1, 4]), dtype=np.int32)
COLORS = spaces.Box(0, 255, (1, 2), np.uint8)


@pytest.mark.parametrize(
    ("space", "sizes", "chosen", "sent"),
    [
        (BINARY, [2, 2, 2, 2], [1, 0, 0, 1], np.array([[1, 0], [0, 1]], np.int8)),
        (LEVERS, [4, 2], [3, 1], np.array([1, 4], np.int32)),  # from -2 and from 3 on
        (COLORS, [256, 256], [255, 7], np.array([[255, 7]], np.uint8)),
        (spaces.Box(0, 4, (2,), np.int64), [5, 5], [4, 2], np.array([4, 2])),
        (spaces.Box(5, 6, (), np.int16), [2], [1], np.array(6, np.int16)),
    ],
)
def test_environments_get_their_own_numbers(space, sizes, chosen, sent):
    result = []

    def build():
        result.append(Whole(space))
        return result[-1]

    vector = DummyVectorEnv(resolve(build), 1)
    (group,) = vector.spec.groups
    assert isinstance(group.action_space, spaces.MultiDiscrete) and group.action_space.shape == space.shape
    assert group.action_space.nvec.reshape(-1).tolist() == sizes
    vector.reset(0)
    step = vector.step(act(vector.spec, player_0=chosen))
    (given,) = result[-1].given
    assert given.dtype == sent.dtype and given.shape == sent.shape and (given == sent).all()
    assert rewards(vector.spec, step) == [sent.sum()]
    with pytest.raises(EnvError, match="is not legal"):
        vector.step(act(vector.spec, player_0=sizes))
    assert mt.check_env(Whole, {"space": space}).ok


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 2**40, (2,), np.int64), r"entry of 1,099,511,627,777 values.*Narrow its bounds"),
        (spaces.Box(-np.inf, np.inf, (2,), np.int64), r"entry of 18,446,744,073,709,551,616 values"),
        (spaces.Text(3), r"action space Text.* is not one of Discrete, MultiDiscrete, MultiBinary and Box"),
    ],
)
def test_actions_with_too_many_values_are_refused(space, message):
    with pytest.raises(SpecError, match=f"player 'player_0': .*{message}"):
        probe(Whole, {"space": space})


@pytest.mark.parametrize("space", [BINARY, LEVERS])
def test_agents_random_agents_and_functions_act_in_the_space(space):
    result = mt.PPO(spaces.Box(0, 9, (1,), np.float32), space, seed=0, network=mt.MLP((4,)))
    assert isinstance(result.action_space, spaces.MultiDiscrete)
    assert space.contains(result.act(np.zeros(1, np.float32)).astype(space.dtype))
    largest = (space.high if isinstance(space, spaces.Box) else np.ones(space.shape, bool)).copy()
    trainer = mt.DecentralizedTrainer(Whole, {"space": space}, num_test_envs=1, seed=0, progress=False, run_dir=False)
    for agent, right in ((mt.FunctionAgent(lambda seen: largest), 4 * largest.sum()), (mt.RandomAgent(), None)):
        (got,) = trainer.test([agent], episodes=1).returns[0]
        assert right is None or got == right
    assert result.act(np.zeros((5, 1), np.float32)).shape == (5, *space.shape)
    assert np.isfinite(trainer.test([result], episodes=1).returns).all()


def test_an_agent_learns_which_bits_pay_and_is_loaded(tmp_path):
    agents = mt.make_agents("ppo", Whole, seed=0, network=mt.MLP((8,)), learning_rate=0.03)
    trainer = mt.DecentralizedTrainer(
        Whole, num_train_envs=8, num_test_envs=1, update_freq=64, steps_per_train=1_024, test_freq=None, seed=0,
        progress=False, run_dir=False,
    )  # fmt: skip
    trainer.train(agents, [1])
    assert trainer.test(agents, episodes=1).returns.tolist() == [[12.0]]  # 3 bits, 4 steps
    mt.save(tmp_path / "agents", agents)
    assert trainer.test(mt.load(tmp_path / "agents"), episodes=1).returns.tolist() == [[12.0]]


def test_demonstrations_of_bits():
    bits = np.array([[1, 0, 1], [0, 1, 1]], np.int8)
    data = mt.Demonstrations.from_arrays(spaces.Box(0, 9, (1,)), spaces.MultiBinary(3), np.zeros((2, 1)), bits == 1)
    assert data.action.dtype == np.int64 and data.action.tolist() == bits.tolist()
