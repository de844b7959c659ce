"""The native games that marltrain ships: name -> module and class."""

from __future__ import annotations

import importlib

from marltrain.envs.native.game import Game

GAMES = {
    "Acrobot-v1": "control.acrobot:Acrobot",
    "CartPole-v1": "control.cartpole:CartPole",
    "MountainCar-v0": "control.mountain_car:MountainCar",
    "Pendulum-v1": "control.pendulum:Pendulum",
    "climbing_v1": "matrix.named:Climbing",
    "connect_four_v3": "board.connect_four:ConnectFour",
    "foraging_v3": "foraging.level_based:Foraging",
    "kuhn_poker_v1": "cards.kuhn_poker:KuhnPoker",
    "leduc_poker_v1": "cards.leduc_poker:LeducPoker",
    "levers_v1": "matrix.named:Levers",
    "matrix_game_v1": "matrix.repeated:MatrixGame",
    "overcooked_v1": "kitchen.overcooked:Overcooked",
    "penalty_v1": "matrix.named:Penalty",
    "prisoners_dilemma_v1": "matrix.named:PrisonersDilemma",
    "rock_paper_scissors_v1": "matrix.named:RockPaperScissors",
    "rware_v2": "warehouse.rware:Warehouse",
    "simple_adversary_v3": "particle.simple_adversary:SimpleAdversary",
    "simple_crypto_v3": "particle.simple_crypto:SimpleCrypto",
    "simple_push_v3": "particle.simple_push:SimplePush",
    "simple_reference_v3": "particle.simple_reference:SimpleReference",
    "simple_speaker_listener_v4": "particle.simple_speaker_listener:SimpleSpeakerListener",
    "simple_spread_v3": "particle.simple_spread:SimpleSpread",
    "simple_tag_v3": "particle.simple_tag:SimpleTag",
    "simple_v3": "particle.simple:Simple",
    "simple_world_comm_v3": "particle.simple_world_comm:SimpleWorldComm",
    "smax_v2": "combat.smax:Smax",
    "stag_hunt_v1": "matrix.named:StagHunt",
    "tictactoe_v3": "board.tictactoe:TicTacToe",
}

ORIGINALS = {
    "Acrobot-v1": "gymnasium/Acrobot-v1",
    "CartPole-v1": "gymnasium/CartPole-v1",
    "MountainCar-v0": "gymnasium/MountainCar-v0",
    "Pendulum-v1": "gymnasium/Pendulum-v1",
    "connect_four_v3": "pettingzoo/classic/connect_four_v3",
    "simple_adversary_v3": "mpe2/simple_adversary_v3",
    "simple_crypto_v3": "mpe2/simple_crypto_v3",
    "simple_push_v3": "mpe2/simple_push_v3",
    "simple_reference_v3": "mpe2/simple_reference_v3",
    "simple_speaker_listener_v4": "mpe2/simple_speaker_listener_v4",
    "simple_spread_v3": "mpe2/simple_spread_v3",
    "simple_tag_v3": "mpe2/simple_tag_v3",
    "simple_v3": "mpe2/simple_v3",
    "simple_world_comm_v3": "mpe2/simple_world_comm_v3",
    "tictactoe_v3": "pettingzoo/classic/tictactoe_v3",
}
"""Originals that draw pictures, by the native game: their players, spaces and arguments are equal.

lbforaging draws in an OpenGL window only, OpenSpiel's card games not at all: those games draw text.
"""


def find(name: str) -> type[Game]:
    """Return the class of a game by its name in GAMES. Imports numba."""
    module, _, attribute = GAMES[name].partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), attribute)
