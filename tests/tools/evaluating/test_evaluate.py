from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marltrain as mt
from marltrain.cli import main
from marltrain.cli.evaluate import _opponents as opponents_of
from marltrain.tools.evaluating.pictures import draw_matrix, draw_returns, draw_wins
from marltrain.tools.evaluating.replays import read_replay
from marltrain.tools.evaluating.text import as_text
from marltrain.trainer.reporting.figures import png_of
from tests.envs.test_recorded import Counting
from tests.toys import Identity, Relay
from tests.trainer.evaluating.test_evaluation_sampled import OnlyWhenExploring

TICTACTOE = "marltrain/tictactoe_v3"


def ordered(squares):
    """Return an agent that takes the first free square of an order."""

    def act(observation, legal):
        return next(square for square in squares if legal[square])

    return mt.FunctionAgent(act)


def test_wins_counted_by_hand():
    """Player 1 wins each of these games:

    rows, rows: 0 1 2 3 4 5 6: 2, 4, 6 in 7 moves.  rows, columns: 0 3 1 6 2: 0, 1, 2 in 5.
    columns, rows: 0 1 3 2 6: 0, 3, 6 in 5.  columns, columns: 0 3 6 1 4 7 2: 2, 4, 6 in 7.
    """
    rows, columns = ordered(range(9)), ordered([0, 3, 6, 1, 4, 7, 2, 5, 8])
    found = mt.evaluate(
        [rows, rows], env=TICTACTOE, against={"columns": [columns, columns]}, episodes=3, record=["steps"]
    )
    assert [match.agents for match in found.matches] == [
        ("agents", "agents"), ("agents", "columns"), ("columns", "agents"), ("columns", "columns"),
    ]  # fmt: skip
    assert found.table["length"].tolist() == [7, 7, 5, 5, 5, 5, 7, 7] == found.table["record/steps"].tolist()
    shares = found.table[["won", "drawn", "lost"]].to_numpy().tolist()
    assert shares == [[1, 0, 0], [0, 0, 1]] * 4
    assert found.table["return"].tolist() == [1, -1] * 4
    assert found.matrix("won").to_numpy().tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert found.episodes["outcome/player_1"].tolist() == [1] * 12


def test_lists_of_agents_without_a_name_are_numbered():
    found = mt.evaluate([mt.RandomAgent()] * 2, env=TICTACTOE, episodes=1, against=["random", [mt.RandomAgent()] * 2])
    assert found.competitors == ("agents", "random", "agents 3")
    with pytest.raises(mt.ConfigError, match="a list with one agent per player or a mapping by player, got"):
        mt.evaluate(mt.RandomAgent(), env=TICTACTOE)  # type: ignore[arg-type]


