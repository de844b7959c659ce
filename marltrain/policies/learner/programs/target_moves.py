"""TargetMoves: the moves of the target networks of a team, by a program."""

from __future__ import annotations

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.learner.trained_team import OF_TEAM, TrainedTeam
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.steps import write_follow
from marltrain.policies.tape.assembly.table import Table
from marltrain.policies.tape.program import Program


class TargetMoves:
    """The program that moves the target networks of all agents, and of the team, towards the online networks.

    It reads and writes their weights where they are.
    shares: [K + 1] float32, by which the next run moves those of the agents, and those of the team; 0 leaves them.
    """

    def __init__(self, team: TrainedTeam) -> None:
        """Bind the weights; they stay where they are while the program lives."""
        pairs = team.targets()
        self.shares = np.zeros(team.num_agents + 1, np.float32)
        self.execution = Program(_table(team, pairs)).execution()
        arrays = {f"weights/{name}": team.nets[name].numbers() for pair in pairs for name in pair}
        kinds = {target.split("/")[0] for target, _ in pairs}
        own = {**dict(zip(team.members, team.own, strict=True)), OF_TEAM: slice(team.num_agents, None)}
        self.execution.bind(arrays | {f"share/{key}": self.shares[own[key], None] for key in kinds})

    def run(self, share: Array, of_team: float) -> None:
        """Move the target networks of the agents by `share` [K], and those of the team."""
        self.shares[:-1], self.shares[-1] = share, of_team
        self.execution.run()


def _table(team: TrainedTeam, pairs: list[tuple[str, str]]) -> Table:
    """Return the table for pairs of a target network and the network that it follows, of all agents at once."""
    assembler = Assembler({}, by_agent=False)
    for target, online in pairs:
        assembler.segment(f"weights/{online}", team.nets[online].flat.shape, "float", "after")
        write_follow(assembler, target, online, f"share/{target.split('/')[0]}")
    return assembler.table()
