"""YAML as nodes that know their place in the text, so that single values can be replaced.

The text is walked event by event and never built into objects: an alias shares the node it stands
for and is not expanded, however many there are, and no value is interpreted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

MAX_DEPTH = 64  # what people write by hand has two or three levels
NULLS = ("", "~", "null", "Null", "NULL")
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one where it was built


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the document, with its place in the text."""

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
        """The keys and values of a map."""
        return list(zip(self.items[::2], self.items[1::2], strict=True))


def compose(text: str) -> Node | None:
    """The one document in `text` as nodes; None where there is none.

    Raises YAMLError where it is not YAML, ValueError where it holds what text cannot.
    """
    top: Node | None = None
    open_nodes: list[tuple[Node, list[Node]]] = []
    anchors: dict[str, Node] = {}
    events: Iterable[Any] = yaml.parse(text, Loader=LOADER)
    for event in events:
        if isinstance(event, yaml.events.CollectionStartEvent):
            if len(open_nodes) == MAX_DEPTH:
                raise _error("nested too deeply", event)
            open_nodes.append((_node(event), []))
            continue
        if isinstance(event, yaml.events.CollectionEndEvent):
            node = _closed(*open_nodes.pop(), event)
        elif isinstance(event, yaml.events.AliasEvent):
            node = _aliased(event, anchors)
        elif isinstance(event, yaml.events.ScalarEvent):
            node = _node(event)
        else:
            continue
        if node.anchor is not None and not node.is_alias:
            anchors[node.anchor] = node
        if open_nodes:
            open_nodes[-1][1].append(node)
        elif top is not None:
            raise _error("a second document", event)
        else:
            top = node
    return top


def _node(event: Any) -> Node:
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
    event.value.encode()  # a lone surrogate, by an escape, could never be written again
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


def _closed(node: Node, items: list[Node], event: Any) -> Node:
    """A collection with its items; a block one ends where its last item does."""
    end = event.end_mark.index if node.is_flow or not items else items[-1].end
    return replace(node, items=tuple(items), end=end)


def _aliased(event: Any, anchors: Mapping[str, Node]) -> Node:
    if event.anchor not in anchors:
        raise _error(f"an alias of the unknown {event.anchor!r}", event)
    return replace(
        anchors[event.anchor],
        start=event.start_mark.index,
        end=event.end_mark.index,
        line=event.start_mark.line + 1,
        is_alias=True,
    )


def _error(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
