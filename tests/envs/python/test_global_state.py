"""The global state is that of the outermost layer that defines `state()`."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper, OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec

from marltrain.core.errors import EnvError
from marltrain.envs import DummyVectorEnv, probe
from marltrain.envs.python.global_state import state_method
from tests.envs.driving import act
from tests.gymnasium_toys import Film
from tests.toys import Crowd, Identity, Relay


class Position(Identity):
    """An attribute `state` of another meaning."""

    render_mode = None
    state: Any = None

    def reset(self, seed=None, options=None):
        self.state = np.zeros(3)
        return super().reset(seed=seed)


class Told(BaseParallelWrapper):
    def state(self):
        return np.array([[1, 2], [3, 4]], np.int16)


class Tenfold(BaseParallelWrapper):
    def state(self):
        return 10 * self.env.state()


class Stated(Film):
    def state(self):
        return np.array([self.t, 7.0])


class Shifted(gymnasium.Wrapper):
    def state(self):
        return self.get_wrapper_attr("unwrapped").state() + 1


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Told(Position()), [1, 2, 3, 4]),
        (lambda: BaseParallelWrapper(Told(BaseParallelWrapper(Position()))), [1, 2, 3, 4]),
        (lambda: parallel_to_aec(Told(Position())), [1, 2, 3, 4]),
        (Stated, [0, 7]),
        (lambda: TimeLimit(Stated(), 9), [0, 7]),  # Gymnasium's wrappers forward no attributes
        (lambda: TimeLimit(Shifted(TimeLimit(Stated(), 9)), 9), [1, 8]),
        (Position, None),
        (lambda: BaseParallelWrapper(Position()), None),
        (lambda: OrderEnforcingWrapper(BaseWrapper(Relay())), None),
    ],
)
def test_by_hand(make, expected):
    assert probe(make, with_state=True).state_shape == (None if expected is None else (len(expected),))
    vector = DummyVectorEnv(make, 1, with_state=True)
    step = vector.reset(0)
    assert (None if step.state is None else step.state.tolist()) == (None if expected is None else [expected])


def test_a_wrapper_changes_the_state_of_every_step():
    plain, wrapped = (DummyVectorEnv(make, 1, with_state=True) for make in (Crowd, lambda: Tenfold(Crowd())))
    one, other = plain.reset(0), wrapped.reset(0)
    seen = []
    for _ in range(6):
        one, other = plain.step(act(plain.spec, red_0=1)), wrapped.step(act(wrapped.spec, red_0=1))
        assert one.state is not None and one.final_state is not None
        assert other.state is not None and other.final_state is not None
        assert (10 * one.state == other.state).all() and (10 * one.final_state == other.final_state).all()
        seen.append(other.state.any())
    assert any(seen)


def test_the_states_of_a_gymnasium_environment_by_hand():
    vector = DummyVectorEnv(lambda: TimeLimit(Stated(length=9), 3), 1, with_state=True)
    step = vector.reset(0)
    states = []
    for _ in range(4):
        step = vector.step(act(vector.spec))
        assert step.state is not None and step.final_state is not None
        states.append((step.state[0].tolist(), step.final_state[0].tolist() if step.ended[0] else None))
    assert states == [([1, 7], None), ([2, 7], None), ([0, 7], [3, 7]), ([1, 7], None)]


class Mute(Crowd):
    state: Any = None


def test_an_object_without_the_state_of_the_first_object_is_an_error():
    built: list[Crowd] = []

    def make():
        built.append(Mute() if built else Crowd())
        return built[-1]

    with pytest.raises(EnvError, match=r"this object has no global state .*, but the first object had one"):
        DummyVectorEnv(make, 1, with_state=True).reset(0)


def test_only_methods_count():
    assert state_method(Position()) is None and state_method(gymnasium.make("CartPole-v1")) is None
    assert state_method(BaseParallelWrapper(Mute())) is None and state_method(BaseParallelWrapper(Crowd())) is not None
