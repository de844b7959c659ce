"""Matrix games from the literature."""

from __future__ import annotations

import numpy as np

from marltrain.envs.native.arguments import number, whole
from marltrain.envs.native.matrix.repeated import MatrixGame


class PrisonersDilemma(MatrixGame):
    """Cooperate (0) or defect (1), with the payoffs of Axelrod's tournaments (1984): 5, 3, 1 and 0."""

    name = "prisoners_dilemma_v1"

    def __init__(self, num_rounds: int = 25, observe_last_actions: bool = True) -> None:
        """Declare the game; see MatrixGame."""
        super().__init__([[[3, 3], [0, 5]], [[5, 0], [1, 1]]], num_rounds, observe_last_actions)


class StagHunt(MatrixGame):
    """Stag (0) pays 2 if both players choose it and else 0; hare (1) always pays 1. OpenSpiel's matrix_sh."""

    name = "stag_hunt_v1"

    def __init__(self, num_rounds: int = 25, observe_last_actions: bool = True) -> None:
        """Declare the game; see MatrixGame."""
        super().__init__([[[2, 2], [0, 1]], [[1, 0], [1, 1]]], num_rounds, observe_last_actions)


class RockPaperScissors(MatrixGame):
    """Rock (0), paper (1), scissors (2): +1 for the winner, -1 for the loser; OpenSpiel's matrix_rps."""

    name = "rock_paper_scissors_v1"

    def __init__(self, num_rounds: int = 25, observe_last_actions: bool = True) -> None:
        """Declare the game; see MatrixGame."""
        wins = [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]
        super().__init__([[[own, -own] for own in row] for row in wins], num_rounds, observe_last_actions)


class Climbing(MatrixGame):
    """Climbing game: equal payoffs; a large loss lies between the safe and the best choice (Claus, Boutilier 1998)."""

    name = "climbing_v1"

    def __init__(self, num_rounds: int = 25, observe_last_actions: bool = True) -> None:
        """Declare the game; see MatrixGame."""
        super().__init__([[11, -30, 0], [-30, 7, 6], [0, 0, 5]], num_rounds, observe_last_actions)


class Penalty(MatrixGame):
    """Penalty game: equal payoffs; two optimal joint actions, and a loss for mixing them (Claus, Boutilier 1998)."""

    name = "penalty_v1"

    def __init__(self, k: float = -100.0, num_rounds: int = 25, observe_last_actions: bool = True) -> None:
        """Declare the game; `k`: the payoff of mixed joint actions, at most 0. See MatrixGame."""
        k = number("k", k, high=0.0)
        super().__init__([[10, 0, k], [0, 2, 0], [k, 0, 10]], num_rounds, observe_last_actions)


class Levers(MatrixGame):
    """Lever game: all players receive the number of different levers pulled, over the number of players.

    Sukhbaatar et al. 2016 (arXiv:1605.07736, section 4.1), with as many levers as players, and without a pool of
    players. The observation does not tell the players apart.
    """

    name = "levers_v1"

    def __init__(self, num_players: int = 4, num_rounds: int = 1, observe_last_actions: bool = False) -> None:
        """Declare the game of 2 to 6 players; see MatrixGame."""
        count = whole("num_players", num_players, 2, 6)
        pulled = np.indices((count,) * count).reshape(count, -1)
        different = [len(set(joint)) / count for joint in pulled.T.tolist()]
        payoffs = np.repeat(different, count).reshape((count,) * (count + 1))
        super().__init__(payoffs, num_rounds, observe_last_actions)
