"""Reading drawings back: the marks of an SVG, by tag and class, with their numbers."""

from xml.etree import ElementTree

NAMESPACE = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    """The root of a drawing; a ParseError where it is not well-formed."""
    return ElementTree.fromstring(svg.encode("utf-8"))


def found(svg: str, tag: str, css: str | None = None) -> list[ElementTree.Element]:
    """All elements of a tag, and of a class if one is given, in the order of drawing."""
    elements = parsed(svg).iter(f"{NAMESPACE}{tag}")
    return [element for element in elements if css is None or element.get("class") == css]


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    """Attributes as numbers."""
    return [float(element.attrib[name]) for name in names]


def texts(svg: str) -> list[str]:
    """What is written on a drawing."""
    return [one.text or "" for one in found(svg, "text")]
