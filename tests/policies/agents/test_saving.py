import json
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, SaveError
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.files import DESCRIPTION, WEIGHTS
from marltrain.policies.agents.fixed import FrozenAgent, FunctionAgent, RandomAgent
from marltrain.policies.agents.saving import load, save
from marltrain.policies.batches.batch import AgentState
from marltrain.storage.files import read_arrays, sha256, with_checksum, write_arrays
from marltrain.trainer.make_agents import make_agents
from tests.toys import Identity, Motley


def behavior(agent, seen):
    return [np.asarray(agent.act(observation)).tolist() for observation in seen]


def ppo(**changed) -> Any:
    return make_agents("ppo", Identity, env_args={"players": 1}, seed=3, **changed)[0]


@pytest.mark.parametrize("algo", ["ppo", "dqn", "random"])
def test_agents_come_back(tmp_path, algo):
    agents = make_agents(algo, Identity, seed=1)
    save(tmp_path / "agents", agents)
    found = load(tmp_path / "agents")
    assert [type(agent) for agent in found] == [type(agent) for agent in agents]
    if algo != "random":
        for before, after in zip(agents, found, strict=True):
            assert behavior(before, range(3)) == behavior(after, range(3))
            state, again = before.state(), after.state()
            assert state.info == again.info
            assert state.arrays.keys() == again.arrays.keys()
            for name, array in state.arrays.items():
                np.testing.assert_array_equal(array, again.arrays[name])


def test_spaces_of_every_kind_come_back(tmp_path):
    agents = make_agents("ppo", Motley, seed=1, network=mt.MLP())
    save(tmp_path / "agents", agents)
    for before, after in zip(agents, load(tmp_path / "agents"), strict=True):
        assert before.observation_space == after.observation_space
        assert before.action_space == after.action_space


def test_settings_come_back(tmp_path):
    agent = ppo(learning_rate=mt.linear(1e-3, 1e-4, 50), network=mt.MLP(hidden=(8, 4), activation="relu"), epochs=3)
    save(tmp_path / "agents", agent)
    found: Any = load(tmp_path / "agents")[0]
    assert found.settings == agent.settings


def test_one_object_in_several_seats_is_one_object_again(tmp_path):
    one, other = ppo(), RandomAgent(Identity().observation_space("player_0"), Identity().action_space("player_0"))
    save(tmp_path / "agents", [one, other, one])
    found = load(tmp_path / "agents")
    assert found[0] is found[2]
    assert found[0] is not found[1]
    assert json.loads((tmp_path / "agents" / DESCRIPTION).read_text())["seats"] == [0, 1, 0]


def test_a_single_agent_is_a_list_of_one(tmp_path):
    agent = ppo()
    agent.save(tmp_path / "agents")
    assert len(load(tmp_path / "agents")) == 1


def test_a_mapping_comes_back_as_a_mapping(tmp_path):
    """Its keys may be patterns; an agent under two keys is one object again."""
    wrong: dict[Any, Any] = {"fox": RandomAgent(), 0: RandomAgent()}
    result: list[Any] = make_agents("dqn", Identity, seed=0)
    first, second = result[:2]
    given: dict[Any, Any] = {"wolf": first, "hare_*": second, "fox": first}
    save(tmp_path / "a", given)
    loaded = load(tmp_path / "a")
    assert list(loaded) == list(given)
    assert loaded["wolf"] is loaded["fox"] is not loaded["hare_*"]
    for name, agent in given.items():
        for key, array in agent.state().arrays.items():
            np.testing.assert_array_equal(loaded[name].state().arrays[key], array)
    save(tmp_path / "w", given, weights_only=True)
    first.load_weights(tmp_path / "w", player="hare_*")
    with pytest.raises(AgentError, match=r"players=\['x', 'y'\]: leave players out"):
        save(tmp_path / "b", {"a": first, "b": second}, players=["x", "y"])
    with pytest.raises(AgentError, match=r"names the players by its keys, texts, got \{.*players=None"):
        save(tmp_path / "b", wrong)
    with pytest.raises(AgentError, match="there are no agents to save"):
        save(tmp_path / "b", {})


