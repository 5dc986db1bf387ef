"""Structural mutations of text files: JSON, XML, YAML and lists of words."""

import copy
import json
import random
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import odd_values
from odd_values import DUPLICATE_MARK, RAW_MARK

WORD = re.compile(r"([^\s,:;=\[\]{}\"']+)")
MAX_COPIES = 2000
SHARE_WITHOUT_DIGEST = 0.8  # of documents; with a digest, readers refuse them at once
BOMB = "".join(
    f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "lol" * 10}">' for n in range(9)
)  # expands to 30 GB
PROLOGS = (
    f"<!DOCTYPE annotation [{BOMB}]>",
    '<!DOCTYPE annotation [<!ENTITY e8 SYSTEM "file:///etc/hostname">]>',
    '<!DOCTYPE annotation SYSTEM "http://127.0.0.1:9/x.dtd">',
    "<!DOCTYPE annotation [<!ENTITY e8 'x'>]>",
)
YAML_LINES = (
    "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
    "e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e]\n"
    "names: [*f, *f, *f, *f, *f, *f, *f, *f, *f]",
    "names: !!python/object/apply:os.system ['true']",
    "train: !!binary aGVsbG8=",
    "names: {0: a, 0: b, -1: c, 99999999: d}",
    "names: {0: a, 1: a}",
    "path: /\ntrain: .",
    "train: [., .., images/train, images/train]",
    "nc: 4000000000",
    "? [a, b]\n: c",
    "<<: *nothing",
    "x: &x [*x]",
    "[" * 5000,
    "2026-01-01: 2026-99-99",
    "---\na: 1\n---\nb: 2",
)
TEXT_LINES = (
    "0 0.1 0.1 0.5 0.1 0.5 0.5 0.1 0.5",
    "0 0.5 0.5 0.2 0.2 0.9 17",
    "0 nan 0.5 0.2 0.2",
    "99999999999 0.5 0.5 0.2 0.2",
    "0 0.5 0.5 -0.2 0.2",
    "0 1e308 1e308 1e308 1e308",
    "0 0.5 0.5",
    "\x00" * 20,
    "a," * 10_000,
    '"unfinished',
    '"a""b",\'c',
)


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """Change a JSON document in one to three places."""
    document = json.loads(data)
    if isinstance(document, dict) and rng.random() < SHARE_WITHOUT_DIGEST:
        document.pop("digest", None)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        document = _change_value(document, rng)
    return dump_json(document)


def mutate_lines(data: bytes, rng: random.Random) -> bytes:
    """Change one line of a file of JSON lines, or the order of its lines."""
    lines = data.split(b"\n")
    full = [k for k, line in enumerate(lines) if line.strip()]
    if not full or rng.random() < 0.2:
        return mutate_text(data, rng)
    k = rng.choice(full)
    lines[k] = mutate_json(lines[k], rng).replace(b"\n", b" ")
    return b"\n".join(lines)


def dump_json(document: Any) -> bytes:
    """Encode JSON; strings with RAW_MARK lose their quotes, keys lose their DUPLICATE_MARK."""
    raws: list[str] = []

    def number_raws(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: number_raws(item) for key, item in value.items()}
        if isinstance(value, list):
            return [number_raws(item) for item in value]
        if isinstance(value, str) and value.startswith(RAW_MARK):
            raws.append(value.removeprefix(RAW_MARK))
            return f"{RAW_MARK}{len(raws) - 1}{RAW_MARK}"
        return value

    text = json.dumps(number_raws(document)).replace(DUPLICATE_MARK, "")
    for k, raw in enumerate(raws):
        text = text.replace(f'"{RAW_MARK}{k}{RAW_MARK}"', raw)
    return text.encode("utf-8", "surrogatepass")


