import pytest

from marltrain.trainer.reporting import run_view
from marltrain.trainer.reporting.run_view import Curve, RunView, clock
from marltrain.trainer.reporting.text_charts import plain, width_of


def view(players=2, **more):
    """A view after a test at 0, a point of training at 2,048 and a test at 4,000, half of its budget."""
    result = RunView("game - run", {"episodes": None, "env_steps": 8000, "updates": None}, **more)
    names = [f"player_{i}" for i in range(players)]
    result.count(0, 0, 0, 0.0)
    result.add({"test/metric": -3.0} | {f"test/return/{name}": float(i) for i, name in enumerate(names)}, 0)
    trained = {f"{name}/{what}": 1.5 for name in names for what in ("entropy", "loss/total", "loss/actor", "q_mean")}
    means = {f"train/return/{name}": 0.5 for name in names}
    result.add({**trained, **means, "train/env_steps_per_second": 1234.0, "train/episodes": 20.0}, 2048)
    result.add({"test/metric": -2.0}, 4000)
    result.count(20, 4000, 0, 60.0)
    return result


@pytest.mark.parametrize("players", [1, 3, 40])
@pytest.mark.parametrize("size", [(40, 12), (80, 23), (100, 30), (200, 49)])
def test_every_size_is_filled_exactly(players, size):
    for result in (view(players), RunView("empty", {})):
        lines = result.lines(*size)
        assert len(lines) == size[1]
        assert {width_of(line) for line in lines} == {size[0]}


def test_dashboard_shows_counts_metric_returns_and_losses():
    text = plain(view(note="testing 3/50 episodes").lines(100, 30))
    for part in (
        "game - run", "20 episodes, 4,000 env steps, 1,234 env steps/s   testing 3/50 episodes",
        " 50% ━", "1:00 < 1:00",
        "metric -2, best -2", "player_1         0.5         1",
        "loss/actor                           1.5         1.5",
    ):  # fmt: skip
        assert part in text, part
    assert text.index("loss/total") < text.index("entropy"), "losses first"


def test_what_does_not_fit_is_counted():
    text = plain(view(players=40).lines(80, 24))
    assert "more players" in text and "and 38 more" in text
    assert "more numbers" in plain(view().lines(80, 16))


def test_time_left_is_told_from_one_percent_on():
    result = RunView("game", {"env_steps": 8000})
    for env_steps in (0, 80):
        result.count(0, env_steps, 0, env_steps / 8)
        assert " < " not in plain(result.lines(80, 24))
    result.count(0, 81, 0, 81 / 8)  # 8 steps a second
    assert "0:10 < 16:30" in plain(result.lines(80, 24))  # 7,919 / 8 = 989.9 s


def test_the_time_left_of_a_resumed_run_is_that_of_its_own_speed():
    """4,000 of 8,000 steps were made in 10,000 s; resumed, it makes 400 in 40 s: 3,600 more take 360 s."""
    result = RunView("game", {"env_steps": 8000})
    result.count(0, 4000, 9, 10_000.0)
    result.count(0, 4400, 9, 10_040.0)
    assert "2:47:20 < 6:00" in plain(result.lines(80, 24))


def test_the_state_in_one_line():
    assert view().text() == (
        " 50%, 20 episodes, 4,000 env steps, 1,234/s, metric -2 (best -2), return/player_0 0.5, return/player_1 0.5, "
        "loss 1.5, 1:00"
    )
    assert RunView("empty", {}).text() == "0 episodes, 0 env steps, 0:00"


def test_long_curves_keep_their_ends(monkeypatch):
    monkeypatch.setattr(run_view, "MOST_POINTS", 8)
    points = Curve()
    for i in range(100):
        points.add(i, float(i))
    assert len(points.steps) <= 8 and points.steps == points.values
    assert (points.steps[0], points.steps[-1]) == (0, 99)


def test_a_resumed_run_replaces_the_points_after_its_checkpoint():
    result = view()
    result.cut(2049)
    assert result.metric.steps == [0] and result.loss.steps == [2048]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (61, "1:01"), (3661, "1:01:01")])
def test_duration_format(seconds, text):
    assert clock(seconds) == text


def test_names_act_on_no_terminal():
    view = RunView("env\x1b[2J - run\n", {"episodes": None, "env_steps": 100, "updates": None}, note="process \x1b[1m")
    view.add({"train/return/\x1b[31mred": 1.5, "\x1b[31mred/loss/total": 0.5, "test/return/\u202ea": 2.0}, 10)
    text = plain(view.lines(120, 40)) + view.text()
    assert all(character.isprintable() or character == "\n" for character in text)
    for name in ("env\\x1b[2J - run\\n", "\\x1b[31mred", "\\u202ea", "process \\x1b[1m"):
        assert name in text
    assert {len(line) for line in plain(view.lines(120, 40)).splitlines()} == {120}
