"""Reading VOC folders: numbers computed by hand, lists, images, and hostile files."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from boxmend.data.dataset import UNKNOWN
from boxmend.data.formats import voc
from boxmend.errors import DataError, UsageError
from tests.data.formats.voc_folders import (
    CAT,
    DOG,
    PLAIN,
    corners,
    image,
    kinds,
    objects,
    read,
    save_to_memory,
    voc_folder,
)

# Reading


def test_an_empty_folder_of_documents_is_an_empty_dataset(tmp_path: Path) -> None:
    (tmp_path / "Annotations").mkdir()
    dataset = read(tmp_path)
    assert len(dataset) == len(dataset.images) == 0
    assert dataset.boxes.shape == (0, 4)
    assert save_to_memory(dataset) == {}


def test_pixels_count_from_one_and_the_last_one_belongs_to_the_box(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"000001": PLAIN}))
    assert_array_equal(dataset.boxes, [[47, 239, 195, 371], [7.5, 11.25, 352, 498]])
    assert dataset.label_names == ("dog", "person")
    assert_array_equal(dataset.labels, [0, 1])
    assert_array_equal(dataset.is_difficult, [False, True])
    assert not dataset.is_crowd.any()
    assert dataset.annotation_ids.tolist() == ["000001:0", "000001:1"]
    assert dataset.image_ids.tolist() == ["000001", "000001"]
    assert (dataset.images.widths.tolist(), dataset.images.heights.tolist()) == ([353], [500])
    assert dataset.findings == ()


def test_attributes_are_read_if_they_are_set(tmp_path: Path) -> None:
    occluded = "<occluded>1</occluded><pose> </pose><truncated>0.3</truncated>" + DOG
    dataset = read(voc_folder(tmp_path, {"000001": PLAIN, "2": objects(occluded)}))
    assert dataset.sources[0].attributes(np.array([2, 0, 1])) == [
        {"truncated": "0.3", "occluded": 1},
        {"pose": "Left", "truncated": 1},
        {},
    ]


@pytest.mark.parametrize(
    ("text", "flag"), [("1", True), (" 1\n", True), ("0", False), ("", False), ("false", False)]
)
def test_difficult_is_a_flag(tmp_path: Path, text: str, flag: bool) -> None:
    root = voc_folder(tmp_path, {"1": objects(f"{DOG}<difficult>{text}</difficult>")})
    assert read(root).is_difficult.tolist() == [flag]


def test_names_are_text_and_not_markup(tmp_path: Path) -> None:
    names = ("cats &amp; dogs", "<![CDATA[<tree>]]>", " &#x4e2d; ", "\u4e2d")
    root = voc_folder(tmp_path, {"1": objects(*(f"<name>{n}</name>{DOG[16:]}" for n in names))})
    dataset = read(root)
    assert [dataset.label_names[label] for label in dataset.labels] == [
        *("cats & dogs", "<tree>", "\u4e2d", "\u4e2d")
    ]


def test_documents_in_sub_folders_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    root = voc_folder(tmp_path, {"b": objects(DOG), "a/2": objects(DOG, CAT), "a/1": objects(CAT)})
    dataset = read(root)
    assert dataset.images.ids.tolist() == ["a/1", "a/2", "b"]
    assert dataset.annotation_ids.tolist() == ["a/1:0", "a/2:0", "a/2:1", "b:0"]
    assert dataset.document(3) == root / "Annotations" / "b.xml"


def test_resource_forks_of_a_mac_are_not_documents(tmp_path: Path) -> None:
    fork = b"\x00\x05\x16\x07\x00\x02\x00\x00"
    dataset = read(voc_folder(tmp_path, {"1": objects(DOG), "._1": fork, "._2": objects(CAT)}))
    assert dataset.images.ids.tolist() == ["._2", "1"]
    assert dataset.findings == ()


# Lists


def test_a_split_is_read_in_the_order_of_its_list(tmp_path: Path) -> None:
    files = {name: objects(DOG) for name in ("1", "2", "3", "my cat")}
    root = voc_folder(tmp_path, files, {"train": "3  1\r\n\r\n1\t-1\r\nmy cat\r\n"})
    dataset = read(root, "train")
    assert dataset.images.ids.tolist() == ["3", "1", "my cat"]
    assert dataset.images.splits == ["train"] * 3
    assert dataset.findings == ()


def test_without_a_split_the_most_specific_list_counts(tmp_path: Path) -> None:
    files = {name: objects(DOG) for name in "12345"}
    lists = {"all_cats": "4\n1\n", "trainval": "1\n2\n3\n", "val": "2\n", "train": "1\n9\n"}
    dataset = read(voc_folder(tmp_path, files, lists))
    assert dataset.images.splits == ["train", "val", "trainval", "all_cats", "all"]
    assert dataset.findings == ()


def test_an_unknown_split_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    root = voc_folder(tmp_path, {"1": objects(DOG)}, {"val": "1\n", "train": "1\n"})
    with pytest.raises(UsageError, match=r"'test'.*train, val"):
        read(root, "test")
    with pytest.raises(UsageError, match=r"'\.\./\.\./secret'"):
        read(root, "../../secret")


def test_entries_without_a_document_are_findings_with_their_line(tmp_path: Path) -> None:
    lists = {"train": "1\nnone\n../1\n/etc/passwd\n1\n\xff\n".encode("latin-1")}
    dataset = read(voc_folder(tmp_path, {"1": objects(DOG)}, lists), "train")
    assert dataset.images.ids.tolist() == ["1"]
    assert kinds(dataset) == [
        *("malformed", "unsafe-name", "unsafe-name", "duplicate-id", "malformed")
    ]
    texts = [finding.message for finding in dataset.findings]
    assert [text[:6] for text in texts] == [f"line {line}" for line in (2, 3, 4, 5, 6)]
    assert "none.xml" in texts[0]
    assert all(one.file.endswith("train.txt") for one in dataset.findings)


def test_unsafe_entries_are_found_without_a_split_too(tmp_path: Path) -> None:
    root = voc_folder(tmp_path, {"1": objects(DOG)}, {"train": "1\n../x\nnone\n"})
    assert kinds(read(root)) == ["unsafe-name"]


# Images


def make_document(filename: str, size: str = "") -> str:
    return f"<annotation><filename>{filename}</filename>{size}</annotation>"


@pytest.mark.parametrize(
    ("filename", "there", "expected"),
    [
        ("x.png", ["x.png", "a/1.jpg"], "x.png"),
        ("x.png", ["a/x.png", "x.png"], "a/x.png"),
        ("x.png", ["a/1.webp"], "a/1.webp"),
        ("", ["a/1.JPG"], "a/1.JPG"),
        ("", [], "a/1.jpg"),
        ("b/x.png", [], "b/x.png"),
        ("x.png", [], "a/x.png"),
    ],
)
def test_the_image_is_the_one_named_else_the_one_of_the_same_name(
    tmp_path: Path, filename: str, there: list[str], expected: str
) -> None:
    root = voc_folder(tmp_path, {"a/1": make_document(filename)})
    for name in there:
        path = root / "JPEGImages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    dataset = read(root)
    assert dataset.images.file_names == [expected]
    folder = root / "JPEGImages" if there else root
    assert dataset.images.paths == [os.path.join(folder, expected)]
    assert dataset.findings == ()
    assert voc.assign_image_paths(dataset) == [f"JPEGImages/{expected}"]


@pytest.mark.parametrize("filename", ["../../x.jpg", "/etc/passwd", "C:\\x.jpg", "a/../../x.jpg"])
def test_a_filename_that_leads_out_is_reported_and_not_followed(
    tmp_path: Path, filename: str
) -> None:
    image(tmp_path / "x.jpg")
    root = voc_folder(tmp_path / "voc", {"1": make_document(filename)})
    dataset = read(root)
    assert dataset.images.file_names == ["1.jpg"]
    assert [(finding.kind, finding.image) for finding in dataset.findings] == [("unsafe-name", "1")]


def test_images_are_found_in_the_given_folder_or_the_usual_ones(tmp_path: Path) -> None:
    root = voc_folder(tmp_path / "voc", {"1": make_document("x.png")})
    assert read(root).images.paths == [str(root / "x.png")]
    image(root / "images" / "x.png")
    assert read(root).images.paths == [str(root / "images" / "x.png")]
    elsewhere = image(tmp_path / "pictures" / "x.png")
    assert read(root, images=elsewhere.parent).images.paths == [str(elsewhere)]


@pytest.mark.parametrize(
    ("size", "width", "height", "findings"),
    [
        ("<size><width> 8 </width><height>7.0</height></size>", 8, 7, []),
        ("<size><width>0</width><height>0</height></size>", 4, 3, []),
        ("<size/>", 4, 3, []),
        ("", 4, 3, []),
        ("<size><width>wide</width><height>7</height></size>", 4, 3, ["malformed"]),
        ("<size><width>1e99</width><height>-7</height></size>", 4, 3, ["malformed"]),
    ],
)
def test_a_size_that_is_not_recorded_is_read_from_the_image(
    tmp_path: Path, size: str, width: int, height: int, findings: list[str]
) -> None:
    root = voc_folder(tmp_path, {"1": make_document("1.png", size)})
    image(root / "JPEGImages" / "1.png")
    dataset = read(root)
    assert (dataset.images.widths.tolist(), dataset.images.heights.tolist()) == ([width], [height])
    assert kinds(dataset) == findings


def test_an_unknown_size_is_zero(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"1": make_document("1.png")}))
    assert (dataset.images.widths.tolist(), dataset.images.heights.tolist()) == ([0], [0])


# Wrong values and hostile files


@pytest.mark.parametrize(
    "text", ["12,5", "nan", "inf", "-Infinity", "1e999", "1_0", "0x1", "", "\u0661"]
)
def test_a_coordinate_that_is_not_a_finite_number_is_a_finding(tmp_path: Path, text: str) -> None:
    bad = f"<name>dog</name>{corners(1, text, 3, 4)}"
    dataset = read(voc_folder(tmp_path, {"1": objects(DOG, bad, CAT)}))
    assert_array_equal(np.isnan(dataset.boxes), [[False] * 4, [True] * 4, [False] * 4])
    (finding,) = dataset.findings
    assert (finding.kind, finding.image, finding.annotation_id) == ("box-not-finite", "1", "1:1")
    assert repr(text) in finding.message
    assert finding.file == str(tmp_path / "Annotations" / "1.xml")


def test_numbers_may_be_written_in_many_ways(tmp_path: Path) -> None:
    odd = corners("<!-- a --> +1.5e1", "<![CDATA[2]]>", "&#51;", ".5")
    dataset = read(voc_folder(tmp_path, {"1": objects(f"<name>dog</name>{odd}")}))
    assert_array_equal(dataset.boxes, [[14, 1, 3, 0.5]])
    assert dataset.findings == ()


def test_missing_names_and_boxes_are_findings_and_their_rows_stay(tmp_path: Path) -> None:
    nameless, boxless = corners(1, 2, 3, 4), "<name>cat</name>"
    dataset = read(voc_folder(tmp_path, {"1": objects(nameless, boxless)}))
    assert dataset.labels.tolist() == [UNKNOWN, 0]
    assert_array_equal(np.isnan(dataset.boxes).all(1), [False, True])
    assert [(finding.kind, finding.annotation_id) for finding in dataset.findings] == [
        ("malformed", "1:0"),
        ("box-not-finite", "1:1"),
    ]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", PLAIN[:300].encode(), b"<html></html>"])
def test_a_broken_document_is_a_finding_and_is_written_unchanged(
    tmp_path: Path, content: bytes
) -> None:
    dataset = read(voc_folder(tmp_path, {"1": content, "2": objects(DOG)}, {"val": "1\n2\n"}))
    assert dataset.images.ids.tolist() == ["1", "2"]
    assert dataset.annotation_ids.tolist() == ["2:0"]
    (finding,) = dataset.findings
    assert (finding.kind, finding.image) == ("malformed", "1")
    assert save_to_memory(dataset)["Annotations/1.xml"] == content
    more = dataset.add(np.array([0]), np.array([0]), np.array([[1.0, 2, 3, 4]]))
    with pytest.raises(DataError, match=r"1\.xml"):
        save_to_memory(more)


def test_files_that_cannot_be_read_are_findings_and_prevent_writing(tmp_path: Path) -> None:
    root = voc_folder(tmp_path, {"1": objects(DOG)})
    os.symlink("nowhere", root / "Annotations" / "2.xml")
    os.mkfifo(root / "Annotations" / "3.xml")
    with (root / "Annotations" / "4.xml").open("wb") as file:
        file.truncate((64 << 20) + 1)
    dataset = read(root)
    assert kinds(dataset) == ["malformed"] * 3
    assert dataset.images.ids.tolist() == ["1", "2", "3", "4"]
    with pytest.raises(DataError, match=r"2\.xml"):
        save_to_memory(dataset)


def test_a_file_name_that_is_invalid_on_other_systems_is_skipped(tmp_path: Path) -> None:
    root = voc_folder(tmp_path, {"1": objects(DOG), "a\\b": objects(CAT)})
    (root / "Annotations" / os.fsdecode(b"\xff.xml")).write_text(objects(CAT))
    dataset = read(root)
    assert dataset.images.ids.tolist() == ["1"]
    assert len(dataset.images.splits) == 1
    assert kinds(dataset) == ["unsafe-name"] * 2


@given(
    st.dictionaries(
        st.sampled_from(["1", "2", "a b"]),
        st.binary(max_size=60)
        | st.text("<>/&;annotationobjectname \n1.", max_size=60).map(
            lambda text: f"<annotation>{text}</annotation>".encode()
        ),
    ),
    st.binary(max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_arbitrary_files_end_in_findings(documents: dict[str, bytes], train: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = voc_folder(Path(folder), {"0": objects(DOG), **documents}, {"train": train})
        for split in (None, "train"):
            dataset = read(root, split)
            assert len(dataset.images.splits) == len(dataset.images)
            files = save_to_memory(dataset)
            assert files["ImageSets/Main/train.txt"] == train
            if split is None:
                assert files["Annotations/0.xml"] == objects(DOG).encode()
                for name, content in documents.items():
                    assert files[f"Annotations/{name}.xml"] == content


# Detection


def test_a_folder_looks_like_voc_by_its_names(tmp_path: Path) -> None:
    assert not voc.looks_like(tmp_path)
    (tmp_path / "Annotations" / "sub").mkdir(parents=True)
    assert not voc.looks_like(tmp_path)
    (tmp_path / "Annotations" / "sub" / "1.xml").touch()
    assert voc.looks_like(tmp_path)
    assert not voc.looks_like(tmp_path / "Annotations" / "sub" / "1.xml")