def _list_values(document: Any) -> list[tuple[tuple[str, ...], Any, Any]]:
    """List all values of a document as (path with "*" for positions, container, key)."""
    values: list[tuple[tuple[str, ...], Any, Any]] = []
    waiting: list[tuple[tuple[str, ...], Any]] = [((), document)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            values += [((*path, key), node, key) for key in node]
            waiting += [((*path, key), item) for key, item in node.items()]
        elif isinstance(node, list):
            values += [((*path, "*"), node, k) for k in range(len(node))]
            waiting += [((*path, "*"), item) for item in node]
    return values


def _change_value(document: Any, rng: random.Random) -> Any:
    places = _list_values(document)
    if not places or rng.random() < 0.03:
        return rng.choice(([document], {"x": document}, odd_values.draw_value(rng)))
    path = rng.choice(
        sorted({path for path, _, _ in places})
    )  # by path, because most values are coordinates of boxes
    _, node, key = rng.choice([place for place in places if place[0] == path])
    old = node[key]
    operation = rng.randrange(9)
    if operation < 2:
        node[key] = odd_values.draw_value(rng)
    elif operation < 4:
        node[key] = odd_values.draw_similar(old, rng)
    elif operation == 4:
        del node[key]
    elif operation == 5:
        _, other, place = rng.choice(places)
        node[key] = copy.deepcopy(other[place])
    elif isinstance(node, list):
        _change_list(node, key, rng)
    else:
        _change_keys(node, key, rng)
    return document


def _change_list(node: list[Any], k: int, rng: random.Random) -> None:
    operation = rng.randrange(4)
    if operation == 0:
        node.insert(k, copy.deepcopy(node[k]))
    elif operation == 1 and len(node) < MAX_COPIES:
        node.extend([node[k]] * rng.choice((2, 100, MAX_COPIES)))
    elif operation == 2:
        node.clear()
    else:
        node.insert(k, odd_values.draw_value(rng))


def _change_keys(node: dict[str, Any], key: str, rng: random.Random) -> None:
    operation = rng.randrange(3)
    if operation == 0:
        node[DUPLICATE_MARK + key] = odd_values.draw_similar(node[key], rng)
    elif operation == 1:
        node[odd_values.draw_name(rng)] = node.pop(key)
    else:
        node[odd_values.draw_name(rng)] = odd_values.draw_value(rng)


def mutate_xml(data: bytes, rng: random.Random) -> bytes:
    """Change an XML document in one to three places."""
    root = ElementTree.fromstring(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change_element(root, rng)
    text = ElementTree.tostring(root, encoding="unicode")
    text = text.replace(DUPLICATE_MARK, "&e8;")
    if rng.random() < 0.15 or "&e8;" in text:
        text = rng.choice(PROLOGS) + text
    if rng.random() < 0.1:
        code = rng.choice(("utf-16", "latin-1", "utf-7", "none-such", "ascii"))
        text = f'<?xml version="1.0" encoding="{code}"?>{text}'
    return text.encode("utf-8", "surrogatepass")


def _change_element(root: ElementTree.Element, rng: random.Random) -> None:
    parents = [(parent, child) for parent in root.iter() for child in parent]
    if not parents:
        root.text = odd_values.draw_name(rng)
        return
    tag = rng.choice(sorted({child.tag for _, child in parents}))
    parent, child = rng.choice([pair for pair in parents if pair[1].tag == tag])
    operation = rng.randrange(9)
    if operation < 2:
        child.text = odd_values.draw_token(rng)
    elif operation == 2:
        parent.remove(child)
    elif operation == 3:
        parent.extend([child] * rng.choice((1, 1, 50)))
    elif operation == 4:
        child.tag = rng.choice(("x", "object", "bndbox", "name", "image", "box", "a:b", "xmin"))
    elif operation == 5:
        rng.choice(parents)[1].append(copy.deepcopy(child))
    elif operation == 6:
        child.text = DUPLICATE_MARK  # becomes an entity
    elif operation == 7:
        _nest(child, rng.choice((30, 3000)))
    elif child.attrib:
        child.set(rng.choice(sorted(child.attrib)), odd_values.draw_token(rng))
    else:
        child.set("x", odd_values.draw_token(rng))


def _nest(element: ElementTree.Element, depth: int) -> None:
    for _ in range(depth):
        element = ElementTree.SubElement(element, "part")


def mutate_text(data: bytes, rng: random.Random, lines: tuple[str, ...] = TEXT_LINES) -> bytes:
    """Change words or lines of a text."""
    text = data.decode("utf-8", "surrogateescape")
    operation = rng.randrange(8)
    words = list(WORD.finditer(text))
    rows = text.split("\n")
    k = rng.randrange(len(rows))
    if operation < 3 and words:
        word = rng.choice(words)
        text = text[: word.start()] + odd_values.draw_token(rng) + text[word.end() :]
    elif operation == 3:
        rows.insert(k, rows[k])
        text = "\n".join(rows)
    elif operation == 4:
        del rows[k]
        text = "\n".join(rows)
    elif operation == 5:
        rows.insert(k, rng.choice(lines))
        text = "\n".join(rows)
    elif operation == 6:
        text = rng.choice((text.replace("\n", "\r\n"), text.replace("\n", " "), "\ufeff" + text))
    else:
        rows[k] = " ".join(rng.choice((rows[k], rows[k].upper())) for _ in range(3))
        text = "\n".join(rows)
    return text.encode("utf-8", "surrogatepass" if rng.random() < 0.5 else "ignore")


def mutate_yaml(data: bytes, rng: random.Random) -> bytes:
    """Change a YAML file as text; inserted lines are YAML."""
    return mutate_text(data, rng, YAML_LINES)
