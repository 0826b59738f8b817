"""mindful report: how sure the answers were, how right, and what was done with them, as one HTML file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from mindful_client.cli.output import show
from mindful_client.client import Client

Row = Mapping[str, Any]
Found = Mapping[str, Any]
"""What confidence_report returns: rows by view, and under `before` rows by view once more."""
Point = tuple[float, float]

_WIDTH, _HEIGHT = 460.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 16.0, 10.0, 36.0
_TICKS = 5
_COLOURS = 7
"""Of the style sheet, used in turn (Okabe and Ito 2008, told apart by color-blind eyes too)."""
_GRAY = 6
"""The color of lines that are there for comparison."""
_GIVEN = ("answer", "escalate")
_ACTIONS = ("answer", "escalate", "retrieve", "retry", "clarify", "flag", "abstain", "uncalibrated")
_PICTURED = (
    ("reliability", "Reliability", "of answers with a probability of 70%, about 70% should be right"),
    (
        "risk",
        "Risk and coverage",
        "wrong share of the answers given, if only so many of the most probable are",
    ),
    ("budget", "The budget, kept or not", "share of wrong answers among those given so far"),
    ("actions", "Actions on answers", "answers by day"),
)
_LINE, _LETTER = 15, 6.1
"""Height of a line of a legend, and what a letter takes of it."""


@click.command(name="report")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, writable=True))
@click.pass_obj
def report_(client: Client, file: Path) -> None:
    """Write a report on the answers' confidence to FILE, an HTML page that needs no network.

    If FILE ends with .svg, write one picture of the four main charts.
    """
    found = client.confidence_report()
    svg = file.suffix.lower() == ".svg"
    text = picture(found) if svg else page(found, datetime.now().astimezone())
    file.write_text(text, encoding="utf-8")
    show(file)


def page(found: Found, made_at: datetime) -> str:
    """Draw what confidence_report returned."""
    parts = named(found)
    return _filled(
        "report.html",
        made_at=made_at,
        legend=list(enumerate(_ACTIONS)),
        **charts_of(parts),
        **{name: parts[name] for name in ("signals", "costs", "thresholds", "tunings", "daily")},
    )


def picture(found: Found) -> str:
    """Draw the four main charts of what confidence_report returned."""
    charts = charts_of(named(found))
    figures = [
        (title, says, charts[name], list(_placed(charts[name], _ACTIONS if name == "actions" else ())))
        for name, title, says in _PICTURED
    ]
    return _filled("report.svg", figures=figures)


def named(found: Found) -> dict[str, Sequence[Row]]:
    """Give each row the name of its model with the ways by which the answers were made."""
    before = {f"{name}_before": rows for name, rows in (found.get("before") or {}).items()}
    every = {name: rows for name, rows in found.items() if name != "before"} | before
    return {
        name: [dict(row) | {"model": _lineage(row)} for row in rows or []] for name, rows in every.items()
    }


def _lineage(row: Row) -> str:
    ways = [f"escalate to {row['second_model']}" if way == "escalate" else way for way in row.get("ways", ())]
    return f"{row['model']} ({', '.join(ways)})" if ways else str(row["model"])


def _filled(template: str, **parts: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mindful_client.cli", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(parts)


def charts_of(parts: Mapping[str, Sequence[Row]]) -> dict[str, Chart | None]:
    """Return the charts of what `named` returned; None for those without data."""
    return {
        "reliability": _reliability(parts["reliability"], parts.get("reliability_before", ())),
        "risk": _risk(parts["risk"], parts["thresholds"], parts.get("risk_before", ())),
        "roc": _roc(parts["roc"], parts.get("roc_before", ())),
        "confidence": _confidence(parts["daily"]),
        "budget": _budget(parts["decisions"], parts["thresholds"]),
        "actions": _actions(parts["decisions"]),
    }


@dataclass
class Series:
    """One line of a chart, in its coordinates."""

    name: str
    points: list[Point]
    color: int
    band: list[Point] = field(default_factory=list)
    marks: list[tuple[float, float, float, str]] = field(default_factory=list)
    """Circles: where, how large, and what they say."""


@dataclass
class Chart:
    """A plane with ticks, in the units of an SVG picture."""

    low: Point
    high: Point
    x_label: str
    y_label: str
    x_text: Callable[[float], str] = "{:.0%}".format
    y_text: Callable[[float], str] = "{:.0%}".format
    series: list[Series] = field(default_factory=list)
    rules: list[tuple[Point, Point, str]] = field(default_factory=list)
    """Dashed lines, and what they say."""
    bars: list[tuple[float, float, float, float, int, str]] = field(default_factory=list)
    """x, y, width and height, a color, and what it says."""
    whole: tuple[bool, bool] = (False, False)
    """Whether x, and y, are whole numbers."""
    width: float = _WIDTH
    height: float = _HEIGHT
    edges: tuple[float, float, float, float] = (_LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM)

    def at(self, x: float, y: float) -> Point:
        """Place a point of the plane on the picture."""
        across = (x - self.low[0]) / ((self.high[0] - self.low[0]) or 1)
        up = (y - self.low[1]) / ((self.high[1] - self.low[1]) or 1)
        return (
            round(_LEFT + across * (_WIDTH - _LEFT - _RIGHT), 1),
            round(_HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM), 1),
        )

    @property
    def x_ticks(self) -> Iterator[tuple[float, str]]:
        """Where ticks stand on the lower edge, and what they say."""
        for value in _ticks(self.low[0], self.high[0], self.whole[0]):
            yield self.at(value, self.low[1])[0], self.x_text(value)

    @property
    def y_ticks(self) -> Iterator[tuple[float, str]]:
        """Where ticks stand on the left edge, and what they say."""
        for value in _ticks(self.low[1], self.high[1], self.whole[1]):
            yield self.at(self.low[0], value)[1], self.y_text(value)

    def line(self, name: str, points: Iterable[Point], color: int | None = None) -> Series:
        """Add a line."""
        place = len(self.series) % _COLOURS if color is None else color
        series = Series(name, [self.at(*point) for point in points], place)
        if len(series.points) == 1:  # which is no line
            series.marks = [(*series.points[0], 3, name)]
        self.series.append(series)
        return series

    def rule(self, start: Point, end: Point, name: str) -> None:
        """Add a dashed line."""
        self.rules.append((self.at(*start), self.at(*end), name))


def _placed(chart: Chart | None, actions: Sequence[str]) -> Iterator[tuple[float, float, int | None, str]]:
    """Place the keys of a chart below it, line by line: x, y, color (None: dashed) and text."""
    if chart is None:
        return
    keys: list[tuple[int | None, str]] = [(one.color, one.name) for one in chart.series]
    keys += [(None, name) for name in dict.fromkeys(name for _, _, name in chart.rules)]
    keys += list(enumerate(actions))
    x, y = _LEFT, _HEIGHT + 46
    for color, name in keys:
        wide = 15 + _LETTER * len(name) + 12
        if x > _LEFT and x + wide > _WIDTH:
            x, y = _LEFT, y + _LINE
        yield x, y, color, name
        x += wide


def _ticks(low: float, high: float, whole: bool) -> list[float]:
    if whole:
        step = max(math.ceil((high - low) / _TICKS), 1)
        return list(range(math.ceil(low), math.floor(high) + 1, step))
    return [low + (high - low) * at / _TICKS for at in range(_TICKS + 1)]


def _before(chart: Chart, rows: Sequence[Row], x: str, y: str) -> None:
    """Add the lines of the probabilities that answers had before their labels."""
    for name, group in _grouped(rows, _kind):
        chart.line(f"before labels: {name}", [(row[x], row[y]) for row in group], _GRAY)


def _reliability(rows: Sequence[Row], before: Sequence[Row]) -> Chart | None:
    if not rows and not before:
        return None
    chart = Chart((0, 0), (1, 1), "predicted probability", "share of right answers")
    chart.rule((0, 0), (1, 1), "perfectly calibrated")
    most = max((row["answers"] for row in rows), default=1)
    for name, group in _grouped(rows, _kind):
        points = [(row["mean_probability"], row["share_right"]) for row in group]
        series = chart.line(name, points)
        series.marks = [
            (*at, 2 + 4 * math.sqrt(row["answers"] / most), f"{row['answers']} answers")
            for at, row in zip(series.points, group, strict=True)
        ]
    _before(chart, before, "mean_probability", "share_right")
    return chart


def _roc(rows: Sequence[Row], before: Sequence[Row]) -> Chart | None:
    if not rows and not before:
        return None
    chart = Chart(
        (0, 0), (1, 1), "share of the wrong answers above a threshold", "share of the right answers above it"
    )
    chart.rule((0, 0), (1, 1), "chance")
    for name, group in _grouped(rows, _kind):
        chart.line(
            name, [(0, 0), *((row["false_positive_rate"], row["true_positive_rate"]) for row in group)]
        )
    _before(chart, before, "false_positive_rate", "true_positive_rate")
    return chart


def _risk(rows: Sequence[Row], thresholds: Sequence[Row], before: Sequence[Row]) -> Chart | None:
    if not rows and not before:
        return None
    chart = Chart((0, 0), (1, 1), "share of questions answered", "share of wrong answers")
    for budget in sorted({row["budget"] for row in thresholds}):
        chart.rule((0, budget), (1, budget), f"budget {budget:.0%}")
    for name, group in _grouped(rows, _kind):
        chart.line(name, [(row["coverage"], row["risk"]) for row in group])
    _before(chart, before, "coverage", "risk")
    return chart


def _confidence(rows: Sequence[Row]) -> Chart | None:
    if not rows:
        return None
    chart = _over_time(rows, 1, "geometric mean of the tokens' probabilities")
    for name, group in _grouped(rows, lambda row: str(row["model"])):
        series = chart.line(name, [(_day(row), row["mean_confidence"]) for row in group])
        upper = [chart.at(_day(row), row["confidence_p90"]) for row in group]
        lower = [chart.at(_day(row), row["confidence_p10"]) for row in group]
        series.band = upper + lower[::-1]
        series.marks = [
            (*at, 5 if row["drifted"] else 2, _day_label(row))
            for at, row in zip(series.points, map(_drifted, group), strict=True)
        ]
    return chart


def _drifted(row: Row) -> Row:
    """Tell whether a day's confidence is more than a little, and more than chance allows, from that before."""
    drift = row["drift"]
    return dict(row) | {"drifted": drift is not None and drift > max(0.25, row["drift_limit"])}


