"""Many trainings at once: candidates and seeds on copies of an environment, agents of equal kind in one learner.

Every training equals a run of a `DecentralizedTrainer` of its seed alone, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marltrain.core.errors import SaveError, error_text, warn
from marltrain.envs import Source
from marltrain.envs.population import population_of
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.tools.search.recorder import Memory, Recorder
from marltrain.tools.search.saved_search import Search, another_folder
from marltrain.tools.search.training import Plan, Training, Watch
from marltrain.trainer.saving.checkpoint import newest


def train_all(
    plan: Plan,
    trainings: Sequence[Training],
    watch: Watch = lambda trainings: None,
    *,
    alone: bool = True,
    search: Search | None = None,
    memory: Memory | None = None,
) -> None:
    """Train all at once, those that cannot be trained so one after another.

    alone: if the trainings fail together, warn, and repeat each that was not stopped before alone; `Training.error`
      then holds the errors of those that fail, and `watch` sees their tests again. False: raise the error.
    search: where the trainings are saved; those that have ended get their outcomes, and the others go on.
    memory: what `watch` keeps from test to test, of trainings that are trained at once.
    Raises the errors of `Training.make` and of `watch`, and SaveError for a state that cannot be written or restored.
    """
    search = search or Search()
    runs = _Runs(plan, watch, search, memory)
    for training in trainings:
        training.begin()
    together = [training for training in trainings if fits_population(training.agents)]
    if len(together) < 2 or plan.settings.get("shared_memory"):  # learners read rows of all their agents
        together = []
    repeated = search.begin(trainings)
    apart = [training for training in trainings if training not in together or training in repeated]
    if together and not repeated and not all(map(search.has_ended, together)):
        try:
            runs.train_together(together)
        except Exception as error:  # one of them fails, and ends the others: alone, each fails for itself
            if runs.refusals or not alone:
                raise
            repeated = [training for training in together if not training.stopped]
            warn(f"{len(together)} trainings failed together: {error_text(error)}. {len(repeated)} are repeated alone")
            search.end([training for training in together if training.stopped], repeated)
            for training in repeated:
                training.begin()
            apart = [training for training in trainings if training in apart or training in repeated]
        else:
            search.end(together)
    for training in apart:
        if not search.has_ended(training):
            runs.train_alone(training)
            search.end([training])


def fits_population(agents: Sequence[Agent]) -> bool:
    """Return whether agents can be trained on a copy of the environment among others.

    Agents that learn together or from each other's rows, read global states or tell players apart by name need the
    environment itself.
    """
    learning = [agent for agent in agents if isinstance(agent, LearningAgent)]
    if any(agent.identity or isinstance(agent.algorithm, JointAlgorithm) for agent in learning):
        return False
    needs = [agent.algorithm.needs() for agent in learning]
    return len(learning) == sum(agent.learns for agent in agents) and not any(
        need.state or need.joint_actions or need.shared for need in needs
    )


class _Runs:
    """The runs of a search.

    refusals: errors that are not of the trainings: of the watcher, of the files of the search, and of its state.
    """

    def __init__(self, plan: Plan, watch: Watch, search: Search, memory: Memory | None) -> None:
        self.plan, self._watch, self.search, self.memory = plan, watch, search, memory
        self.refusals: list[Exception] = []

    def train_together(self, trainings: Sequence[Training]) -> None:
        """Train on copies of the environment; agent p of training n holds seat p * N + n."""
        source = population_of(self.plan.source, [training.seed for training in trainings])
        agents = [training.agents[p] for p in range(len(trainings[0].agents)) for training in trainings]
        self._train(trainings, source, agents, self.search.run_dir(None))

    def train_alone(self, training: Training) -> None:
        """Train as an ordinary run; an error of the run becomes that of the training."""
        try:
            self._train([training], self.plan.source, training.agents, self.search.run_dir(training))
        except Exception as error:
            if self.refusals:
                raise
            training.error, training.stopped = error_text(error), True

    def _train(
        self, trainings: Sequence[Training], source: Source, agents: Sequence[Agent], folder: Path | None
    ) -> None:
        recorder = Recorder(self.plan, trainings, self._watched, self.memory)
        resume = folder if folder is not None and newest(folder) is not None else None
        try:
            recorder.trainer = self.plan.trainer(source, trainings[0].seed, recorder, folder)
            learns = [agent.learns for agent in agents]
            recorder.trainer.train(agents, learns, plot=False, resume=resume, on_interrupt="raise")
        except Exception as error:
            unrestored = resume is not None and not recorder.restored
            if unrestored:
                error.add_note(f"To begin the search again, {another_folder()}")
            if unrestored or (folder is not None and isinstance(error, SaveError)):
                self.refusals.append(error)
            raise

    def _watched(self, going: Sequence[Training]) -> None:
        try:
            self._watch(going)
        except Exception as error:
            self.refusals.append(error)
            raise
