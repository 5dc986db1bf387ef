"""Join several COCO documents: the first one, with the entries of the others appended."""

from collections.abc import Iterator

import msgspec

from boxmend.data.dataset import Dataset
from boxmend.data.formats.coco import composing
from boxmend.data.formats.coco.composing import encode_value, to_plain_id
from boxmend.data.formats.coco.document import UNDECODABLE, read_all_members, replace_values
from boxmend.data.formats.coco.patching import Patch, assign_category_ids, make_patches
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import Document, apply_edits
from boxmend.errors import DataError

LISTS = ("images", "annotations", "categories")


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """Yield the joined document, named after its splits."""
    first, *others = make_patches(dataset, segmentation)
    categories = assign_category_ids(dataset, first)
    appended: dict[str, list[bytes]] = {key: [] for key in LISTS}
    names = composing.assign_file_names(dataset)
    for other in others:
        other.is_joined = True
        appended["images"] += _build_images(other, names)
        appended["annotations"] += [new for _, _, new in other.build_changed_entries(categories)]
        appended["annotations"] += other.build_new_annotations(categories)
    appended["categories"] = _build_categories(first, others, categories)
    edits = first.make_edits(categories, appended)
    yield Document(composing.joined_file_name(dataset), apply_edits(first.source.data, edits))


def _build_images(patch: Patch, names: list[str]) -> list[bytes]:
    """Return the image entries of an appended document with their new ids and names."""
    images, source = patch.dataset.images, patch.source
    entries = []
    for row in patch.images.tolist():
        source_row = int(images.rows[row])
        values = {}
        if images.ids[row] != source.image_ids[source_row]:
            values["id"] = encode_value(to_plain_id(images.ids[row]))
        if images.file_names[row] != names[row] and images.paths[row]:
            values["file_name"] = encode_value(names[row])
        entry = source.entry(source.images, source_row)
        entries.append(_change_entry(entry, values, source, f"image {images.ids[row]}"))
    return entries


def _build_categories(
    first: Patch, others: list[Patch], categories: dict[int, int | str]
) -> list[bytes]:
    """Return the category entries that the first document lacks, with their new ids."""
    known = set(first.source.label_names)
    label_of = {name: label for label, name in enumerate(first.dataset.label_names)}
    entries = []
    for source in (other.source for other in others):
        for row, name in enumerate(source.label_names):
            if name not in known:
                known.add(name)
                values = {"id": encode_value(categories[label_of[name]])}
                if source.category_names[row] != name:
                    values["name"] = encode_value(name)
                entry = source.entry(source.categories, row)
                entries.append(_change_entry(entry, values, source, f"category {name!r}"))
    new_names = [name for name in first.dataset.label_names if name not in known]
    return entries + [
        composing.encode_category(categories[label_of[name]], name) for name in new_names
    ]


def _change_entry(
    entry: bytes, values: dict[str, bytes], source: CocoSource, description: str
) -> bytes:
    if not values:
        return entry
    try:
        return replace_values(entry, values)
    except UNDECODABLE as error:
        raise DataError(
            f"{source.path}: {description} is malformed and cannot be changed ({error}); correct it"
        ) from error


def list_losses(dataset: Dataset) -> list[str]:
    """Return a phrase for each other key that joining loses: only the first file's are kept."""
    first, *others = [source for source in dataset.sources if isinstance(source, CocoSource)]
    kept = _read_other_values(first)
    lost = [
        f"{key!r} of {source.path.name}"
        for source in others
        for key, value in _read_other_values(source).items()
        if key not in kept or not _is_equal(kept[key], value)
    ]
    return lost + _list_category_losses([first, *others])


def _read_other_values(source: CocoSource) -> dict[str, bytes]:
    try:
        values = read_all_members(source.data)
    except UNDECODABLE as error:
        raise DataError(
            f"{source.path}: is malformed and cannot be joined with others ({error}); correct it"
        ) from error
    return {key: values[key] for key in sorted(values.keys() - set(LISTS))}


def _list_category_losses(sources: list[CocoSource]) -> list[str]:
    """Return a phrase for each category key that differs from an earlier document's category."""
    kept: dict[str, dict[str, bytes]] = {}
    lost = []
    for source in sources:
        for row, name in enumerate(source.label_names):
            try:
                values = read_all_members(source.entry(source.categories, row))
            except UNDECODABLE:
                continue  # the reader reported it as a finding
            first_values = kept.setdefault(name, values)
            for key in sorted(values.keys() - {"id", "name"}):
                if key not in first_values or not _is_equal(first_values[key], values[key]):
                    lost.append(f"{key!r} of category {name!r} of {source.path.name}")
    return lost


def _is_equal(a: bytes, b: bytes) -> bool:
    """Return whether two JSON values are equal, even if they are written differently."""
    if a == b:
        return True
    try:
        return bool(msgspec.json.decode(a) == msgspec.json.decode(b))
    except UNDECODABLE:
        return False
