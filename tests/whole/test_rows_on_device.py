"""Runs whose batches are gathered on the device end with the same agents, to the bit, as those of main memory.

A CPU stands for the GPU, see `cpu_as_gpu`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import marltrain as mt
from marltrain.jit.notices import listening
from marltrain.policies.backends.torch import Backend
from marltrain.policies.backends.torch.places import cpu_as_gpu
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture
from marltrain.policies.backends.torch.row_memory import RowMemory
from marltrain.policies.learner import rows_on_device
from marltrain.policies.memory.mirror import Mirror
from tests.gpu.runs import SPREAD, different, env_of, on_policy
from tests.gymnasium_toys import Film
from tests.tiers import LONG

ENVS, STEPS = 3, 320
GRU = mt.GRU((8,), units=8, sequence_length=4)
REPLAY = {"capacity": 200, "learning_starts": 60}
PIXELS = {**REPLAY, "network": mt.CNN((8,), filters=((4, 4, 2),))}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", REPLAY),
    "three steps": ("dqn", {**REPLAY, "n_step": 3}),
    "priorities": ("rainbow", REPLAY),
    "sequences": ("dqn", {**REPLAY, "network": GRU}),
    "images": ("dqn", PIXELS),
    "stacked images": ("dqn", PIXELS),
    "team": ("qmix", REPLAY),
    "team of sequences": ("qmix", {**REPLAY, "network": GRU}),
    "sac": ("sac", REPLAY),
    "ppo": ("ppo", {}),
    "ppo with sequences": ("ppo", {"network": GRU}),
    "ppo with replayed rows": ("ppo", {"memory": mt.Replay(prioritized=mt.Prioritized())}),
    "one agent for all": ("mappo", {"share": True, "identify": True}),
    "mappo": ("mappo", {}),
    "team rollouts": ("vdac", {}),
    "masks of a team": ("qmix", REPLAY),
    "masks": ("maddpg", REPLAY),
    "masks of rollouts": ("mappo", {}),
    "captured": ("dqn", {**REPLAY, "jit_compile": True}),
    "captured rollouts": ("ppo", {"jit_compile": True}),
}
LATER = ("three steps", "images", "team of sequences", "sac", "mappo", "masks")
"""Cases of the long tier: their batches are gathered as those of others."""
ON_HOST: dict[str, tuple[str, dict[str, Any], str]] = {
    "normalized": ("ppo", {"normalize_observations": True}, "observations are normalized"),
    "goals": ("trl", REPLAY, "its goals are replaced"),
    "reservoir": ("nfsp", REPLAY, "it learns from a reservoir"),
    "rewards": ("ppo", {"reward_model": lambda observation, action, reward: reward}, "a reward model"),
}


class Small(Film):
    def __init__(self) -> None:
        super().__init__(length=9, size=12)


class Masks(mt.Callback):
    """Lets the first two players learn in turns."""

    def on_collect(self, moment: Any) -> None:
        late = moment.env_steps // 72 % 2
        moment.trainer.learning_mask = [1 - late, late, 1]


def trained(case: str, steps: int, folder: Path | None = None, *, resume: bool = False) -> list[mt.Agent]:
    """Train agents of a case."""
    name, settings = CASES[case] if case in CASES else ON_HOST[case][:2]
    env: Any = Small if "images" in case else SPREAD if "masks" in case else env_of(name)
    if case == "stacked images":
        env = mt.FrameStack(env, 3)
    agents = mt.make_agents(name, env, seed=3, device="cpu", **{"network": mt.MLP((16, 16)), **settings})
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=ENVS, update_freq=66 if on_policy(name) else 12, batch_size=16, test_freq=None, seed=5,
        steps_per_train=steps, run_dir=False if folder is None else folder, progress=False,
        team_reward="mean" if env == SPREAD else None,
        callbacks=[*([Masks()] if "masks" in case else []), *([mt.Checkpoint(every_steps=90)] if folder else [])],
    )  # fmt: skip
    trainer.train(agents, [1] * len(agents), plot=False, resume=folder if resume else None)
    return agents


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the calls of mirrors; batches of any size are gathered on the device."""
    monkeypatch.setattr(rows_on_device, "LEAST_BYTES", 1)
    made, read = [0], Mirror.read

    def counted(self: Mirror, wanted: Any) -> Any:
        made[0] += 1
        return read(self, wanted)

    monkeypatch.setattr(Mirror, "read", counted)
    return made


@pytest.mark.parametrize("case", [case for case in CASES if LONG or case not in LATER])
def test_agents_are_equal(case: str, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with cpu_as_gpu(RecordedCapture()):
        there = trained(case, STEPS)
        assert calls[0] > 2
        before = calls[0]
        monkeypatch.setattr(Backend, "row_memory", lambda self: None)
        here = trained(case, STEPS)
        assert calls[0] == before
    assert different(here, there) == []


@pytest.mark.parametrize("case", ["dqn", "ppo", *LONG * ["priorities", "team", "team rollouts"]])
def test_a_resumed_run_is_equal(case: str, tmp_path: Path, calls: list[int]) -> None:
    with cpu_as_gpu(RecordedCapture()):
        whole = trained(case, STEPS)
        trained(case, STEPS - 150, tmp_path)
        before = calls[0]
        resumed = trained(case, STEPS, tmp_path, resume=True)
        assert calls[0] > before
    assert different(whole, resumed) == []


@pytest.fixture
def lines() -> Any:
    """The notices of a run, but those of compilations."""
    found: list[str] = []
    with listening(lambda line: None if line.startswith("compil") else found.append(line)):
        yield found


@pytest.mark.parametrize("case", ON_HOST)
def test_other_batches_are_gathered_in_main_memory(case: str, calls: list[int], lines: list[str]) -> None:
    """A line says why, once."""
    with cpu_as_gpu(RecordedCapture()):
        trained(case, 140)
    assert calls == [0]
    (line,) = lines
    assert "are gathered in main memory and sent to the GPU" in line and ON_HOST[case][2] in line


def test_rows_that_do_not_fit_stay_in_main_memory(
    calls: list[int], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowMemory, "free", lambda self: 11_000.0)
    with cpu_as_gpu(RecordedCapture()):
        trained("dqn", 80)
    assert calls == [0] and "more than half of the 0.0 GB that are free on cpu" in lines[0]


@pytest.mark.parametrize(("case", "bytes_of_a_batch"), [("dqn", 2 * 16 * 4 * 4), ("images", 2 * 16 * 12 * 12)])
def test_small_batches_of_replay_are_gathered_in_main_memory(
    case: str, bytes_of_a_batch: int, calls: list[int], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is usual, and no line says it; rollouts of the same size are gathered on the device."""
    with cpu_as_gpu(RecordedCapture()):
        monkeypatch.setattr(rows_on_device, "LEAST_BYTES", bytes_of_a_batch + 1)
        trained(case, 80)
        assert calls == [0] and lines == []
        monkeypatch.setattr(rows_on_device, "LEAST_BYTES", bytes_of_a_batch)
        trained(case, 80)
        assert calls[0] > 0
        calls[0] = 0
        monkeypatch.setattr(rows_on_device, "LEAST_BYTES", 2**40)
        trained("ppo", 80)
        assert calls[0] > 0


def test_a_run_on_a_cpu_has_no_tables(calls: list[int], lines: list[str]) -> None:
    trained("dqn", 80)
    assert calls == [0] and lines == []
