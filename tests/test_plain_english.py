"""The text of package and scripts is plain English: docstrings, comments, messages and names.

The patterns are a short list of expressions that readers stumbled over. A new entry needs a reason,
and must not match ordinary English ("is None", "given a batch", "found 3 errors", "taken from").
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import boxmend
from tests import ROOT as PROJECT

ROOT = Path(boxmend.__file__).parent
PACKAGES = sorted(path.name for path in ROOT.iterdir() if path.suffix in ("", ".py"))
PACKAGES = [name for name in PACKAGES if name not in ("__pycache__", "py.typed")]
SCRIPTS = ["benchmarks", "fuzz", "tools"]
PLACES = [*PACKAGES, *SCRIPTS]

DIALECT = {
    r"\bvouch": "say 'unverified' or 'noisy' annotations",
    r"\bby heart\b": "the term is 'memorise'",
    r"\b(?:is|are|was|were|be|been|being|gets?) told\b(?! apart)": "say who prints or knows what",
    r"\b(?:told|tells?|telling) of\b": "say 'report', 'print' or 'raise'",
    r"\b(?:is|are|was|were) (?:said|heard)\b": "say who says it: 'the message names the file'",
    r"\b(?:said|says?|saying) of\b": "name the subject: 'what the verdicts say about a fix'",
    r"\b(?:has|have|had) (?:a|no) say\b": "code has no opinion: 'does not count for labels'",
    r"\bspeaks? (?:for|against)\b": "code does not speak: 'supports', 'evidence for'",
    r"\bhears?\b": "code does not hear: 'is called with', 'receives'",
    r"\bheld against\b": "say 'compared with'",
    r"\bannotations? of nothing\b": "the term is 'spurious annotation'",
    r"\b(?:that|which) (?:is|are) none\b": "a noun cannot be negated: 'a box that is not finite'",
    r"\bwhat (?:became|becomes) of\b": "name the result: 'the verdict on each annotation'",
    r"\b(?:become|became|comes|came|come) of (?:it|them|that)\b": "name the result",
    r"\bis to go\b": "say 'is removed'",
    r"\bgo(?:es)? by (?:it|them|the|its|their)\b": "say 'uses'",
    r"\bstands? (?:in|at|beside|behind) (?!for\b)": "text does not stand: 'is in'",
    r"\bwithout a word\b": "say what is missing: 'without a result'",
    r"\b(?:cannot|can) be had\b": "say 'is not available'",
    r"\bis no wonder\b": "explain the reason",
    r"\bslips? of (?:a|the) hand\b": "say 'wrong click'",
    r"\bput into words\b|\bin words$": "say 'as text'",
    r"\bkeepsakes?\b": "the term is 'artifacts'",
    r"\btak(?:e|es|en|ing) up\b(?! (?:\d|to|memory|space|time))": "say 'load', 'read', 'continue'",
    r"\bnobody\b": "use the passive: 'unverified annotations', 'an unfinished image'",
    r"\bpassed over\b": "say 'skipped'",
    r"\bdie[sd]? out\b": "say what remains: 'in the tail, where only errors remain'",
    r"\b(?:teach(?:es)?|conclude[sd]?) nothing\b": "say 'too few to fit'",
    r"\bas good as (?:none|nothing)\b": "name the size",
    r"\bat hand\b": "say 'in the cache' or 'available'",
    r"\bhow far off\b": "name the quantity: 'the error of an edge'",
    r"\b(?:is|are|was|were) looked at\b": "say what happens: 'audited', 'read', 'compared'",
    r"(?<![\w.)\]])\.\d": "write numbers with a leading zero: 0.95",
}
"""Regular expressions, and why each is refused."""

PARTICIPLES = frozenset(
    re.findall(
        r"\w+",
        "begun bound built chosen done drawn fed felt found given gone grown heard held hidden "
        "kept known laid left lost made meant met paid said seen sent shown sought spoken stood "
        "struck taken thought thrown told torn understood worn written",
    )
)
NO_PARTICIPLES = {
    "bound": "noun: a limit",
    "embed": "verb",
    "mended": "adjective: the mended dataset",
    "need": "verb",
    "proceed": "verb",
    "seed": "noun and verb",
    "shed": "verb",
    "speed": "noun",
}
"""Names of functions that end like a participle, and what they are."""

MESSAGE_CALLS = frozenset(
    ("print", "say", "warn", "warning", "info", "error", "log", "report", "note")
)
ODD_WORDS = {
    "told": "name the thing: message, summary, values",
    "heard": "name the thing",
    "wishes": "the term is 'request'",
    "keepsakes": "the term is 'artifacts'",
    "hopeless": "name quantity and unit",
    "faint": "name quantity and unit",
}
"""Words that no public name may have, and what to write instead."""


NO_VERBS = frozenset(
    re.findall(r"\w+", "A All An By How In Of One The This What Where Whether Which Who")
)
"""First words of a docstring without a verb, like "The mean of .." or "How often .."."""


class Text(NamedTuple):
    """A text in the source, and where it starts."""

    place: str
    text: str


def python_files(place: str) -> list[Path]:
    """Return the files of a package, of a module, or of a folder of scripts."""
    path = (PROJECT if place in SCRIPTS else ROOT) / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def display_path(path: Path) -> str:
    return str(path.relative_to(ROOT if path.is_relative_to(ROOT) else PROJECT))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings and the strings below attributes."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.lineno, value.value


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the texts of errors, printed lines, log lines and help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _is_message(node)):
            for literal in literals(node):
                yield node.lineno, literal


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments of a file."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def _is_message(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name.endswith(("Error", "Parameter")) or name in MESSAGE_CALLS


def literals(node: ast.AST) -> Iterator[str]:
    """Yield string literals; the values in an f-string become an ellipsis."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    else:
        for child in ast.iter_child_nodes(node):
            yield from literals(child)


