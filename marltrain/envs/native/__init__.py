'''Batched games compiled with numba: millions of env steps per second, equal to their originals at every step.

    make_vector("marltrain/simple_spread_v3", {"N": 3}, 16)     a batch, as trainers use it
    parallel_env("simple_spread_v3", N=3)                       one environment, for other libraries

How to write a game
-------------------
A game is a class. Its constructor takes the original's arguments, and a few static methods define the rules of **one**
environment. The library supplies the rest: the loop over environments, restarts, seeds, limits, checks of actions,
final observations, `Step` arrays, saving, threads, and objects for PettingZoo and Gymnasium.

    class Race(Game):
        """First to reach 10 wins; a step is 1, or 0 to 3 by chance."""

        name = "race_v0"                                    # the original's name, also the one in `catalog.GAMES`
        api = "parallel"                                    # what the original is: "parallel", "turns", "gymnasium"

        def __init__(self, goal: int = 10, max_cycles: int = 50) -> None:
            sides = (spaces.Box(0, np.inf, (2,), np.float32), spaces.Discrete(2))
            super().__init__(
                {"player_0": sides, "player_1": sides},     # name -> (observation space, action space), in order
                fields={"place": (float, 2)},               # what one environment remembers: see below
                rules={"goal": whole("goal", goal)},        # numbers, truth values, arrays of these: read only
                limit=whole("max_cycles", max_cycles),      # `rules.limit`: then all players are truncated
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

**`s`** is the environment's record. It holds the game's own fields and the core's fields:

    action   [P] int64 (Discrete, from 0), or [P, widest] float32 (Box)    set before `step`, for players with the turn
    reward   [P] float64     zero before `step`; write the rewards of this step, for all players
    over     [P]             zero before `step`; write TERMINATED or TRUNCATED for a player that leaves the episode.
                             `s.over[:] = TERMINATED` ends the episode. A termination takes precedence over the limit
    turn     [P]             1 for players that must act next. 1 for all at the start of an episode; a turn-based game
                             sets it in `reset` and `step`. The core clears it for players that left the episode
    present  [P]             1 for players in the episode. 1 for all at the start; a game may clear it in `reset`
                             (absent) and set it in `step` (arrival; also set `turn`). Do not clear it in `step`: use
                             `over`
    steps                    env steps of this episode, including the current one
    random, seed, episode, ...                                             reserved for the core; do not change them

**Fields** are given as dtype, (dtype, shape) or (dtype, shape, (low, high)). Bounds are inclusive, each a number or an
array. Truth values are int8 in records: 0 or 1. A game's own fields are zero in a new batch and then keep their values.
`reset` must set every field that an episode must not inherit. A field that `reset` does not set lasts for the whole
run.

**Saved states** may be forged. Restored and set values are checked against the fields' bounds. If the game defines
`sound(self, records)`, it then checks the numpy records [E] and returns which are consistent, [E] bool. Compiled code
checks no index (a negative index counts from the end) and no loop. Therefore give bounds to every field that is an
index or a count, and let `sound` check all other conditions without which a later step might not terminate. Fields
without bounds may hold any value, including nan.

**Hooks.** At the end of an episode, `observe`, `legal` and `state` are called once more, on the last record, before
`reset`.

- `reset(s, rules)` and `step(s, rules)`.
- `observe(s, rules, p, obs)` with obs [V] float32: player p's vector, with the parts of its observation space in the
  order of `Layout`. An "action_mask" is not a part of it; Discrete parts are one-hot. Write every entry: the array
  holds values of an earlier step.
- `legal(s, rules, p, mask)` with mask [A] bool: required if the observation space is a Dict with an "action_mask". As
  in the original, the mask of a player without the turn may be all zeros: in final masks, all zeros are replaced by
  all ones.
- `state(s, rules, out)` with out [S] float32. Without it, a positive `state_size` means the concatenated observations
  of all players.

**Training only.** `for_training(self)`, plain Python, is called once for the environments of training, and not for
those of tests or for objects. It may change `self.rules`, such as a factor of shaped rewards. If the game has an
original, `training_only` names the constructor's arguments of this kind, which the original does not have.

**For people.** `text(self, state, viewers)`, plain Python, returns a state as text, with which `play` shows the game.
It keeps secrets of players that are not among the viewers. `actions`, an attribute of the class, names the actions.

**Rules about code.** Hooks and helpers are plain loops and arithmetic that numba compiles. Decorate helpers, in any
file, with `compiling.inner`; constants are module globals, including arrays. Compute in float64; outputs are rounded to
float32 when they are written. Draw random numbers only with `marltrain.envs.native.chance`: `uniform(s, low, high)`,
`normal(s)`, `integer(s, n)`, `choice(s, weights)`. Shapes are part of the compiled code, numbers in `rules` are not:
another number of players requires a new compilation (some seconds, once), another limit does not. Pass an array whose
rank depends on the game to a helper as a separate argument; the helper checks `array.ndim` (see
`particle.world.set_forces`). Check arguments with `arguments.whole, number, truth`, and raise ConfigError with the
reason.

**Location.** Put each game in its own file below `control`, `particle`, `board` and so on, and add a line to
`catalog.GAMES`. A user's own game needs no entry: `make_vector(Race, {"goal": 20}, 64)`, or "module:Race".

How to compare a game with its original
---------------------------------------
`tests/envs/native/originals.py`: `hold("mpe2/simple_spread_v3", "marltrain/simple_spread_v3", copy)` plays whole
episodes in both and compares every array of every step. `copy(env)` returns the fields with the original's values. If
the original draws random numbers during an episode, queue them with `vector.batch.set_chances(e, outcomes)`, in the
order in which the game draws. The other tests (Python adapters against the kernel, PettingZoo's and Gymnasium's suites,
threads, workers, saving) cover every game of the catalog automatically.

Access to the state: `vector.batch` has `get_state(e)`, `set_state(e, fields)` and `set_chances(e, outcomes)` for one
environment, and `snapshot()` and `restore(saved)` for the whole batch.
'''

from marltrain.envs.native.objects import aec_env, gymnasium_env, parallel_env

__all__ = ["aec_env", "gymnasium_env", "parallel_env"]
