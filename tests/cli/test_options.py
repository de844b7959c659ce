from pathlib import Path

import pytest

from marltrain.core.errors import ConfigError
from marltrain.policies.hyperparameters.schedules import linear
from marltrain.policies.networks.specs import CNN, MLP
from marltrain.trainer.text_values import parse_value
from tests.cli.running import refused


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("evns", "'envs'"),
        ("train mpe2/simple_spred_v3 --algo ppo", "'mpe2/simple_spread_v3'"),
        ("train mpe2/simple_spread_v3 --algo dpo", "'ppo'"),
        ("train mpe2/simple_spread_v3 --algo ppo --num-train-env 3", "'--num-train-envs'"),
        ("train mpe2/simple_spread_v3 --algo ppo --num-train-env=3", "'--num-train-envs'"),
        ("train mpe2/simple_spread_v3 --algo PPO", "'ppo'"),
        ("train mpe2/simple_spread_v3 --algo ppo --lr 1e-3", "'--set learning_rate=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo -lr 1e-3", "'--set learning_rate=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo --gama 0.9", "'--set gamma=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo --device cpu", "'--set device=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo --total-timesteps 5", "'--steps-per-train'"),
        ("train mpe2/simple_spread_v3 --algo ppo --steps 5", "'--steps-per-train'"),
        ("train mpe2/simple_spread_v3 --algo ppo --set gama=0.9", "'gamma'"),
        ("train mpe2/simple_spread_v3 --algo ppo --set lr=0.9", "'learning_rate'"),
        ("train mpe2/simple_spread_v3 --algo ppo --set network=MPL((8,))", "'MLP'"),
        ("train mpe2/simple_spread_v3 --algo ppo --env-arg max_cycle=9", "'max_cycles'"),
        ("train mpe2/simple_spread_v3 --algo ppo --vector subprc", "'subproc'"),
        ("train mpe2/simple_spread_v3 --algo ppo --team-reward men", "'mean'"),
        ("train mpe2/simple_spread_v2 --algo ppo --tuned", "'ppo on mpe2/simple_spread_v3'"),
        ("train tests.toys:Rely --algo ppo", "'Relay'"),
        ("plot RUN --x step", "'steps'"),
        ("test RUN --env tests.toys:Identity --random player_7", "'player_"),
        ("test RUN --episode 3", "'--episodes'"),
        ("envs sprd", "'spread'"),
    ],
)
def test_a_wrong_name_suggests_the_nearest(capsys, run, words, hint):
    line = refused(capsys, *words.replace("RUN", str(run)).split())
    assert f"Did you mean {hint}" in line
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hidden-sizes 64", "train has no option '--hidden-sizes'. Hidden layers are given by the network: --set '"),
        ("--recurrent", "--set 'network=GRU()', or --set 'network=LSTM()'"),
        ("--set hidden_sizes=32", "--set 'network=MLP((32,))'"),
        ("--set recurrent=True", "--set 'network=GRU()'"),
        ("--n-steps 128", "Did you mean '--set n_step=...' or '--set update_freq=...'? update_freq counts"),
    ],
)
def test_names_of_other_libraries_lead_to_options(capsys, words, said):
    assert said in refused(capsys, "train", "gymnasium/CartPole-v1", "--algo", "ppo", *words.split())


def test_an_unknown_environment_names_the_command_that_lists_them(capsys):
    line = refused(capsys, "train", "lbforaging", "--algo", "ppo")
    assert "marltrain/foraging_v3" in line and "`marltrain envs` lists" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train", "required: ENV|FILE"),
        ("train gymnasium/CartPole-v1 --algo", "expected one argument"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed x", "invalid integer value: 'x'"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed 1.5", "invalid integer value: '1.5'"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed 1e999", "invalid integer value: '1e999'"),
        ("train gymnasium/CartPole-v1 --algo ppo --set epochs=1.5", "PPO: epochs must be an integer, got 1.5"),
        ("train mpe2/simple_spread_v3 --algo ppo --set num_envs=3", "the trainer's option '--num-train-envs'?"),
        ("train mpe2/simple_spread_v3 --algo ppo --set steps_per_train=3", "the trainer's option '--steps-per-train'?"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed -1", "seed must be at least 0"),
        ("train mpe2/simple_spread_v3 --algo ppo --algo dqn", "--algo takes one ALGO for all players, or PLAYER=ALGO"),
        ("train mpe2/simple_spread_v3 --algo =dqn", "or PLAYER=ALGO for each, got '=dqn'"),
        ("train mpe2/simple_spread_v3 --algo a=dqn --algo a=ppo", "--algo names 'a' twice"),
        ("train mpe2/simple_spread_v3 --algo agent_*=dqn --tuned", "--tuned needs one algorithm for all players"),
        ("train mpe2/simple_spread_v3 --algo agent_*=dqn --self-play", "--self-play needs one algorithm"),
        (
            "train mpe2/simple_spread_v3 --algo agent_0=dqn",
            "player 'agent_1' of mpe2/simple_spread_v3 is matched by none",
        ),
        (
            "train mpe2/simple_spread_v3 --algo agent_*=dqm",
            "name['agent_*']: no algorithm is called 'dqm'. Did you mean",
        ),
        ("train mpe2/simple_spread_v3 --algo ppo --set agent_0.gamma=1", "no --algo is given for 'agent_0'. Give one"),
        ("train mpe2/simple_spread_v3 --algo agent_*=ppo --set agent_*.gama=1", "'agent_0': PPO has no setting 'gama'"),
        ("train gymnasium/CartPole-v1 --algo ppo --set gamma", "KEY=VALUE, got 'gamma'"),
        ("train gymnasium/CartPole-v1 --algo ppo --set gamma=1 --set gamma=0.9", "'gamma' twice"),
        ("train gymnasium/CartPole-v1 --algo ppo --set gamma=2", "at most 1"),
        ("train gymnasium/CartPole-v1 --algo ppo --set network=MLP(8)", "cannot be made"),
        ("train gymnasium/CartPole-v1 --algo ppo --set clip=linear(1,0)", "--set clip: 'linear(1,0)' cannot be"),
        ("train gymnasium/CartPole-v1 --algo ppo --checkpoint 0", "--checkpoint: Checkpoint: every_steps must be"),
        ("train gymnasium/CartPole-v1 --algo ppo extra", "unrecognized arguments: extra"),
        ("train gymnasium/CartPole-v1 --algo ppo --set batch_size=5000", "exceeds one rollout"),
        ("play RUN --env tests.toys:Identity --out film.avi", ".gif or .mp4"),
        ("test RUN --env tests.toys:Identity --episodes 0", "episodes must be at least 1"),
        ("test RUN --agents worst", "invalid choice"),
    ],
)
def test_wrong_arguments_are_one_line(capsys, run, words, said):
    assert said in refused(capsys, *words.replace("RUN", str(run)).split())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-1e-3", -1e-3), ("true", True), ("None", None), ("[1, 'a']", [1, "a"]), ("adam", "adam"),
        ("linear(1, 0.05, 20)", linear(1, 0.05, 20)), ("MLP((8, 4), activation='relu')", MLP((8, 4), "relu")),
        ("CNN(hidden=(8,))", CNN(hidden=(8,))), ("a/b c", "a/b c"), ("", ""),
    ],
)  # fmt: skip
def test_values_are_read(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize("text", ["print(1)", "__import__('os')", "linear(1)", "MLP(hidden=(0,))", "MLP(x)"])
def test_values_run_no_code(text):
    with pytest.raises(ConfigError):
        parse_value(text)