def test_frozen_agents_come_back_frozen(tmp_path):
    save(tmp_path / "agents", FrozenAgent(ppo()))
    (found,) = load(tmp_path / "agents")
    assert isinstance(found, FrozenAgent)
    assert behavior(found, range(3)) == behavior(ppo(), range(3))


class Counting(Agent):
    """A user's own agent with something to remember."""

    def __init__(self, count=0):
        self.count = np.array(count)

    def state(self):
        return AgentState({"type": "Counting"}, {"count": self.count})

    @classmethod
    def from_state(cls, state, custom_objects, backend):
        return cls(state.arrays["count"])


def test_classes_of_the_users_own_are_supplied(tmp_path):
    save(tmp_path / "agents", [Counting(5), ppo()])
    found: Any = load(tmp_path / "agents", custom_objects={"Counting": Counting})[0]
    assert isinstance(found, Counting)
    assert found.count == 5
    with pytest.raises(SaveError, match=r"agents\.json: agent 0 cannot be restored: .*'Counting'.*custom_objects="):
        load(tmp_path / "agents")


def test_saving_again_takes_the_place_of_what_was_saved(tmp_path):
    save(tmp_path / "agents", [ppo(), RandomAgent(*2 * (Identity().observation_space("player_0"),))])
    save(tmp_path / "agents", ppo())
    assert len(load(tmp_path / "agents")) == 1
    assert sorted(p.name for p in (tmp_path / "agents").iterdir()) == [DESCRIPTION, WEIGHTS]


def test_nothing_else_is_ever_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("x")
    with pytest.raises(SaveError, match="holds other things than agents"):
        save(tmp_path / "thesis", ppo())
    with pytest.raises(SaveError, match="is a file"):
        save(tmp_path / "thesis" / "chapter.txt", ppo())
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "x"


@pytest.mark.parametrize("agents", [[], ["ppo"], [None]])
def test_what_is_no_agent_is_refused(tmp_path, agents):
    with pytest.raises(AgentError):
        save(tmp_path / "agents", agents)
    assert not (tmp_path / "agents").exists()


class Stateless(Agent):
    def state(self):
        raise AgentError("no state yet")


def test_a_failing_state_leaves_the_old_agents(tmp_path):
    save(tmp_path / "agents", ppo())
    before = sha256(tmp_path / "agents" / WEIGHTS)
    with pytest.raises(AgentError, match="no state yet"):
        save(tmp_path / "agents", [ppo(), Stateless()])
    assert sha256(tmp_path / "agents" / WEIGHTS) == before


def changed(folder, **values):
    file = folder / DESCRIPTION
    file.write_text(json.dumps(with_checksum({**json.loads(file.read_text()), **values})))


def rewritten(folder, arrays):
    write_arrays(folder / WEIGHTS, arrays)
    changed(folder, files={WEIGHTS: sha256(folder / WEIGHTS)})


def grown(folder):
    arrays = read_arrays(folder / WEIGHTS)
    rewritten(folder, {**arrays, "0/stranger": np.zeros(3)})


def shrunk(folder):
    arrays = read_arrays(folder / WEIGHTS)
    rewritten(folder, dict(list(arrays.items())[1:]))


def reshaped(folder):
    rewritten(folder, {name: array[..., None] for name, array in read_arrays(folder / WEIGHTS).items()})


def retyped(folder):
    rewritten(folder, {name: array.astype(np.float16) for name, array in read_arrays(folder / WEIGHTS).items()})