def test_opponents_on_the_command_line(tmp_path, monkeypatch):
    """Runs whose folders share a name; a folder whose name holds "="."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rate=1").mkdir()
    assert opponents_of(["random", "old=a/dqn", "b/dqn", "rate=1"]) == {
        "random": "random", "old": "a/dqn", "dqn": "b/dqn", "rate=1": "rate=1",
    }  # fmt: skip
    for wrong in (["a/dqn", "b/dqn"], ["=a"], ["old="]):
        with pytest.raises(mt.ConfigError, match=r"twice: give different names|takes random, RUN or NAME=RUN"):
            opponents_of(wrong)


def test_a_second_evaluation_leaves_no_file_of_the_first(tmp_path):
    agents = [mt.RandomAgent()] * 2
    mt.evaluate(agents, env=TICTACTOE, episodes=1, against=["random"], out=tmp_path)
    optional = {"wins.png", "cross_play.csv", "cross_play.png"}
    assert optional <= {path.name for path in tmp_path.iterdir()}
    mt.evaluate([mt.RandomAgent()], env=Identity, env_args={"players": 1}, episodes=1, out=tmp_path)
    assert not optional & {path.name for path in tmp_path.iterdir()}


def test_cross_play_by_hand():
    """0 8 1 3 2: rows win as first; 8 0 3 1 5 2: and as second.  8 0 is what weak does against itself: 8 3 5 7 1 2 0 4:
    the second, with 3, 7, 2, 4, no line; then 6: the first, with 8, 5, 1, 0, 6, no line: a draw.
    """
    rows, weak = ordered(range(9)), ordered([8, 3, 5, 7, 1, 2, 0, 4, 6])
    found = mt.evaluate([rows, rows], env=TICTACTOE, against={"weak": [weak, weak]}, episodes=1)
    assert found.matrix("won").to_numpy().tolist() == [[0.5, 1.0], [0.0, 0.0]]
    assert found.matrix().to_numpy().tolist() == [[0.0, 1.0], [-1.0, 0.0]]
    assert found.table["drawn"].tolist() == [0, 0, 0, 0, 0, 0, 1, 1]


def test_grid_of_arguments():
    agents = [mt.RandomAgent()]
    grid = {"length": [2, 5], "players": [1]}
    found = mt.evaluate(agents, env=Identity, grid=grid, episodes=4, seed=7)
    assert found.table["length"].tolist() == [2, 5] == found.table["grid/length"].tolist()
    assert [match.cell for match in found.matches] == [{"length": 2, "players": 1}, {"length": 5, "players": 1}]
    again = mt.evaluate(agents, env=Identity, grid=grid, episodes=4, seed=7, vector="subproc", num_workers=2)
    pd.testing.assert_frame_equal(again.episodes, found.episodes)
    assert found.episodes["seed"].nunique() == 4  # equal seeds in both cells
    assert png_of(draw_returns(found))[1:4] == b"PNG"


def test_agents_and_opponents_explore_in_a_sampled_evaluation_only():
    """Identity gives 1 for the symbol, in each of 2 steps; without exploration, the agents name another one."""
    agents = [OnlyWhenExploring(), OnlyWhenExploring()]
    for sampled, expected in ((False, 0), (True, 2)):
        found = mt.evaluate(
            agents, env=Identity, env_args={"length": 2}, against={"same": agents}, episodes=3, sampled=sampled
        )
        assert found.table["return"].tolist() == [expected] * 8
        assert as_text(found).startswith(f"4 match(es), seed 0{', sampled actions' * sampled}\n")


class Parity(ParallelEnv):
    """Player "odd" wins an odd number of steps, else player "even"; observations and actions change nothing."""

    metadata: ClassVar[dict[str, Any]] = {"name": "parity"}

    def __init__(self, length: int = 1) -> None:
        self.length, self.possible_agents = length, ["odd", "even"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t, self.winner = list(self.possible_agents), 0, None
        return dict.fromkeys(self.agents, 0), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        over, players = self.t == self.length, list(self.agents)
        self.winner = players[1 - self.length % 2] if over else None
        rewards = {name: 0.0 if not over else 1.0 if name == self.winner else -1.0 for name in players}
        self.agents = [] if over else players
        ended = dict.fromkeys(players, over)
        return dict.fromkeys(players, 0), rewards, ended, dict.fromkeys(players, False), {name: {} for name in players}


def test_wins_over_a_grid_counted_by_hand(tmp_path):
    """Of 1, 2 and 5 steps, "odd" wins the first and the last game, whoever plays."""
    agents = [mt.RandomAgent(), mt.RandomAgent()]
    found = mt.evaluate(
        agents, env=Parity, grid={"length": [1, 2, 5]}, against=["random"], sides=["odd"], episodes=3,
        record=["winner"], out=tmp_path,
    )  # fmt: skip
    won = found.table.pivot_table(index="grid/length", columns="player", values="won")
    assert won["odd"].tolist() == [1, 0, 1] and won["even"].tolist() == [0, 1, 0]
    assert (found.table["episodes"] == 3).all() and len(found.table) == 3 * 2 * 2 * 2
    winners = {1: "odd", 2: "even", 5: "odd"}
    assert [winners[n] for n in found.episodes["grid/length"]] == found.episodes["record/winner"].tolist()
    read = pd.read_parquet(tmp_path / "table.parquet")
    assert read["won"].tolist() == found.table["won"].tolist() == pd.read_csv(tmp_path / "table.csv")["won"].tolist()


def test_arguments_that_change_the_spaces_are_refused_before_anything_is_played(monkeypatch):
    env = "marltrain/simple_spread_v3"
    agents = mt.make_agents("ppo", env, env_args={"N": 3}, seed=0)
    monkeypatch.setattr("marltrain.tools.evaluating.evaluate.make_vector", None)
    with pytest.raises(mt.ConfigError) as caught:
        mt.evaluate(agents, env=env, grid={"max_cycles": [25], "N": [3, 5]})
    text = str(caught.value)
    assert "cannot play with max_cycles=25, N=5: agents: marltrain/simple_spread_v3 has 5 players" in text
    assert "observes Box(-inf, inf, (30,), float32), and its agent was made for Box(-inf, inf, (18,)" in text
    with pytest.raises(mt.ConfigError, match=r"takes no argument 'M'"):
        mt.evaluate(agents, env=env, grid={"M": [3]})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"grid": {"length": 3}}, "must be a list of values"),
        ({"grid": {"length": [3, 3]}}, "names a value twice"),
        ({"against": "random"}, "must be a list of opponents"),
        ({"against": ["random", "random"]}, "twice"),
        ({"against": {"x": 3}}, "expected 'random', the folder of a run or a list of agents"),
        ({"sides": ["bot"]}, "'bot' matches no player that is left. Did you mean 'bob'"),
        ({"against": ["random"], "sides": ["*"]}, "has one side"),
        ({"episodes": 0}, "episodes must be"),
        ({"record": ["lenght"]}, "Did you mean 'length'"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(mt.ConfigError, match=words):
        mt.evaluate([mt.RandomAgent() for _ in range(3)], env=Relay, **arguments)


def test_sides_of_several_players():
    """One competitor holds ann and bob, the other one cat: four line-ups of two competitors."""
    agents = [mt.RandomAgent() for _ in range(3)]
    found = mt.evaluate(agents, env=Relay, against=["random"], sides=["[ab]*"], episodes=2)
    assert found.sides == (("ann", "bob"), ("cat",))
    assert [match.agents for match in found.matches] == [
        ("agents",) * 3, ("agents", "agents", "random"), ("random", "random", "agents"), ("random",) * 3,
    ]  # fmt: skip
    by_hand = found.episodes[found.episodes["match"] == 1][["return/ann", "return/bob"]].to_numpy().mean()
    by_hand += found.episodes.loc[found.episodes["match"] == 2, "return/cat"].mean()
    assert found.matrix().loc["agents", "random"] == pytest.approx(by_hand / 2)
    with pytest.raises(mt.ConfigError, match="no winners"):
        found.matrix("won")


@pytest.mark.filterwarnings("ignore:max_test_steps=26 cut a test")
def test_files_and_replays(tmp_path, monkeypatch):
    agents, out = [mt.RandomAgent() for _ in range(3)], tmp_path / "out"
    found = mt.evaluate(
        agents, env=Counting, grid={"truncate": [False, True]}, episodes=9, num_envs=2, record=["winner", "clock"],
        max_steps=26, out=out,
    )  # fmt: skip
    for name, table in (("table", found.table), ("episodes", found.episodes)):
        pd.testing.assert_frame_equal(pd.read_parquet(out / f"{name}.parquet"), table)
        assert len(pd.read_csv(out / f"{name}.csv")) == len(table)
    finished = found.episodes[~found.episodes["unfinished"]]
    assert 4 <= len(finished) < len(found.episodes)
    assert (found.episodes["seed"] >= 0).equals(~found.episodes["unfinished"])
    row = finished.iloc[-1]
    place = int(row["match"]), int(row["episode"])
    shown = mt.replay(out, *place, env=Counting, out=tmp_path / "r.gif")
    assert shown.tolist() == [row[f"return/{player}"] for player in found.players]
    assert (tmp_path / "r.gif").stat().st_size > 0
    data = read_replay(out, *place)
    assert (data.seed, data.env_args) == (row["seed"], {"truncate": True})
    with pytest.raises(mt.ConfigError, match="match 0 holds no episode 99"):
        read_replay(out, 0, 99)
    with pytest.raises(mt.ConfigError, match="No file may choose what code is run"):
        mt.replay(out)
    with pytest.raises(mt.EnvError, match="does not repeat"):  # truncated after as many moves, with other rewards
        mt.replay(out, *place, env=Other, out=tmp_path / "r.gif")
    (out / "replays" / "replays.safetensors").write_bytes(b"damaged")
    with pytest.raises(mt.SaveError, match=r"replays\.safetensors"):
        read_replay(out)


class Other(Counting):
    """A relay of other rewards."""

    def step(self, action):
        super().step(action)
        self.rewards = {name: value + 1 for name, value in self.rewards.items()}
        self._cumulative_rewards = {name: value + 1 for name, value in self._cumulative_rewards.items()}


def test_pictures():
    agent = ordered(range(9))
    found = mt.evaluate([agent, agent], env=TICTACTOE, against=["random"], episodes=2)
    for draw in (draw_returns, draw_wins, draw_matrix):
        assert png_of(draw(found))[1:4] == b"PNG"


def test_command(tmp_path, capsys):
    run, out = tmp_path / "mine", tmp_path / "out"
    trainer = mt.DecentralizedTrainer(
        TICTACTOE, steps_per_train=64, test_freq=None, run_dir=run, progress=False, seed=0
    )
    trainer.train(mt.make_agents("dqn", TICTACTOE, share=True, seed=0), [1, 1], plot=False)
    assert main(["eval", str(run), "--against", "random", "--episodes", "4", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("4 match(es), seed 0\n\nplayer")
    assert "share of wins of  vs mine  vs random" in printed
    assert {path.name for path in out.iterdir()} == {
        "table.csv", "table.parquet", "episodes.csv", "episodes.parquet", "cross_play.csv", "cross_play.png",
        "returns.png", "wins.png", "replays",
    }  # fmt: skip
    assert main(["eval", str(run), "--episodes", "2", "--sampled"]) == 0
    assert capsys.readouterr().out.startswith("1 match(es), seed 0, sampled actions\n")
    assert main(["eval", str(run), "--grid", "size=3"]) == 2
    assert "takes no argument 'size'" in capsys.readouterr().err
    assert main(["eval", str(run), "--grid", "size"]) == 2
    assert "--grid takes ARG=VALUE,VALUE" in capsys.readouterr().err
    assert main(["replay", str(out), "--out", str(tmp_path / "x.gif")]) == 0
    assert (tmp_path / "x.gif").exists()
    assert main(["replay", str(out), "--text"]) == 0
    printed = capsys.readouterr().out
    assert "\n\nstep 5: player_1 " in printed and "\n---+---+---\n" in printed


def test_values_of_a_grid():
    from marltrain.cli.evaluate import _grid

    assert _grid(["N=3,5", "size=(2, 3),(4, 5)", "mode=fast,slow", "flag=true,false"]) == {
        "N": [3, 5], "size": [(2, 3), (4, 5)], "mode": ["fast", "slow"], "flag": [True, False],
    }  # fmt: skip
    assert np.shape(_grid(["x=0.5"])["x"]) == (1,)
