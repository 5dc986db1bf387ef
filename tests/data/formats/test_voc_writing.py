"""Writing VOC: the same bytes without changes, small edits, and new documents."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from boxmend.data.dataset import ADDED, UNKNOWN, Dataset, Images, Source
from boxmend.data.formats import voc
from boxmend.data.joining import join
from boxmend.errors import BoxmendError, DataError
from tests.data.formats.voc_folders import (
    CAT,
    DOG,
    PLAIN,
    corners,
    image,
    objects,
    read,
    read_back,
    save_to_memory,
    voc_folder,
)

# Patching


def test_nothing_changed_gives_the_same_bytes(tmp_path: Path) -> None:
    utf16 = '<?xml version="1.0" encoding="utf-16"?>' + objects(DOG)
    documents: dict[str, str | bytes] = {
        "000001": PLAIN,
        "a/2": objects(DOG, CAT),
        "3": utf16.encode("utf-16"),
    }
    lists = {"train": "000001\r\n\r\na/2", "val": "gone 1\n", "dog_train": "000001 -1\n"}
    root = voc_folder(tmp_path, documents, lists)
    files = save_to_memory(read(root))
    assert set(files) == {
        *(f"Annotations/{name}.xml" for name in documents),
        *(f"ImageSets/Main/{name}.txt" for name in lists),
    }
    assert all((root / name).read_bytes() == content for name, content in files.items())


def test_a_split_is_written_with_only_its_own_list(tmp_path: Path) -> None:
    files = {"1": objects(DOG), "2": objects(CAT)}
    root = voc_folder(tmp_path, files, {"train": "2 x", "val": "1\n"})
    assert save_to_memory(read(root, "train")) == {
        "Annotations/2.xml": objects(CAT).encode(),
        "ImageSets/Main/train.txt": b"2 x",
    }


def test_a_folder_without_lists_gets_one_of_all(tmp_path: Path) -> None:
    root = voc_folder(tmp_path, {"b": objects(DOG), "a": objects(CAT)})
    assert save_to_memory(read(root))["ImageSets/Main/all.txt"] == b"a\nb\n"


def test_only_the_coordinates_that_changed_are_rewritten(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"000001": PLAIN}))
    dataset.boxes[1, 0] = 9.0
    dataset.boxes[1, 1] = 400.125
    dataset.boxes[1, 3] += 1e-8  # which rounding swallows, so that 498.00 stays
    expected = PLAIN.replace(" 8.5 ", " 10 ").replace("12.25", "401.125")
    assert save_to_memory(dataset)["Annotations/000001.xml"].decode() == expected


def test_a_new_label_changes_only_the_name(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"000001": PLAIN}))
    dataset.label_names = (*dataset.label_names, "cat & <dog>")
    dataset.labels[1] = 2
    expected = PLAIN.replace("person", "cat &amp; &lt;dog&gt;")
    assert save_to_memory(dataset)["Annotations/000001.xml"].decode() == expected


def test_a_renamed_label_changes_every_name(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"000001": PLAIN}))
    dataset.label_names = ("hound", "person")
    assert save_to_memory(dataset)["Annotations/000001.xml"].decode() == PLAIN.replace(
        "dog", "hound"
    )


def test_the_difficult_flag_is_patched_or_added(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"000001": PLAIN, "2": objects(DOG)}))
    dataset.is_difficult[:] = [True, True, True]
    files = save_to_memory(dataset)
    assert files["Annotations/000001.xml"].decode() == PLAIN.replace("difficult>0", "difficult>1")
    assert files["Annotations/2.xml"].decode() == objects(f"{DOG}<difficult>1</difficult>")


def test_wrong_values_can_be_corrected(tmp_path: Path) -> None:
    root = voc_folder(tmp_path / "old", {"1": objects(corners(1, "2,5", 3, 4), "<name>cat</name>")})
    dataset = read(root)
    dataset.boxes[:] = np.array([[0, 1.5, 3, 4], [1, 2, 3, 4]])
    dataset.labels[0] = 0
    again = read_back(dataset, tmp_path / "new")
    assert_array_equal(again.boxes, dataset.boxes)
    assert (again.labels.tolist(), again.label_names) == ([0, 0], ("cat",))
    assert again.findings == ()


def test_uncorrected_values_stay(tmp_path: Path) -> None:
    source = objects(corners(1, "2,5", 3, 4), "<name>cat</name>", DOG)
    dataset = read(voc_folder(tmp_path, {"1": source}))
    dataset.boxes[2, 3] = 9
    new = save_to_memory(dataset)["Annotations/1.xml"].decode()
    assert new == source.replace(DOG, DOG.replace("<ymax>4", "<ymax>9"))


def test_removing_and_adding_keeps_the_other_annotations(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"000001": PLAIN, "2": objects(CAT)}))
    dataset = dataset.take(np.array([1, 2]))
    dataset = dataset.add(np.array([0]), np.array([0]), np.array([[9.0, 19, 30.5, 40]]))
    dataset.is_difficult[2] = True
    first, _, rest = PLAIN.partition("\t<object>\n\t\t<name>dog")
    second = "\t<object>\n\t\t<name>person" + rest.partition("\t<object>\n\t\t<name>person")[2]
    added = (
        "\t<object>\n\t\t<name>cat</name>\n\t\t<pose>Unspecified</pose>\n"
        "\t\t<truncated>0</truncated>\n\t\t<difficult>1</difficult>\n\t\t<bndbox>\n"
        "\t\t\t<xmin>10</xmin>\n\t\t\t<ymin>20</ymin>\n\t\t\t<xmax>30.5</xmax>\n"
        "\t\t\t<ymax>40</ymax>\n\t\t</bndbox>\n\t</object>\n</annotation>\n"
    )
    files = save_to_memory(dataset)
    assert files["Annotations/000001.xml"].decode() == (
        first + second.removesuffix("</annotation>\n") + added
    )
    assert files["Annotations/2.xml"].decode() == objects(CAT)
    assert voc.assign_annotation_ids(dataset).tolist() == ["000001:0", "2:0", "000001:1"]


def test_removed_images_leave_files_and_lists(tmp_path: Path) -> None:
    files = {name: objects(DOG) for name in ("1", "2", "a b")}
    lists: dict[str, str | bytes] = {
        "train": "1\r\na b\r\n\r\n2\r\nunknown\r\n",
        "val": b"\xef\xbb\xbf2 1\n1 -1",
    }
    dataset = read(voc_folder(tmp_path, files, lists)).take_images(np.array([0]))
    assert save_to_memory(dataset) == {
        "Annotations/1.xml": objects(DOG).encode(),
        "ImageSets/Main/train.txt": b"1\r\n\r\nunknown\r\n",
        "ImageSets/Main/val.txt": b"1 -1",
    }
    none = dataset.take_images(np.array([], np.int64))
    assert set(save_to_memory(none)) == {"ImageSets/Main/train.txt", "ImageSets/Main/val.txt"}


def test_joined_folders_are_patched_one_by_one(tmp_path: Path) -> None:
    parts = []
    for group, name in enumerate(("VOC2007", "VOC2012")):
        root = voc_folder(tmp_path / name, {"1": objects([DOG, CAT][group])}, {"train": "1\n"})
        parts.append(read(root))
        parts[group].sources[0].group = group
    both = join(parts)
    both.boxes[:, 2] += 10
    assert voc.list_losses(both) == []
    second = both.take_images(np.array([1]))
    assert save_to_memory(second) == {
        "Annotations/1.xml": objects(CAT).replace("<xmax>7", "<xmax>17").encode(),
        "ImageSets/Main/train.txt": b"1\n",
    }
    saved = both.save(tmp_path / "out", images_as="none")
    assert set(saved.files) == {
        f"{name}/{file}"
        for name in ("VOC2007", "VOC2012")
        for file in ("Annotations/1.xml", "ImageSets/Main/train.txt")
    }


@pytest.mark.parametrize(
    ("label", "box", "message"),
    [
        (UNKNOWN, [1.0, 2, 3, 4], "no label"),
        (1, [1.0, 2, 3, 4], "XML cannot hold"),
        (0, [1.0, np.nan, 3, 4], "not finite"),
        (0, [1.0, np.inf, 3, 4], "not finite"),
    ],
)
def test_what_a_document_cannot_hold_is_refused(
    tmp_path: Path, label: int, box: list[float], message: str
) -> None:
    dataset = read(voc_folder(tmp_path, {"1": objects(DOG)}))
    dataset.label_names = ("dog", "\x01")
    dataset.labels[0] = label
    dataset.boxes[0] = box
    with pytest.raises(DataError, match=message):
        save_to_memory(dataset)


def test_repeated_or_moved_source_rows_are_refused(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"1": objects(DOG), "2": objects(CAT)}))
    with pytest.raises(ValueError, match="once"):
        save_to_memory(dataset.take(np.array([0, 0, 1])))
    with pytest.raises(ValueError, match="its own image"):
        save_to_memory(replace(dataset, image_rows=np.array([1, 1])))


def test_saving_does_not_change_the_input(tmp_path: Path) -> None:
    root = voc_folder(tmp_path / "old", {"000001": PLAIN}, {"train": "000001\n"})
    image(root / "JPEGImages" / "000001.jpg", (353, 500))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    dataset = read(root, "train")
    dataset.boxes += 1
    saved = dataset.save(tmp_path / "new")
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert (tmp_path / "new" / "JPEGImages" / "000001.jpg").is_symlink()
    again = read(tmp_path / "new", "train")
    assert_array_equal(again.boxes, dataset.boxes)
    assert saved.annotation_ids.tolist() == again.annotation_ids.tolist()


# Composing


@dataclass(eq=False)
class OtherSource(Source):
    """A source of another format with values that VOC cannot hold."""

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [
            {"pose": "Left & up", "truncated": True, "occluded": 2} if row else {} for row in rows
        ]

    def extras(self) -> dict[str, int]:
        return {"licence": 2}


def other_dataset(file_names: list[str], splits: list[str]) -> Dataset:
    n = len(file_names)
    boxes = np.array([[0.0, 1.25, 10, 20.1234567]] * 2 + [[5.0, 5, 6, 6]])
    labels = np.array([0, 1, 1])
    return Dataset(
        images=Images(
            ids=np.arange(n) + 7,
            file_names=file_names,
            paths=[""] * n,
            splits=splits,
            widths=np.full(n, 40),
            heights=np.full(n, 30),
            sources=np.zeros(n, np.int64),
            rows=np.arange(n),
        ),
        label_names=("dog", "a<b"),
        annotation_ids=np.array([3, 1, 2]),
        image_rows=np.array([1, 0, 1]),
        labels=labels,
        boxes=boxes,
        is_crowd=np.array([False, True, False]),
        is_difficult=np.array([False, False, True]),
        source_of=np.zeros(3, np.int64),
        source_rows=np.array([0, 1, ADDED]),
        sources=(OtherSource("other", Path("x.json"), ("dog", "a<b"), boxes + 0, labels + 0),),
    )


def test_other_formats_become_new_documents_and_lists() -> None:
    files = save_to_memory(other_dataset(["a.jpg", "sub/b&c.png"], ["val", "train"]))
    assert set(files) == {
        *("Annotations/a.xml", "Annotations/sub/b&c.xml"),
        *("ImageSets/Main/val.txt", "ImageSets/Main/train.txt"),
    }
    assert files["ImageSets/Main/train.txt"] == b"sub/b&c\n"
    assert files["Annotations/a.xml"].decode() == (
        "<annotation>\n\t<folder>JPEGImages</folder>\n\t<filename>a.jpg</filename>\n"
        "\t<size>\n\t\t<width>40</width>\n\t\t<height>30</height>\n\t\t<depth>3</depth>\n\t</size>\n"
        "\t<segmented>0</segmented>\n\t<object>\n\t\t<name>a&lt;b</name>\n"
        "\t\t<pose>Left &amp; up</pose>\n\t\t<truncated>1</truncated>\n\t\t<occluded>2</occluded>\n"
        "\t\t<difficult>0</difficult>\n\t\t<bndbox>\n\t\t\t<xmin>1</xmin>\n\t\t\t<ymin>2.25</ymin>\n"
        "\t\t\t<xmax>10</xmax>\n\t\t\t<ymax>20.123457</ymax>\n\t\t</bndbox>\n\t</object>\n"
        "</annotation>\n"
    )


def test_new_documents_read_back_as_they_were(tmp_path: Path) -> None:
    dataset = other_dataset(["a.jpg", "sub/b c.png"], ["val", "train"])
    again = read_back(dataset, tmp_path)
    assert again.findings == ()
    assert again.images.file_names == dataset.images.file_names
    assert again.images.splits == ["val", "train"]
    assert again.label_names == ("a<b", "dog")
    order = [1, 0, 2]  # image by image
    assert again.annotation_ids.tolist() == voc.assign_annotation_ids(dataset)[order].tolist()
    assert again.annotation_ids.tolist() == ["a:0", "sub/b c:0", "sub/b c:1"]
    np.testing.assert_allclose(again.boxes, dataset.boxes[order], atol=1e-6)
    assert_array_equal(again.is_difficult, dataset.is_difficult[order])
    assert again.sources[0].attributes(np.arange(3)) == [
        {"pose": "Left & up", "truncated": 1, "occluded": 2},
        {},
        {},
    ]


def test_images_that_differ_by_extension_get_separate_documents() -> None:
    files = save_to_memory(other_dataset(["a.jpg", "a.png", "b.jpg", "a.jpg.gif"], ["all"] * 4))
    assert files["ImageSets/Main/all.txt"] == b"a.jpg\na.png\nb\na.jpg-2\n"
    assert len([name for name in files if name.startswith("Annotations/")]) == 4


@pytest.mark.parametrize(
    ("file_name", "split", "message"),
    [
        ("a\x01.jpg", "all", "XML cannot hold"),
        ("a\n.jpg", "all", "list cannot hold"),
        (".", "all", "'.': is not a file name"),
        ("./.", "all", "is not a file name"),
        ("a.jpg", "../all", "split"),
    ],
)
def test_names_that_no_file_should_have_are_refused(
    file_name: str, split: str, message: str
) -> None:
    with pytest.raises(BoxmendError, match=message):
        save_to_memory(other_dataset([file_name, "b.jpg"], [split, split]))


def test_an_annotation_without_image_is_refused() -> None:
    dataset = other_dataset(["a.jpg", "b.jpg"], ["all", "all"])
    dataset.image_rows[0] = UNKNOWN
    with pytest.raises(DataError, match="annotation 3"):
        save_to_memory(dataset)


def test_what_voc_cannot_hold_is_reported() -> None:
    dataset = other_dataset(["a.jpg", "b.jpg"], ["all", "all"])
    dataset.label_names = ("dog", " cat")
    assert voc.list_losses(dataset) == [
        *("1 crowd flags (iscrowd)", "2 x licence"),
        "white space around 1 label names, such as ' cat'",
    ]


def test_a_conversion_away_from_voc_would_lose_what_no_column_holds(tmp_path: Path) -> None:
    plain = PLAIN.replace("<segmented>", "<source><database>Unknown</database></source><segmented>")
    rich = (
        "<annotation verified='yes'><!-- one --><owner><name>Ann</name></owner>"
        "<source><image>flickr</image></source><segmented>1</segmented><layout/>"
        f"<object><part><name>head</name></part><part a='b'/>{DOG}<actions><run>1</run></actions>"
        "</object></annotation>"
    )
    dataset = read(voc_folder(tmp_path, {"1": plain, "2": rich, "3": b"broken"}))
    assert dataset.sources[0].extras() == {
        "part": 2,
        "comment": 1,
        "verified attribute of <annotation>": 1,
        "<layout> element": 1,
        "<actions> element": 1,
        "segmented flag": 1,
        "owner of the image": 1,
        "source of the image": 1,
    }
    assert voc.list_losses(dataset) == []


def test_the_number_of_extras_that_are_named_is_bounded(tmp_path: Path) -> None:
    odd = "".join(f"<x{k}/>" for k in range(1000))
    extras = (
        read(voc_folder(tmp_path, {"1": f"<annotation>{odd}</annotation>"})).sources[0].extras()
    )
    assert sum(extras.values()) == 1000
    assert len(extras) == 21
