"""Several COCO documents as one: the first, with the entries of the others behind its own."""

from collections.abc import Iterator

import msgspec

from boxmend.data.dataset import Dataset
from boxmend.data.formats.coco import composing
from boxmend.data.formats.coco.composing import encoded, plain_id
from boxmend.data.formats.coco.document import UNDECODABLE, all_members, with_values
from boxmend.data.formats.coco.patching import Patch, categories_with, patches
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import Document, apply_edits
from boxmend.errors import DataError

LISTS = ("images", "annotations", "categories")


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """The one document, named after the splits in it."""
    first, *others = patches(dataset, segmentation)
    categories = categories_with(dataset, first)
    more: dict[str, list[bytes]] = {key: [] for key in LISTS}
    names = composing.file_names(dataset)
    for other in others:
        other.is_joined = True
        more["images"] += _images(other, names)
        more["annotations"] += [new for _, _, new in other.changed_entries(categories)]
        more["annotations"] += other.new_annotations(categories)
    more["categories"] = _categories(first, others, categories)
    edits = first.edits(categories, more)
    yield Document(composing.joined_name(dataset), apply_edits(first.source.data, edits))


def _images(patch: Patch, names: list[str]) -> list[bytes]:
    """The images of a document that is put behind another, under their new ids and names."""
    images, source = patch.dataset.images, patch.source
    entries = []
    for row in patch.images.tolist():
        source_row = int(images.rows[row])
        values = {}
        if images.ids[row] != source.image_ids[source_row]:
            values["id"] = encoded(plain_id(images.ids[row]))
        if images.file_names[row] != names[row] and images.paths[row]:
            values["file_name"] = encoded(names[row])
        entry = source.entry(source.images, source_row)
        entries.append(_with_values(entry, values, source, f"image {images.ids[row]}"))
    return entries


def _categories(first: Patch, others: list[Patch], categories: dict[int, int | str]) -> list[bytes]:
    """The categories that the first document lacks, under their new ids, as others have them."""
    known = set(first.source.label_names)
    label_of = {name: label for label, name in enumerate(first.dataset.label_names)}
    entries = []
    for source in (other.source for other in others):
        for row, name in enumerate(source.label_names):
            if name not in known:
                known.add(name)
                values = {"id": encoded(categories[label_of[name]])}
                if source.category_names[row] != name:
                    values["name"] = encoded(name)
                entry = source.entry(source.categories, row)
                entries.append(_with_values(entry, values, source, f"category {name!r}"))
    nowhere = [name for name in first.dataset.label_names if name not in known]
    return entries + [
        composing.category_entry(categories[label_of[name]], name) for name in nowhere
    ]


def _with_values(entry: bytes, values: dict[str, bytes], source: CocoSource, what: str) -> bytes:
    if not values:
        return entry
    try:
        return with_values(entry, values)
    except UNDECODABLE as error:
        raise DataError(f"{source.path}: {what} cannot be changed: {error}") from error


def list_losses(dataset: Dataset) -> list[str]:
    """What is lost where several COCO files become one: all but the first one's other keys."""
    first, *others = [source for source in dataset.sources if isinstance(source, CocoSource)]
    kept = _other_values(first)
    lost = [
        f"{key!r} of {source.path.name}"
        for source in others
        for key, value in _other_values(source).items()
        if key not in kept or not _is_same(kept[key], value)
    ]
    return lost + _lost_of_categories([first, *others])


def _other_values(source: CocoSource) -> dict[str, bytes]:
    try:
        values = all_members(source.data)
    except UNDECODABLE as error:
        raise DataError(f"{source.path}: cannot be joined with others: {error}") from error
    return {key: values[key] for key in sorted(values.keys() - set(LISTS))}


def _lost_of_categories(sources: list[CocoSource]) -> list[str]:
    """Keys of categories that an earlier document has under the same name, but otherwise."""
    kept: dict[str, dict[str, bytes]] = {}
    lost = []
    for source in sources:
        for row, name in enumerate(source.label_names):
            try:
                values = all_members(source.entry(source.categories, row))
            except UNDECODABLE:
                continue  # it has been told as a finding when it was read
            before = kept.setdefault(name, values)
            for key in sorted(values.keys() - {"id", "name"}):
                if key not in before or not _is_same(before[key], values[key]):
                    lost.append(f"{key!r} of category {name!r} of {source.path.name}")
    return lost


def _is_same(one: bytes, other: bytes) -> bool:
    """Whether two values mean the same, however they are written."""
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except UNDECODABLE:
        return False
