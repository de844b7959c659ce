"""LambdaCallback: a callback made of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.settings import check_function
from marltrain.trainer.events.callbacks import EVENTS, Callback, Moment


class LambdaCallback(Callback):
    """A callback made of functions: `LambdaCallback(on_test_end=lambda moment: print(moment.data["metric"]))`.

    functions: functions by the name of their event (see `Callback`), called with a `Moment`; None: no function.
    only_watches: see `Callback`.

    Raises ConfigError for a name that is not an event, and for a value that is not a function of one argument.
    """

    def __init__(self, *, only_watches: bool = False, **functions: Callable[[Moment], Any] | None) -> None:
        """Check the names and the functions."""
        if not isinstance(only_watches, bool):
            raise ConfigError(f"LambdaCallback: only_watches must be True or False, got {shown(only_watches)}")
        given = {name: function for name, function in functions.items() if function is not None}
        for name in functions:
            if name not in EVENTS:
                near = did_you_mean(name, [*EVENTS, "only_watches"])
                raise ConfigError(f"LambdaCallback: no event is called {name!r}.{near} There are {', '.join(EVENTS)}")
        for name, function in given.items():
            check_function(f"LambdaCallback: {name}", function, "moment")
        vars(self).update(given, only_watches=only_watches)