def _day_label(row: Row) -> str:
    text = f"{row['day']}: {row['generations']} answers, mean {row['mean_confidence']:.2f}"
    return text + (f", drift {row['drift']:.2f}" if row["drifted"] else "")


def _budget(rows: Sequence[Row], thresholds: Sequence[Row]) -> Chart | None:
    """Share of wrong ones among all answers given so far that have a label, by day."""
    given = [row for row in rows if row["action"] in _GIVEN and row["labels"]]
    if not given:
        return None
    chart = _over_time(rows, 1, "share of wrong answers given")
    for budget in sorted({row["budget"] for row in given if row["budget"] is not None}):
        chart.rule((chart.low[0], budget), (chart.high[0], budget), f"budget {budget:.0%}")
    for name, group in _grouped(given, lambda row: str(row["model"])):
        labels, wrong, points = 0, 0, []
        for row in group:
            labels, wrong = labels + row["labels"], wrong + row["wrong"]
            points.append((_day(row), wrong / labels))
        chart.line(name, points)
    for row in thresholds:
        if row["status"] == "tightened" and chart.low[0] <= _day(row, "created_at") <= chart.high[0]:
            day = _day(row, "created_at")
            chart.rule((day, 0), (day, 1), f"alarm of {row['model']}")
    return chart


