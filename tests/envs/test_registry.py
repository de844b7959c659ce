"""Names, classes and functions become environments; everything else is refused with the nearest name."""

import functools
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import DummyVectorEnv, SubprocVectorEnv, list_environments, probe, resolve
from marltrain.envs.registry import imports_only_known
from tests.envs.driving import act
from tests.gymnasium_toys import Film
from tests.toys import Crowd, Relay


@pytest.mark.parametrize(
    ("name", "players", "turn_based"),
    [
        ("mpe2/simple_spread_v3", 3, False),
        ("pettingzoo/classic/tictactoe_v3", 2, True),
        ("gymnasium/CartPole-v1", 1, False),
        ("tests.toys:Relay", 3, True),
        ("mpe2.simple_spread_v3:env", 3, True),
        (Crowd, 3, False),
        (lambda: Relay(truncate=True), 3, True),
        (functools.partial(Film, length=3), 1, False),
    ],
)
def test_everything_that_can_be_resolved(name, players, turn_based):
    spec = probe(name)
    assert len(spec.players) == players and spec.turn_based == turn_based


def test_arguments_reach_the_environment_and_are_not_touched():
    arguments = {"N": 2, "max_cycles": 4}
    spec = probe("mpe2/simple_spread_v3", arguments)
    assert spec.names == ("agent_0", "agent_1") and arguments == {"N": 2, "max_cycles": 4}
    source = resolve(Crowd, arguments := {"length": 2})
    arguments["length"] = 99
    assert source.make().length == 2
    assert resolve("gymnasium/CartPole-v1", {"max_episode_steps": 3}).make().spec.max_episode_steps == 3


def test_a_resolved_source_resolves_to_itself():
    source = resolve(Crowd)
    assert resolve(source) is source
    with pytest.raises(ConfigError, match="resolved already"):
        resolve(source, {"length": 2})


def test_knights_archers_zombies_is_known_to_need_rebuilding():
    (name,) = [name for name in list_environments() if "knights" in name]
    assert resolve(name).rebuild and not resolve("mpe2/simple_spread_v3").rebuild


def test_lunar_lander_that_flies_above_its_published_bounds_is_no_fault():
    env = resolve("gymnasium/LunarLander-v3").make()
    published, wide = env.unwrapped.observation_space, env.observation_space
    assert np.array_equal(wide.low, [-np.inf] * 6 + [0, 0])
    assert np.array_equal(wide.high, [np.inf] * 6 + [1, 1])
    obs, _ = env.reset(seed=1)
    for _ in range(60):  # upwards, upright
        tilt = obs[4] + 0.5 * obs[5]
        obs, *_ = env.step(3 if tilt > 0.05 else 1 if tilt < -0.05 else 2)
    assert not published.contains(obs)
    assert wide.contains(obs)