def flipped(folder):
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS).write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / DESCRIPTION).unlink(), r"agents\.json: cannot be read"),
        (lambda folder: (folder / WEIGHTS).unlink(), r"agents\.safetensors: cannot be read"),
        (lambda folder: (folder / DESCRIPTION).write_text("[]"), r"agents\.json: does not describe saved agents"),
        (lambda folder: changed(folder, format="other"), r"agents\.json: does not describe saved agents"),
        (lambda folder: changed(folder, schema=2), r"agents\.json: schema 2, written by marltrain"),
        (lambda folder: changed(folder, surplus=1), r"agents\.json: keys missing or unknown: surplus"),
        (lambda folder: changed(folder, seats=[0, 1]), r'agents\.json: "seats" must name each'),
        (lambda folder: changed(folder, seats=[]), r'agents\.json: "seats" must name each'),
        (lambda folder: changed(folder, seats=[False]), r'agents\.json: "seats" must name each'),
        (lambda folder: changed(folder, agents=[{"info": {}}]), r'agents\.json: "agents" must list'),
        (lambda folder: changed(folder, by_name=True), r'"by_name" is true or false, and true needs .*, got True'),
        (lambda folder: changed(folder, env_steps=-1), r'agents\.json: "env_steps" must be from 0'),
        (lambda folder: changed(folder, by_name=1, players=["a"]), r'"by_name" is true or false, .*, got 1'),
        (lambda folder: changed(folder, files={}), r'agents\.json: "files" must name agents\.safetensors'),
        (lambda folder: changed(folder, files={WEIGHTS: 1, "../x": 1}), r'agents\.json: "files" must name agents'),
        (flipped, r"agents\.safetensors: its checksum is not the one"),
        (grown, r"agents\.safetensors: holds arrays that .* 0/stranger"),
        (shrunk, r"agents\.safetensors: arrays are missing: 0/"),
        (reshaped, r"agents\.safetensors: 0/.*agents\.json says"),
        (retyped, r"agents\.safetensors: 0/.* is float16"),
    ],
)
def test_damage_is_found_and_the_file_named(tmp_path, damage, said):
    save(tmp_path / "agents", ppo())
    damage(tmp_path / "agents")
    with pytest.raises(SaveError, match=said):
        load(tmp_path / "agents")


@pytest.mark.parametrize("damage", ["shape", "missing", "type", "spaces"])
def test_a_description_that_contradicts_itself_is_refused(tmp_path, damage):
    """Files that agree with one another, but not with the agent that they describe."""
    save(tmp_path / "agents", ppo())
    entry = json.loads((tmp_path / "agents" / DESCRIPTION).read_text())["agents"][0]
    arrays = read_arrays(tmp_path / "agents" / WEIGHTS)
    if damage == "shape":
        name = max(arrays, key=lambda name: arrays[name].ndim)
        arrays[name] = arrays[name][..., :-1]
    elif damage == "missing":
        del arrays[next(iter(arrays))]
    elif damage == "type":
        entry["info"]["type"] = "os.system"
    else:
        entry["info"]["observation_space"] = {"type": "Nothing"}
    entry["arrays"] = {n.removeprefix("0/"): [str(a.dtype), list(a.shape)] for n, a in arrays.items()}
    rewritten(tmp_path / "agents", arrays)
    changed(tmp_path / "agents", agents=[entry])
    with pytest.raises(SaveError, match=r"agents\.json: agent 0 cannot be restored"):
        load(tmp_path / "agents")


def test_code_cannot_be_saved_silently(tmp_path):
    """What only code knows is named by its class and asked for."""
    space = Identity().observation_space("player_0")
    save(tmp_path / "agents", FunctionAgent(lambda observation: 0, space, space))
    with pytest.raises(SaveError, match=r"'FunctionAgent'.*custom_objects="):
        load(tmp_path / "agents")


def test_the_working_folder_is_loaded_from_and_not_saved_to(tmp_path, monkeypatch):
    mt.save("agents", mt.RandomAgent())
    monkeypatch.chdir("agents")
    assert len(mt.load(".")) == 1
    with pytest.raises(SaveError, match="the working folder is this folder, or lies in it"):
        mt.save(".", mt.RandomAgent())
    for path in ("a\0b", "x" * 5000, 3):
        with pytest.raises(SaveError, match="path"):
            mt.save(path, mt.RandomAgent())  # type: ignore[arg-type]
        with pytest.raises(SaveError, match="path"):
            mt.load(path)  # type: ignore[arg-type]
