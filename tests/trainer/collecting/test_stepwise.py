"""One batch step at a time: everybody acts, it is remembered, the environments step."""

import numpy as np

import marltrain as mt
from marltrain.envs import make_vector
from marltrain.policies.memory import Plan, Streams
from marltrain.trainer.collecting.rollout import Actors, Recorder
from marltrain.trainer.collecting.stepwise import SyncCollector
from marltrain.trainer.seats import Seating
from tests.toys import Identity
from tests.trainer.running import SHORT


def test_a_step_is_acted_on_remembered_and_made():
    """Whatever may be made at most, it is one step; what it brings is not remembered yet."""
    calls = []
    with make_vector(Identity, SHORT, 3) as envs:
        seating = Seating(envs.spec, [mt.RandomAgent(), mt.RandomAgent()], 0, stack=True)
        streams = Streams(envs.spec, 3, {0: Plan(5)})

        def receive():
            calls.append(streams.rings[0].coming)
            return envs.recv()

        stepwise = SyncCollector(envs, Recorder(Actors(envs.spec, seating.units, 3, "act"), streams), receive)
        assert not stepwise.under_way
        step = envs.reset(0)
        for t, most in enumerate((1, 7, 1000)):
            streams.arrived(step)
            ring = streams.rings[0]
            seen = {name: array.copy() for name, array in step.arrays().items()}
            step, made = stepwise.advance(step, most)
            assert made == 1
            assert (ring.now, ring.coming) == (t, t + 1)
            assert calls == list(range(1, t + 2))
            np.testing.assert_array_equal(ring.action[:, t], stepwise.collector.actors.actions[0])
            shown = next(array for name, array in seen.items() if name.startswith("obs"))
            np.testing.assert_array_equal(ring.obs["vector"][:, t], shown)
