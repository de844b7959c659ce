"""Code of a user's own that is supplied again: by class name, network, player or seat number."""

import warnings
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers
from torch import nn

import marltrain as mt
from tests.toys import Identity
from tests.trainer.running import SHORT, dqn, ppo, trainer

VAGUE = "several different parts of these agents are called"


class Mine(nn.Sequential):
    def __init__(self, outputs=3, activation=nn.Tanh):
        super().__init__(nn.Linear(3, 4), activation(), nn.Linear(4, outputs))


def keras_net(outputs, activation="tanh"):
    return lambda: keras.Sequential([keras.Input((3,)), layers.Dense(4, activation=activation), layers.Dense(outputs)])


def torch_net(outputs, activation=nn.Tanh):
    return lambda: nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, outputs))


def arrays(agents):
    return [agent.state().arrays for agent in agents]


def same(agents, others):
    for one, two in zip(arrays(agents), arrays(others), strict=True):
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[name], two[name]) for name in one)
    assert all((a.act(np.arange(3)) == b.act(np.arange(3))).all() for a, b in zip(agents, others, strict=True))


@pytest.mark.parametrize(("net", "backend"), [(torch_net, "torch"), (keras_net, "tensorflow")])
@pytest.mark.parametrize("shape", ["lambdas", "models"])
def test_an_actor_and_a_critic_that_share_a_class_name(tmp_path, net, backend, shape):
    parts: Any = (net(3), net(1)) if shape == "lambdas" else (net(3)(), net(1)())
    agents = ppo(network=parts[0], critic_network=parts[1], backend=backend)
    with pytest.warns(UserWarning, match=VAGUE) as warned:
        mt.save(tmp_path / "agents", agents)
    model = "the model or a function that makes it"
    text = f"custom_objects={{'actor': {model}, 'critic': {model}}}"
    assert str(warned[0].message).endswith(f"To load them, give {text}")
    same(agents, mt.load(tmp_path / "agents", custom_objects={"actor": net(3), "critic": net(1)}))
    same(agents, mt.load(tmp_path / "agents", custom_objects={"network": net(3), "critic_network": net(1)}))
    each = {"actor": net(3), "critic": net(1)}
    same(agents, mt.load(tmp_path / "agents", custom_objects={0: each, 1: each}))
    name = "<lambda>" if shape == "lambdas" else "Sequential"
    for wrong in (None, {name: net(3)}):
        with pytest.raises(
            mt.SaveError, match=r"agent 0 cannot be restored: .*give custom_objects=\{'actor': the model"
        ):
            mt.load(tmp_path / "agents", custom_objects=wrong)


def test_the_run_of_the_documents_is_told_at_its_first_test_and_loads(tmp_path):
    """torch's `Mine()` and `Mine(1)`; the warning names what `load` then takes."""
    agents = ppo(network=Mine(), critic_network=Mine(1))
    with pytest.warns(UserWarning, match=rf"{VAGUE} 'Mine'\. To load them, give custom_objects=\{{'actor': the model"):
        trainer(run_dir=tmp_path / "run", steps_per_train=12).train(agents, [1, 1], plot=False)
    same(agents, mt.load(tmp_path / "run" / "last", custom_objects={"actor": Mine, "critic": lambda: Mine(1)}))


def test_players_whose_networks_differ_in_a_layer_alone_are_told_apart_by_name(tmp_path):
    """Equal class names and equal shapes: a name would load a function that was never trained."""
    agents = [dqn(network=Mine())[0], dqn(network=Mine(activation=nn.ReLU))[1]]
    with pytest.warns(UserWarning, match=r"give custom_objects=\{'player_0': the model .*, 'player_1': the model or"):
        trainer(run_dir=tmp_path / "run", steps_per_train=12).train(agents, [1, 1], plot=False)
    last = tmp_path / "run" / "last"
    rectified = lambda: Mine(activation=nn.ReLU)  # noqa: E731
    same(agents, mt.load(last, custom_objects={"player_0": Mine, "player_1": rectified}))
    same(agents, mt.load(last, custom_objects={"player_0": {"q": Mine}, "player_1": {"Mine": rectified}}))
    for wrong in ({"Mine": Mine}, {"q": Mine}):
        with pytest.raises(mt.SaveError, match=r"stands for several different parts: give custom_objects=\{'player_0'"):
            mt.load(last, custom_objects=wrong)
    with pytest.raises(mt.SaveError, match=f"{VAGUE} 'Mine'"):
        mt.load(last, custom_objects={"player_0": Mine})


