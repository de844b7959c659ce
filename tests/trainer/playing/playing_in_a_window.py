"""A person plays tic-tac-toe in a real window (`make play-test`): keys are pressed by xdotool in an X server without a
screen."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import marltrain as mt

MISSING = [name for name in ("Xvfb", "xdotool") if shutil.which(name) is None]


@pytest.fixture
def display():
    """An X server without a screen; yields the environment variables of its clients."""
    assert not MISSING, f"{' and '.join(MISSING)} missing: apt-get install xvfb xdotool"
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1024x768x24"], pass_fds=[write], stderr=subprocess.DEVNULL
    )
    os.close(write)
    with os.fdopen(read) as data:
        number = data.readline().strip()
    yield {**os.environ, "DISPLAY": f":{number}", "SDL_VIDEODRIVER": "x11"}
    server.terminate()
    server.wait()


def pressed(display: dict[str, str], key: str) -> None:
    """Press a key; the only window has the focus."""
    subprocess.run(["xdotool", "key", key], env=display, capture_output=True, check=False)


@pytest.mark.timeout(180)
def test_a_person_plays_against_an_agent(display: dict[str, str], tmp_path: Path) -> None:
    env = "pettingzoo/classic/tictactoe_v3"
    trainer = mt.DecentralizedTrainer(
        env, steps_per_train=32, episodes_per_test=2, run_dir="run", progress=False, seed=0
    )
    trainer.train(mt.make_agents("dqn", env, seed=0), [1, 1], plot=False)
    command = [sys.executable, "-m", "marltrain", "play", "run", "--human", "player_1", "--seed", "0", "--fps", "20"]
    game = subprocess.Popen(command, env=display, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    end = time.monotonic() + 120
    while game.poll() is None and time.monotonic() < end:
        for key in "012345678":  # moves of squares that are taken are passed over
            pressed(display, key)
    if game.poll() is None:
        game.kill()
    out, _ = game.communicate(timeout=10)
    assert game.returncode == 0, out
    assert out.startswith("player_1: 0 = action 0") and "episode 0: returns" in out, out
