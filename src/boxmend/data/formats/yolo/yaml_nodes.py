"""Parse YAML into nodes with their positions in the text, so that single values can be replaced.

The parser handles event by event and builds no objects. An alias shares the node of its anchor and
is never expanded, and no value is interpreted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

MAX_DEPTH = 64  # handwritten files have two or three levels
NULLS = ("", "~", "null", "Null", "NULL")
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader if available


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the document, with its position in the text."""

    start: int
    end: int
    line: int  # from 1
    kind: str  # "scalar", "list" or "map"
    text: str = ""
    items: tuple["Node", ...] = ()  # of a map: key, value, key, value, ...
    anchor: str | None = None
    is_alias: bool = False
    is_flow: bool = False
    is_null: bool = False

    @property
    def pairs(self) -> list[tuple["Node", "Node"]]:
        """Return the keys and values of a map."""
        return list(zip(self.items[::2], self.items[1::2], strict=True))


def compose(text: str) -> Node | None:
    """Return the single document in `text` as nodes; None if there is none.

    Raise a YAMLError if it is not YAML, a ValueError if it has characters that are not Unicode.
    """
    top: Node | None = None
    unfinished: list[tuple[Node, list[Node]]] = []
    anchors: dict[str, Node] = {}
    events: Iterable[Any] = yaml.parse(text, Loader=LOADER)
    for event in events:
        if isinstance(event, yaml.events.CollectionStartEvent):
            if len(unfinished) == MAX_DEPTH:
                raise _make_error("nested too deeply", event)
            unfinished.append((_make_node(event), []))
            continue
        if isinstance(event, yaml.events.CollectionEndEvent):
            node = _finish_collection(*unfinished.pop(), event)
        elif isinstance(event, yaml.events.AliasEvent):
            node = _make_alias(event, anchors)
        elif isinstance(event, yaml.events.ScalarEvent):
            node = _make_node(event)
        else:
            continue
        if node.anchor is not None and not node.is_alias:
            anchors[node.anchor] = node
        if unfinished:
            unfinished[-1][1].append(node)
        elif top is not None:
            raise _make_error("a second document", event)
        else:
            top = node
    return top


def _make_node(event: Any) -> Node:
    start, end = event.start_mark, event.end_mark
    if not isinstance(event, yaml.events.ScalarEvent):
        kind = "map" if isinstance(event, yaml.events.MappingStartEvent) else "list"
        return Node(
            start.index,
            end.index,
            start.line + 1,
            kind,
            anchor=event.anchor,
            is_flow=bool(event.flow_style),
        )
    event.value.encode()  # raises for a lone surrogate, which cannot be written
    is_null = not event.style and not event.tag and event.value in NULLS
    return Node(
        start.index,
        end.index,
        start.line + 1,
        "scalar",
        event.value,
        anchor=event.anchor,
        is_null=is_null,
    )


def _finish_collection(node: Node, items: list[Node], event: Any) -> Node:
    """Return a collection with its items; a block collection ends with its last item."""
    end = event.end_mark.index if node.is_flow or not items else items[-1].end
    return replace(node, items=tuple(items), end=end)


def _make_alias(event: Any, anchors: Mapping[str, Node]) -> Node:
    if event.anchor not in anchors:
        raise _make_error(f"an alias of the unknown anchor {event.anchor!r}", event)
    return replace(
        anchors[event.anchor],
        start=event.start_mark.index,
        end=event.end_mark.index,
        line=event.start_mark.line + 1,
        is_alias=True,
    )


def _make_error(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