def test_custom_agents_whose_models_share_a_class_name(tmp_path):
    def made(actions_rate):
        model = nn.Sequential(nn.Linear(3, 3), *[nn.Linear(3, 3)] * actions_rate)
        return mt.CustomAgent(model, lambda model, batch: model(batch.obs).mean(), torch.optim.SGD(model.parameters()))

    agents = [made(0), made(1)]
    with pytest.warns(UserWarning, match=r"give custom_objects=\{0: a function that makes the agent, 1: a function"):
        trainer().test(agents, episodes=1)  # gives them their seats
        mt.save(tmp_path / "agents", agents)
    same(agents, mt.load(tmp_path / "agents", custom_objects={0: lambda: made(0), 1: lambda: made(1)}))
    with pytest.raises(mt.SaveError, match="stands for several different parts"):
        mt.load(tmp_path / "agents", custom_objects={"Sequential": lambda: made(0)})


@pytest.mark.parametrize("given", [Mine, Mine(), lambda: Mine()])
def test_a_class_name_is_enough_where_it_stands_for_equal_models(tmp_path, given):
    agents = dqn(network=given)
    name = "<lambda>" if not isinstance(given, type | nn.Module) else "Mine"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mt.save(tmp_path / "agents", [*agents, mt.FrozenAgent(agents[0])])
    found = mt.load(tmp_path / "agents", custom_objects={name: Mine})
    same([*agents, agents[0]], found)
    assert isinstance(found[2], mt.FrozenAgent)
    with pytest.raises(mt.SaveError, match=rf"custom_objects=\{{'{name}': the model or a function that makes it\}}"):
        mt.load(tmp_path / "agents")


def test_files_written_before_load_by_class_name_or_setting():
    state = dqn(network=Mine())[0].state()
    state.info["settings"]["network"] = {"model": "Mine"}
    for key in ("Mine", "network"):
        assert mt.DQN.from_state(state, {key: Mine}, None).state().arrays.keys() == state.arrays.keys()


def test_a_value_for_a_player_is_checked(tmp_path):
    agents = [*ppo(network=Mine(), critic_network=nn.Sequential(nn.Linear(3, 1)))[:1], *dqn()[1:]]
    mt.save(tmp_path / "agents", agents, players=["wolf", "hare"])
    with pytest.raises(
        mt.SaveError, match=r"custom_objects\['wolf'\] must be a mapping, got .*: give custom_objects=\{'Mine': the"
    ):
        mt.load(tmp_path / "agents", custom_objects={"wolf": Mine})
    with pytest.raises(
        mt.SaveError, match=r"custom_objects\['hare'\] is not needed: this agent has no part of your own"
    ):
        mt.load(
            tmp_path / "agents",
            custom_objects={"Mine": Mine, "Sequential": lambda: nn.Sequential(nn.Linear(3, 1)), "hare": Mine},
        )
    with pytest.raises(mt.AgentError, match="players must name the 2 agents' seats, got"):
        mt.save(tmp_path / "agents", agents, players=["wolf"])
    both = {"actor": Mine, "critic": lambda: nn.Sequential(nn.Linear(3, 1))}
    same(agents, mt.load(tmp_path / "agents", custom_objects={"wolf": both}))


def test_players_of_other_names_than_the_documents_are_refused(tmp_path):
    agents = mt.make_agents("dqn", Identity, env_args=SHORT, seed=0)
    mt.save(tmp_path / "agents", agents, players=["a", "b"])
    from tests.policies.agents.test_saving import changed

    for wrong in (["a"], "ab", [1, 2]):
        changed(tmp_path / "agents", players=wrong)
        with pytest.raises(mt.SaveError, match=r'"players" must '):
            mt.load(tmp_path / "agents")