def _actions(rows: Sequence[Row]) -> Chart | None:
    if not rows:
        return None
    highest = max(
        sum(row["decisions"] for row in group) for _, group in _grouped(rows, lambda row: row["day"])
    )
    chart = _over_time(rows, highest, "answers")
    chart.y_text, chart.whole = "{:.0f}".format, (True, True)
    span = (_WIDTH - _LEFT - _RIGHT) / (chart.high[0] - chart.low[0])
    for day, group in _grouped(rows, lambda row: str(row["day"])):
        below = 0
        for at, action in enumerate(_ACTIONS):
            count = sum(row["decisions"] for row in group if row["action"] == action)
            if count:
                x, top = chart.at(_day(group[0]) - 0.4, below + count)
                bottom = chart.at(0, below)[1]
                chart.bars.append(
                    (x, top, round(span * 0.8, 1), bottom - top, at, f"{day}: {count} {action}")
                )
                below += count
    return chart


def _over_time(rows: Sequence[Row], highest: float, label: str) -> Chart:
    days = [_day(row) for row in rows]
    return Chart(
        (min(days) - 0.5, 0),
        (max(days) + 0.5, highest),
        "",
        label,
        x_text=lambda value: date.fromordinal(round(value)).isoformat()[5:],
        whole=(True, False),
    )


def _day(row: Row, column: str = "day") -> float:
    return date.fromisoformat(row[column][:10]).toordinal()


def _kind(row: Row) -> str:
    memory = "with memories" if row["with_memory"] else "without"
    return f"{row['model']}, {memory}" + (f", tier {row['signal_tier']}" if row.get("signal_tier") else "")


def _grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> Iterator[tuple[str, list[Row]]]:
    for name, group in itertools.groupby(sorted(rows, key=key), key):
        yield name, list(group)