@pytest.mark.parametrize(
    ("env", "env_args", "message"),
    [
        ("mpe2/simple_spred_v3", None, r"unknown environment .* Did you mean 'mpe2/simple_spread_v3'\?"),
        ("mpe/simple_spread_v3", None, r"Did you mean .*'mpe2/simple_spread_v3'\?"),
        ("gymnasium/CartPole-v9", None, r"Did you mean 'gymnasium/CartPole-v[01]'\?"),
        ("pettingzoo/classic/tictactoe", None, r"Did you mean 'pettingzoo/classic/tictactoe_v3'\?"),
        ("simple_spread_v3", None, r"Did you mean 'marltrain/simple_spread_v3' or 'mpe2/simple_spread_v3'\?"),
        ("pettingzoo/mpe/simple_spread_v3", None, r"Did you mean .*'mpe2/simple_spread_v3'\?"),
        ("pettingzoo.mpe:simple_spread_v3", None, r"cannot be imported: .* Did you mean .*'mpe2/simple_spread_v3'\?"),
        ("lbforaging", None, r"is shipped: 'marltrain/foraging_v3'"),
        ("lb-foraging", None, r"is shipped: 'marltrain/foraging_v3'"),
        ("lbforaging:Forraging-8x8-2p-1f-v3", None, r"is shipped: 'marltrain/foraging_v3'"),
        ("gymnasium/Foraging-9x9-2p-1f-v1", None, r"is shipped: 'marltrain/foraging_v3'"),
        ("rware", None, r"is shipped: 'marltrain/rware_v2'"),
        ("overcooked_ai", None, r"is shipped: 'marltrain/overcooked_v1'"),
        ("HeuristicEnemySMAX", None, r"is shipped: 'marltrain/smax_v2'"),
        ("smaclite", None, r"is shipped: 'marltrain/smax_v2'"),
        ("robotic-warehouse", None, r"is shipped: 'marltrain/rware_v2'"),
        ("tests.toys:Crowds", None, r"'tests.toys' has no 'Crowds'. Did you mean 'Crowd'\?"),
        ("tests.toyz:Crowd", None, r"'tests.toyz:Crowd' cannot be imported: No module named 'tests.toyz'"),
        ("mpe2/simple_spread_v3", {"n": 3}, r"takes no argument 'n'.* It takes: .*N.*max_cycles"),
        ("gymnasium/CartPole-v1", {"max_steps": 3}, r"takes no argument 'max_steps'. Did you mean 'max_episode_steps'"),
        (Crowd, {"lenght": 3}, r"environment 'Crowd' takes no argument 'lenght'. Did you mean 'length'"),
        (lambda: Crowd(), {"length": 3}, r"takes no argument 'length'. It takes: none"),
        (Crowd(), None, r"env is an object of Crowd.*pass the class, or a function.*lambda: Crowd"),
        (gymnasium.make("CartPole-v1"), None, r"env is an object of TimeLimit"),
        (3, None, "env must be a name, a class or a function"),
        (":", None, "env: ':' cannot be imported: Empty module name"),
        ("tests.toys:", None, "env: module 'tests.toys' has no ''"),
        (Crowd, {3: 4}, r"env_args must be named by text, such as \{'N': 3\}, got \{3: 4\}"),
    ],
)
def test_what_cannot_be_resolved_says_what_to_do(env, env_args, message):
    with pytest.raises(ConfigError, match=message):
        resolve(env, env_args)


@pytest.mark.parametrize("outer", [lambda env: env, gymnasium.wrappers.TimeAwareObservation])
def test_a_function_that_gives_one_object_again_and_again(outer):
    env = gymnasium.make("CartPole-v1")

    def same():
        return outer(env)

    with pytest.raises(ConfigError, match=r"env: .*same returned the same CartPoleEnv object twice"):
        DummyVectorEnv(same, 1)  # once to look at it, once to play


def test_objects_of_slots_cannot_be_told_apart_and_are_taken():
    class Slotted(Film):
        __slots__ = ()

    for _ in range(2):
        resolve(lambda: Slotted()).make().close()


def test_listing_finds_every_family_without_importing_games():
    code = (
        "import sys; from marltrain.envs import list_environments; names = list_environments();"
        "print('mpe2/simple_tag_v3' in names, 'pettingzoo/classic/chess_v6' in names, 'gymnasium/CartPole-v1' in names,"
        "any(m.startswith(('mpe2.', 'pettingzoo.classic.')) for m in sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert said.stdout == "True True True False\n", said.stderr


def test_names_bring_no_warnings_of_their_own():
    """PettingZoo 1.27 deprecates the import that every earlier version needs."""
    code = "from marltrain.envs import resolve; resolve('pettingzoo/classic/tictactoe_v3')"
    said = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True)
    assert "old environment creation API" not in said.stderr and said.returncode == 0