def texts(place: str) -> Iterator[Text]:
    for path in python_files(place):
        tree = ast.parse(path.read_text())
        for line, text in (*docstrings(tree), *messages(tree), *comments(path)):
            yield Text(f"{display_path(path)}:{line}", " ".join(text.split()))


def dialect_in(text: str) -> list[str]:
    """Return why a text is refused."""
    matches = ((re.search(pattern, text, re.IGNORECASE), why) for pattern, why in DIALECT.items())
    return [f"{match.group()!r}: {why}" for match, why in matches if match]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and methods, but not properties, whose names may be adjectives."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            if not decorators & {"property", "cached_property"}:
                yield node


def is_participle(name: str) -> bool:
    word = name.strip("_")
    if "_" in word or word in NO_PARTICIPLES:
        return False
    return word in PARTICIPLES or (len(word) > 4 and word.endswith("ed"))


def lacks_verb(docstring: str) -> bool:
    """Return whether a docstring of a function starts with a noun, a shape or a question."""
    first = docstring.split()[0]
    return first in NO_VERBS or first.startswith("[")


def public_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield names of functions, classes, parameters, constants and fields without underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for body in (tree.body, *bodies):
        for node in body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield node.lineno, target.id


@pytest.mark.parametrize("place", PLACES)
def test_docstrings_comments_and_messages_are_plain(place: str) -> None:
    refused = [
        f"{place}: {reason} in {text[:160]!r}"
        for place, text in texts(place)
        for reason in dialect_in(text)
    ]
    assert refused == []


@pytest.mark.parametrize("place", PLACES)
def test_functions_are_not_named_by_a_bare_participle(place: str) -> None:
    refused = [
        f"{display_path(path)}:{node.lineno}: {node.name}; use verb and object"
        for path in python_files(place)
        for node in functions(ast.parse(path.read_text()))
        if is_participle(node.name)
    ]
    assert refused == []


@pytest.mark.parametrize("place", PLACES)
def test_docstrings_of_functions_start_with_a_verb(place: str) -> None:
    refused = [
        f"{display_path(path)}:{node.lineno}: {docstring.splitlines()[0]}"
        for path in python_files(place)
        for node in functions(ast.parse(path.read_text()))
        if (docstring := ast.get_docstring(node)) and lacks_verb(docstring)
    ]
    assert refused == []


@pytest.mark.parametrize("place", PLACES)
def test_public_names_have_no_odd_words(place: str) -> None:
    refused = [
        f"{display_path(path)}:{line}: {name}; {why}"
        for path in python_files(place)
        for line, name in public_names(ast.parse(path.read_text()))
        for word, why in ODD_WORDS.items()
        if not name.startswith("_") and word in name.lower().split("_")
    ]
    assert refused == []


@pytest.mark.parametrize(
    "text",
    [
        "Return None if the threshold is None.",
        "Given a batch, return its losses.",
        "boxmend found 3 errors; the largest was taken from the table.",
        "A score of 0.95 stands for a share; version 1.2.3 and RUN/.boxmend are fine.",
        "Taken together, they say nothing about the noise. It is given as a fraction.",
        "The pictures take up 2 GB, each takes up to 60 KB; two classes cannot be told apart.",
    ],
)
def test_ordinary_english_is_accepted(text: str) -> None:
    assert dialect_in(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Train on annotations that nobody vouches for.",
        "Whoever watches is told of it.",
        "Verdicts are held against the truth.",
        "A share of .95",
        "Visits of warm-up have no say.",
        "In the tail, where the right ones have died out.",
        "Twelve detections were passed over.",
    ],
)
def test_the_dialect_is_refused(text: str) -> None:
    assert dialect_in(text)


def test_docstrings_messages_and_comments_of_a_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Top."""\nif not x:  # why\n    raise ValueError(f"{x} is wrong")\n')
    tree = ast.parse(path.read_text())
    texts_of_file = {*docstrings(tree), *messages(tree), *comments(path)}
    assert texts_of_file == {(1, "Top."), (3, "… is wrong"), (2, "# why")}


@pytest.mark.parametrize("name", ["_told", "settled", "listed", "_taken", "joined"])
def test_bare_participles_are_noticed(name: str) -> None:
    assert is_participle(name)


@pytest.mark.parametrize("name", ["seed", "embed", "speed", "is_settled", "read", "list_cells"])
def test_verbs_and_nouns_are_no_participles(name: str) -> None:
    assert not is_participle(name)


@pytest.mark.parametrize(
    "docstring", ["The mean of all shares.", "[n] Mark boxes.", "How often a class is seen."]
)
def test_docstrings_without_a_verb_are_noticed(docstring: str) -> None:
    assert lacks_verb(docstring)


@pytest.mark.parametrize("docstring", ["Return the mean [n].", "Count boxes.", "Wait for a lock."])
def test_docstrings_with_a_verb_are_accepted(docstring: str) -> None:
    assert not lacks_verb(docstring)
