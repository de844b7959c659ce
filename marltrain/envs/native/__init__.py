'''Batched games compiled with numba: millions of env steps a second, equal to their originals step by step.

    make_vector("marltrain/simple_spread_v3", {"N": 3}, 16)     a batch, as trainers use it
    parallel_env("simple_spread_v3", N=3)                       one environment, for other libraries

How to write one
----------------
A game is a class with a constructor that takes the original's arguments, and a few static methods that say the rules of
**one** environment. All else is supplied: the loop over environments, restarting, seeds, limits, checks of actions,
final observations, `Step` arrays, saving, threads, and objects for PettingZoo and Gymnasium.

    class Race(Game):
        """First to reach 10 wins; a step is 1, or 0 to 3 by chance."""

        name = "race_v0"                                    # the original's name, also the one in `catalogue.GAMES`
        api = "parallel"                                    # what the original is: "parallel", "turns", "gymnasium"

        def __init__(self, goal: int = 10, max_cycles: int = 50) -> None:
            sides = (spaces.Box(0, np.inf, (2,), np.float32), spaces.Discrete(2))
            super().__init__(
                {"player_0": sides, "player_1": sides},     # name -> (observation space, action space), in order
                fields={"place": (float, 2)},               # what one environment remembers: see below
                rules={"goal": whole("goal", goal)},        # numbers, truth values, arrays of these: read only
                limit=whole("max_cycles", max_cycles),      # `rules.limit`: then everybody is truncated
                state_size=4,                               # numbers in the global state, if there is one
            )

        @staticmethod
        def reset(s, rules):
            s.place[:] = 0.0

        @staticmethod
        def step(s, rules):
            for p in range(2):
                s.place[p] += 1.0 if s.action[p] == 0 else integer(s, 4)
                if s.place[p] >= rules.goal:
                    s.reward[p] = 1.0
                    s.over[:] = TERMINATED

        @staticmethod
        def observe(s, rules, p, obs):
            obs[0], obs[1] = s.place[p], s.place[1 - p]

**`s`** is the environment's record: the game's own fields, and the core's:

    action   [P] int64 (Discrete, from 0), or [P, widest] float32 (Box)    set before `step`; of who has the turn
    reward   [P] float64     zero before `step`; write what each player receives with this step, whoever moved
    over     [P]             zero before `step`; write TERMINATED or TRUNCATED where a player's part ends.
                             `s.over[:] = TERMINATED` ends the episode. A termination outdoes the limit
    turn     [P]             who must act next. One for all at the start of an episode; a turn-based game sets it in
                             `reset` and `step`. An ended player's turn is taken away by the core
    present  [P]             who is in the episode. One for all at the start; a game may clear it in `reset` (absent),
                             and set it in `step` (arrives; set `turn`, too). Never clear it in `step`: use `over`
    steps                    env steps of this episode, the current one included
    random, seed, episode, ...                                             the core's own; leave them alone

**Fields** are given as dtype, (dtype, shape) or (dtype, shape, (low, high)); bounds are inclusive, one number or an
array each. Truth values are int8 in records: 0 or 1. Own fields are zero in a new batch and then keep what they hold:
`reset` sets all that an episode must not inherit. A field that `reset` leaves alone lasts for the whole run.

**Saved states** may be forged. What is restored or set is held against the fields' bounds, and then against
`sound(self, records)`, if the game has one: which records [E] (numpy's) fit together, [E] bool. Compiled code checks no
index (a negative one counts from the end) and no loop: bound every field that is an index or a count, and let `sound`
say what else must hold for every later step to come to an end. Fields without bounds hold any value, nan, too.

**Hooks.** `reset(s, rules)`, `step(s, rules)`, `observe(s, rules, p, obs)` with obs [V] float32: player p's vector, as
`Layout` orders the parts of its observation space (an "action_mask" is no part of it; Discrete parts are one-hot).
Write every entry: the array holds what another step left. `legal(s, rules, p, mask)` with mask [A] bool: where the
observation space is a Dict with an "action_mask"; as there, a player without the turn may be given zeros, for after
the end, where nothing is legal, everything is. `state(s, rules, out)` with out [S] float32; a game with a `state_size`
and no `state` gives everybody's observation in a row. At the end of an episode, `observe`, `legal` and `state` are
called once more, on the last record, before `reset`.

**Rules about code.** Hooks and helpers are plain loops and arithmetic that numba compiles; helpers are decorated with
`compiling.inner` (from any file; constants are module globals, arrays of them too). Compute in float64; write
outputs as they are, they are rounded to float32. Chance only from `marltrain.envs.native.chance`:
`uniform(s, low, high)`, `normal(s)`, `integer(s, n)`, `choice(s, weights)`. Shapes are part of the compiled code,
numbers in `rules` are not: a game with another number of players is compiled anew (some seconds, once), one with
another limit is not. An array whose rank depends on the game is handed to a helper by itself, which asks
`array.ndim` (see `particle.world.press`). Arguments are checked by `arguments.whole, number, truth`; say what is wrong
with a ConfigError.

**Where it goes.** One file a game, below `control`, `particle`, `board` and so on; a line in `catalogue.GAMES`. A
user's own game needs none: `make_vector(Race, {"goal": 20}, 64)`, or "module:Race".

How to hold one against its original
------------------------------------
`tests/envs/native/originals.py`: `hold("mpe2/simple_spread_v3", "marltrain/simple_spread_v3", copy)` plays whole
episodes in both and compares every array of every step; `copy(env)` returns the fields as the original has them. Where
the original draws during an episode, queue what it drew: `vector.batch.set_chances(e, outcomes)`, in the order in which
the game asks. Add the game to the catalogue and the other tests (Python adapters against the kernel, PettingZoo's and
Gymnasium's suites, threads, workers, saving) take it up by themselves.

Reaching in: `vector.batch` has `get_state(e)`, `set_state(e, fields)`, `set_chances(e, outcomes)`, and `snapshot()`,
`restore(saved)` for the whole batch.
'''

from marltrain.envs.native.objects import aec_env, gymnasium_env, parallel_env

__all__ = ["aec_env", "gymnasium_env", "parallel_env"]
