"""The result of tuning: all trials, and those that no other one beats in all objectives (the Pareto front)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubestow import config
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow_lab.tuning.search_space import Candidate, SearchSpace


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration and its objectives, of which less is better. ``candidate`` None: the base configuration."""

    number: int
    candidate: Candidate | None
    values: dict[str, Any]
    objectives: tuple[float, ...]

    def beats(self, other: Trial) -> bool:
        """Whether no objective is worse and one is better."""
        pairs = list(zip(self.objectives, other.objectives, strict=True))
        return all(mine <= theirs for mine, theirs in pairs) and any(mine < theirs for mine, theirs in pairs)


@dataclass(frozen=True, slots=True, repr=False)
class TuningResult(Displayed):
    """All trials, the base configuration first. ``seed`` is that of the search."""

    objectives: tuple[str, ...]
    trials: tuple[Trial, ...]
    space: SearchSpace
    base: config.KubeSchedulerConfiguration
    seed: int

    @staticmethod
    def undominated(trials: Iterable[Trial]) -> list[Trial]:
        """The trials that none of them beats; of several with equal objectives, the first."""
        found: list[Trial] = []
        for trial in sorted(trials, key=lambda trial: (trial.objectives, trial.number)):
            if not any(other.beats(trial) or other.objectives == trial.objectives for other in found):
                found.append(trial)
        return found

    @property
    def front(self) -> list[Trial]:
        """The trials that no other one beats, the best in the first objective first."""
        return self.undominated(self.trials)

    @property
    def best(self) -> Trial:
        """The best in the first objective, of several the best in the second, and so on."""
        return self.front[0]

    def configuration(self, trial: Trial) -> dict[str, Any]:
        """The KubeSchedulerConfiguration of a trial, with all defaults written out."""
        if trial.candidate is None:
            return config.render(self.base)
        return self.space.document(self.base, trial.candidate)

    def document(self) -> dict[str, Any]:
        """The result as data for JSON and YAML."""
        return {
            "kind": "TuningResult",
            "seed": self.seed,
            "objectives": list(self.objectives),
            "space": self.space.size,
            "front": [trial.number for trial in self.front],
            "trials": [
                {
                    "number": trial.number,
                    "parameters": trial.values,
                    "objectives": dict(zip(self.objectives, trial.objectives, strict=True)),
                }
                for trial in self.trials
            ],
        }

    def columns(self) -> dict[str, list[Any]]:
        """All trials as columns for a data frame: ``number``, the objectives, ``front``, the parameters."""
        front = {trial.number for trial in self.front}
        columns: dict[str, list[Any]] = {"number": [trial.number for trial in self.trials]}
        for index, name in enumerate(self.objectives):
            columns[name] = [trial.objectives[index] for trial in self.trials]
        columns["front"] = [trial.number in front for trial in self.trials]
        for parameter in self.space.parameters:
            columns[parameter.name] = [trial.values.get(parameter.name) for trial in self.trials]
        return columns

    def to_pandas(self) -> Any:
        """All trials as a pandas data frame. Raises ModuleNotFoundError without pandas (``kubestow-lab[pandas]``)."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def blocks(self) -> tuple[Block, ...]:
        """The Pareto table."""
        front, base = self.front, self.trials[0]
        table = Table("trial", *self.objectives, "parameters", right=self.objectives)
        for trial in [base, *(trial for trial in front if trial is not base)]:
            figures = (f"{value:,.0f}" if value == int(value) else f"{value:,.4g}" for value in trial.objectives)
            values = "\n".join(f"{name}: {value}" for name, value in trial.values.items())
            table.add("base" if trial is base else str(trial.number), *figures, values)
        verdict = "no trial beats the base configuration" if base in front else "the base configuration is beaten"
        text = f"{len(self.trials) - 1:,} of {self.space.size:,} configurations tried; {verdict}"
        return Paragraph(text), Paragraph("not beaten in all objectives, and the base configuration:"), table

    def __repr__(self) -> str:
        """The numbers of trials."""
        return f"<TuningResult: {counted(len(self.trials), 'trial')}, {len(self.front)} not beaten>"
