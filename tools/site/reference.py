"""Reference pages, generated from the code: what can be given to kubestow, and what it reports."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import click
import msgspec
from tools.site.messages import plugin_messages, scheduler_messages

import kubestow
from kubestow import config
from kubestow.api.reports import ConditionType, EventType
from kubestow.cli import root_command
from kubestow.config import plugin_args
from kubestow.framework.diagnosis import fit_error
from kubestow.framework.profile import implements
from kubestow.framework.status import Status
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.observability.state_gauges import add_state_gauges
from kubestow.plugins import IN_TREE, in_tree_registry
from kubestow.rules.minors import MINORS

_T = TypeVar("_T")


def pages() -> dict[str, str]:
    """The pages in Markdown, by name."""
    return {
        "commands": "\n".join(_commands()),
        "configuration": "\n".join(_configuration()),
        "feature-gates": "\n".join(_feature_gates()),
        "metrics": "\n".join(_metrics()),
        "events": "\n".join(_events()),
        "messages": "\n".join(_messages()),
        "plugins": "\n".join(_plugins()),
    }


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "The help of every command, as `--help` prints it. [Command line](../cli.md) has what they have in common."
    names = root_command.context_settings["help_option_names"]
    root = click.Context(
        root_command, info_name="kubestow", max_content_width=100, terminal_width=100, help_option_names=names
    )
    for path, command, context in _walk(root_command, root):
        yield f"\n## {path}\n\n```text\n{command.get_help(context)}\n```"


def _walk(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, context, info_name=name)
        if isinstance(command, click.Group):
            yield from _walk(command, inner)
        else:
            yield inner.command_path, command, inner


def _configuration() -> Iterator[str]:
    yield "# KubeSchedulerConfiguration\n"
    yield f"The fields of `{config.API_VERSION}`, with the values that they have when they are absent."
    waiting: list[type[msgspec.Struct]] = [config.KubeSchedulerConfiguration, *plugin_args.ARGS_TYPES.values()]
    seen = set(waiting)
    while waiting:
        struct = waiting.pop(0)
        yield f"\n## {struct.__name__}\n\n{_first_paragraph(struct)}\n\n| Field | Type | Default |\n|---|---|---|"
        info = msgspec.inspect.type_info(struct)
        assert isinstance(info, msgspec.inspect.StructType)
        for field in info.fields:
            for inner in _structs(field.type):
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
            yield f"| `{field.encode_name}` | {_type_text(field.type)} | {_default_text(field)} |"


def _structs(kind: msgspec.inspect.Type) -> Iterator[type[msgspec.Struct]]:
    match kind:
        case msgspec.inspect.StructType(cls=struct) if struct is not config.Duration:
            yield struct
        case msgspec.inspect.UnionType(types=kinds):
            for one in kinds:
                yield from _structs(one)
        case msgspec.inspect.CollectionType(item_type=item):
            yield from _structs(item)
        case msgspec.inspect.DictType(value_type=value):
            yield from _structs(value)


def _type_text(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.StructType(cls=config.Duration):
            return "duration"
        case msgspec.inspect.StructType(cls=struct):
            return f"[{struct.__name__}](#{struct.__name__.lower()})"
        case msgspec.inspect.UnionType(types=kinds):
            return " or ".join(_type_text(one) for one in kinds if not isinstance(one, msgspec.inspect.NoneType))
        case msgspec.inspect.CollectionType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item):
            return f"list of {_type_text(item)}"
        case msgspec.inspect.DictType(value_type=value):
            return f"map of {_type_text(value)}"
        case msgspec.inspect.CustomType(cls=custom) | msgspec.inspect.EnumType(cls=custom):
            return str(custom.__name__)
        case _:
            return {"StrType": "string", "IntType": "integer", "FloatType": "number", "BoolType": "boolean"}.get(
                type(kind).__name__, "object"
            )


def _default_text(field: msgspec.inspect.Field) -> str:
    if field.required:
        return "required"
    default: Any = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if isinstance(default, config.Duration):
        return f"`{default}`"
    if default is None or isinstance(default, msgspec.Struct) or default in ("", b"", (), [], {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _feature_gates() -> Iterator[str]:
    yield "# Feature gates\n"
    yield "The gates of `--feature-gates` that affect scheduling, by the minor version of `--emulated-version`."
    yield "[Operate](../operate.md) says which of them have an effect. **L** is locked to the default; a gate that a"
    yield "minor version does not have is refused there. Gates of other components are accepted and ignored.\n"
    newest_first = MINORS[::-1]
    yield f"| Gate | {' | '.join(map(str, newest_first))} |\n|---|{'---|' * len(newest_first)}"
    specs = {minor: config.feature_specs(minor) for minor in newest_first}
    for name in sorted({name for of_minor in specs.values() for name in of_minor}):
        yield f"| `{name}` | {' | '.join(_gate(specs[minor].get(name)) for minor in newest_first)} |"


def _gate(spec: config.FeatureSpec | None) -> str:
    if spec is None:
        return "–"
    return f"{spec.stage} {'on' if spec.default else 'off'}{' **L**' if spec.lock_to_default else ''}"


def _metrics() -> Iterator[str]:
    yield "# Metrics\n"
    yield "What `/metrics` exposes. Names, labels and stability are kube-scheduler's.\n"
    yield "| Metric | Type | Labels | Stability | Meaning |\n|---|---|---|---|---|"
    metrics = SchedulerMetrics(process=False)
    gates = config.FeatureGates.parse("")
    add_state_gauges(metrics, gates, scheduler=lambda: None, is_leader=lambda: False, broken_watches=dict)
    for family in sorted(metrics.families, key=lambda family: family.name):
        stability, text = family.documentation.removeprefix("[").split("] ", 1)
        labels = ", ".join(f"`{label}`" for label in family.label_names)
        yield f"| `{family.name}` | {type(family).__name__.lower()} | {labels} | {stability.lower()} | {text} |"


#: The packages that write events and conditions of the scheduler and of the descheduler.
_REPORTING = ("client", "contrib", "descheduler", "framework", "plugins", "scheduling")


def _events() -> Iterator[str]:
    yield "# Events and conditions\n"
    yield "What kubestow writes on objects. The events and conditions of the development cluster's controllers and"
    yield "kubelets are those of the Kubernetes components that they stand for.\n"
    yield "## Events\n"
    yield "Words in braces stand for values. [Messages](messages.md) has what `{message}` can be.\n"
    yield "| Reason | Type | Action | Regarding | Note | Meaning |\n|---|---|---|---|---|---|"
    for event in sorted(_declared(EventType), key=lambda event: (event.regarding != "Pod", event.reason)):
        columns = f"| `{event.reason}` | {event.type} | {event.action} | {event.regarding} |"
        yield f"{columns} `{event.note}` | {_cell(event.help)} |"
    yield "\n## Conditions\n"
    yield "| Object | Condition | Reason | Meaning |\n|---|---|---|---|"
    for condition in sorted(_declared(ConditionType), key=lambda condition: (condition.kind, condition.type)):
        for reason, meaning in condition.reasons.items():
            yield f"| {condition.kind} | `{condition.type}` | `{reason}` | {_cell(meaning)} |"


def _declared(kind: type[_T]) -> list[_T]:
    """The constants of a type in the packages that report."""
    found: dict[int, _T] = {}
    for package in _REPORTING:
        for module in pkgutil.walk_packages([f"{kubestow.__path__[0]}/{package}"], f"kubestow.{package}."):
            constants = vars(importlib.import_module(module.name)).values()
            found |= {id(value): value for value in constants if isinstance(value, kind)}
    return list(found.values())


def _messages() -> Iterator[str]:
    example = fit_error(5, [(Status.unschedulable("Insufficient cpu"), 3), (Status.unresolvable("Too many pods"), 2)])
    yield "# Messages\n"
    yield "The texts of the condition PodScheduled and of the event FailedScheduling. If a pod fits on no node,"
    yield "the reasons of all nodes are counted:\n"
    yield f"```text\n{example}\n```\n"
    yield "Preemption can resolve *Unschedulable* rejections, but not *UnschedulableAndUnresolvable* ones; an *Error*"
    yield "is a failure, after which the pod is retried. Where no result is given it depends on the node, or on the"
    yield "extension point. Words in braces stand for values."
    found = plugin_messages(IN_TREE)
    rows = {plugin.name: texts for plugin, texts in found.items() if texts} | {"The scheduler": scheduler_messages()}
    for title, texts in rows.items():
        yield f"\n## {title}\n\n| Message | Result |\n|---|---|"
        for text, code in texts.items():
            yield f"| `{_cell(text)}` | {code} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _plugins() -> Iterator[str]:
    registry = in_tree_registry()
    points = implements(registry)
    enabled = {entry.name for entry in config.default_plugins(config.FeatureGates.parse("")).multi_point.enabled}
    yield "# Plugins\n"
    yield "The in-tree plugins, with the extension points that each implements.\n"
    yield "| Plugin | By default | Extension points | Purpose |\n|---|---|---|---|"
    for name, plugin in registry.items():
        implemented = ", ".join(str(point) for point in config.ExtensionPoint if point in points[name])
        yield f"| {name} | {'enabled' if name in enabled else ''} | {implemented} | {_first_paragraph(plugin)} |"


def _first_paragraph(thing: type) -> str:
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`")).replace("|", r"\|")
