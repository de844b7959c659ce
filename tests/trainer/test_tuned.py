from dataclasses import fields
from inspect import signature

import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import list_environments
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.make_agents import make_agents
from marltrain.trainer.tuned import entries_of, tuned, tuned_pairs


@pytest.mark.parametrize(("algo", "env"), tuned_pairs())
def test_tuned_settings_are_valid(algo, env):
    settings = tuned(algo, env)
    assert set(settings) == {"trainer", "agents"}
    assert env in list_environments()
    assert settings["trainer"].keys() <= signature(DecentralizedTrainer).parameters.keys()
    DecentralizedTrainer(env, **settings["trainer"])
    (agent, *_) = make_agents(algo, env, **settings["agents"])
    result: dict[str, object] = {"share": True}
    result |= {f.name: getattr(agent.settings, f.name) for f in fields(agent.settings)}  # type: ignore[attr-defined]
    assert settings["agents"].items() <= result.items()


def test_tuned_returns_a_copy():
    (algo, env), *_ = tuned_pairs()
    tuned(algo, env)["trainer"].clear()
    assert tuned(algo, env)["trainer"]


def test_unknown_pair_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"'ppo on gymnasium/CartPole-v1'"):
        tuned("ppo", "gymnasium/CartPole-v0")


@pytest.mark.parametrize(
    ("text", "names"),
    [('[dqn."a/b".trainer]\n', r"a/b.*agents"), ('[dqn."a/b".trainer]\n[dqn."a/b".agent]\n', r"a/b.*agents.*agent$"),
     ('[dqn]\n"a/b" = 1\n', r"a/b.*agents.*1"), ("dqn = 1\n", r"dqn.*agents.*1"),
     ('[dqn."a/b"]\ntrainer = {}\nagents = 2\n', r"a/b.*2")],
)  # fmt: skip
def test_an_entry_without_its_two_tables_is_refused(text, names):
    with pytest.raises(ConfigError, match=names):
        entries_of(text)
