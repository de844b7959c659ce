"""The commands that `train` prints at its end: each works when it is copied."""

import shlex
from pathlib import Path

import gymnasium
import pytest

from marltrain.cli import main
from marltrain.cli.next_commands import next_commands
from tests.cli.running import RELAY, SYMBOLS, said
from tests.gymnasium_toys import BitFlipping
from tests.tiers import LONG

SMALL = ["--algo", "a2c", "--steps-per-train", "160", "--episodes-per-test", "1", "--num-test-envs", "1",
         "--num-train-envs", "4", "--no-progress", "--seed", "0"]  # fmt: skip


def printed_commands(out):
    """The commands after the line "next:", as lists of words."""
    lines = out.splitlines()
    return [shlex.split(line) for line in lines[lines.index("next:") + 1 :]]


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["marltrain/simple_spread_v3", "--env-arg", "local_ratio=0.25", "--env-arg", "max_cycles=5"], "film"),
        (["marltrain/connect_four_v3"], "film"),
        (["marltrain/foraging_v3", "--env-arg", "field_size=(6, 6)", "--env-arg", "players=3"], "text"),
        (["marltrain/matrix_game_v1", "--env-arg", "payoffs=[[1, 0], [0, 2]]"], "text"),
        (["mpe2/simple_tag_v3", "--env-arg", "max_cycles=5", "--env-arg", "num_obstacles=0"], "film"),
        (["gymnasium/FrozenLake-v1", "--env-arg", "map_name='4x4'"], "film"),
        ([SYMBOLS, "--env-arg", "length=3"], "text"),
        ([RELAY], "film"),
        *LONG
        * [
            (["marltrain/CartPole-v1", "--env-arg", "max_episode_steps=9"], "film"),
            (["marltrain/leduc_poker_v1", "--env-arg", "starting_player=1"], "text"),
            (["pettingzoo/classic/rps_v2", "--env-arg", "max_cycles=3"], "film"),
        ],
    ],
)
def test_printed_commands_work(capsys, tmp_path, monkeypatch, words, way):
    """In a folder whose name has to be quoted; without a display, as tests are run."""
    folder = "my runs/it's $one"
    commands = printed_commands(said(capsys, "train", *words, *SMALL, "--run-dir", folder))
    assert [command[:3] for command in commands] == [["marltrain", name, folder] for name in ("test", "play", "plot")]
    play = commands[1]
    assert ("--text" in play) == (way == "text") and ("--out" in play) == (way == "film")
    for _, *command in commands:
        limit = {"play": ["--max-steps", "4"], "test": ["--episodes", "2"]}.get(command[0], [])
        assert main([*command, *limit]) == 0, capsys.readouterr().err
    if way == "film":
        assert (tmp_path / folder / "film.gif").stat().st_size > 0
    else:
        assert "\nstep 1: " in capsys.readouterr().out


def test_without_tests_there_is_nothing_to_plot(capsys):
    out = said(capsys, "train", "marltrain/kuhn_poker_v1", *SMALL, "--test-freq", "none", "--run-dir", "r")
    assert printed_commands(out) == [["marltrain", "test", "r"], ["marltrain", "play", "r", "--text"]]


def commands(env, **env_args):
    return next_commands(env, env_args, Path("runs/x"), "", tested=True)


def test_a_window_is_recommended_where_there_is_a_display(monkeypatch):
    assert commands("gymnasium/CartPole-v1")[1] == "marltrain play runs/x --out runs/x/film.gif"
    monkeypatch.delenv("SDL_VIDEODRIVER")
    monkeypatch.setenv("DISPLAY", ":0")
    assert commands("gymnasium/CartPole-v1")[1] == "marltrain play runs/x"
    assert commands("marltrain/CartPole-v1")[1] == "marltrain play runs/x"
    assert commands("marltrain/kuhn_poker_v1")[1] == "marltrain play runs/x --text"


class Unpainted(BitFlipping):
    """Declares pictures and fails to draw them, as where a graphics library is missing."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__()

    def render(self):
        raise gymnasium.error.DependencyNotInstalled("no OpenGL")


def test_an_environment_that_fails_to_draw_and_a_missing_original_are_shown_as_text(monkeypatch):
    env = f"{__name__}:Unpainted"
    assert commands(env)[1] == f"marltrain play runs/x --env {env} --text"
    from marltrain.envs import registry

    monkeypatch.setattr(registry, "is_installed", lambda module: module != "mpe2")
    assert commands("marltrain/simple_v3")[1] == "marltrain play runs/x --text"