def test_an_environment_registered_by_the_script_works_in_workers():
    gymnasium.register("Film-v7", entry_point="tests.gymnasium_toys:Film")
    try:
        with SubprocVectorEnv(resolve("gymnasium/Film-v7", {"size": 9}), 2) as vector:
            (obs,) = vector.reset(0).obs
            assert isinstance(obs, np.ndarray) and obs.shape == (1, 2, 9, 9)
    finally:
        del gymnasium.registry["Film-v7"]


def test_render_mode_is_passed_only_when_asked_for():
    vector = DummyVectorEnv("gymnasium/CartPole-v1", 1, render_mode="rgb_array")
    vector.reset(0)
    vector.step(act(vector.spec))
    assert vector.render().shape[-1] == 3
    vector.close()
    assert resolve(Crowd).make() is not None  # takes no render_mode


def test_names_that_import_what_an_argument_names_are_not_for_files(monkeypatch):
    """Gymnasium's own are, and ours; those that others register may import anything."""
    theirs = gymnasium.envs.registration.EnvSpec("Theirs-v0", entry_point="theirs.envs:Theirs")
    monkeypatch.setitem(gymnasium.registry, "Theirs-v0", theirs)
    safe = (
        "marltrain/CartPole-v1",
        "gymnasium/CartPole-v1",
        "mpe2/simple_spread_v3",
        "pettingzoo/classic/tictactoe_v3",
    )
    assert all(imports_only_known(name) for name in safe)
    listed = ("gymnasium/Theirs-v0", "gymnasium/GymV21Environment-v0", "gymnasium/GymV26Environment-v0")
    assert set(listed) <= set(list_environments())
    assert not any(imports_only_known(name) for name in (*listed, "tests.toys:Relay", "gymnasium/theirs:CartPole-v1"))


def test_a_gymnasium_environment_that_lacks_a_package_says_what_to_install(monkeypatch):
    def lacking(entry_point):
        raise gymnasium.error.DependencyNotInstalled('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`')

    monkeypatch.setattr(gymnasium.envs.registration, "load_env_creator", lacking)
    with pytest.raises(ConfigError, match=r"'gymnasium/Ant-v5' cannot be imported: MuJoCo is not installed, run `pip"):
        resolve("gymnasium/Ant-v5")


@pytest.mark.parametrize("name", ["mpe2/simple_spread_v3", "mpe2/simple_crypto_v9"])
def test_without_mpe2_its_games_name_the_extra(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "mpe2", None)  # as if it were absent
    assert imports_only_known(name) and not any(one.startswith("mpe2/") for one in list_environments())
    with pytest.raises(ConfigError, match=r'needs mpe2, which is not installed: pip install "marltrain\[mpe\]"'):
        resolve(name)
    with pytest.raises(ConfigError, match=r"Did you mean 'marltrain/simple_tag_v3'\?"):
        resolve("mpe2/simple_tag_v3")
    with pytest.raises(ConfigError, match="unknown environment 'mpe2/os'"):
        resolve("mpe2/os")
    assert not imports_only_known("mpe2/os")


@pytest.mark.parametrize(
    ("name", "absent", "remedy"),
    [
        ("mpe2.simple_spread_v3:env", "mpe2", r'pip install "marltrain\[mpe\]"'),
        ("pettingzoo/classic/chess_v6", "chess", r'pip install "pettingzoo\[classic\]"'),
        ("pettingzoo/sisl/multiwalker_v9", "Box2D", r'pip install "pettingzoo\[sisl\]"'),
        ("mujoco:anything", "mujoco", r'pip install "marltrain\[mujoco\]"'),
        ("tests.toyz:Crowd", "tests.toyz", r"Install what it needs\.$"),
    ],
)
def test_a_package_that_an_environment_lacks_is_named_with_its_command(monkeypatch, name, absent, remedy):
    for module in [module for module in sys.modules if module.startswith(("pettingzoo.", "mpe2.", absent))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ConfigError, match=remedy):
        resolve(name)
