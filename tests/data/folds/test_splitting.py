"""The assignment of images to folds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.dataset import Dataset, Images, as_ids
from boxmend.data.folds import FoldSettings, assign_folds
from boxmend.data.folds.splitting import advise_grouping, get_group
from boxmend.errors import UsageError


def dataset(names: list[str], labels: list[list[int]] | None = None) -> Dataset:
    """Images of these names with annotations of these labels."""
    n = len(names)
    labels = labels or [[0]] * n
    flat = [label for one in labels for label in one]
    m = len(flat)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(n))),
            file_names=names,
            paths=[""] * n,
            splits=["all"] * n,
            widths=np.full(n, 10),
            heights=np.full(n, 10),
            sources=np.zeros(n, np.int64),
            rows=np.arange(n),
        ),
        label_names=("cat", "dog", "owl"),
        annotation_ids=as_ids(list(range(m))),
        image_rows=np.repeat(np.arange(n), [len(one) for one in labels]),
        labels=np.array(flat, np.int64),
        boxes=np.tile([1.0, 1, 5, 5], (m, 1)),
        is_crowd=np.zeros(m, np.bool_),
        is_difficult=np.zeros(m, np.bool_),
        source_of=np.zeros(m, np.int64),
        source_rows=np.full(m, -1),
    )


def names_of(n: int) -> list[str]:
    return [f"image-{k:04d}.jpg" for k in range(n)]


def test_folds_are_even_and_every_image_is_in_one() -> None:
    folds = assign_folds(dataset(names_of(23)), FoldSettings(5))
    assert sorted(np.bincount(folds, minlength=5).tolist()) == [4, 4, 5, 5, 5]


def test_rare_classes_are_spread_evenly() -> None:
    labels = [[0, 2] if k < 4 else [0, 1] if k < 12 else [0] if k < 30 else [] for k in range(40)]
    every = dataset(names_of(40), labels)
    folds = assign_folds(every, FoldSettings(4, seed=3))
    for first, last in ((0, 4), (4, 12)):
        counts = np.bincount(folds[first:last], minlength=4)
        assert counts.max() - counts.min() == 0
    assert np.bincount(folds, minlength=4).tolist() == [10, 10, 10, 10]


def test_the_split_is_the_same_on_every_machine() -> None:
    folds = assign_folds(dataset(names_of(12)), FoldSettings(3, seed=0))
    assert "".join(map(str, folds)) == "120201021012"  # in turn, by their hashes


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 5), order=st.permutations(range(15)), k=st.integers(2, 5))
def test_the_order_of_images_does_not_matter(seed: int, order: list[int], k: int) -> None:
    labels = [[number % 3] * (number % 2 + 1) for number in range(15)]
    names = names_of(15)
    plain = assign_folds(dataset(names, labels), FoldSettings(k, seed))
    moved = dataset([names[one] for one in order], [labels[one] for one in order])
    assert assign_folds(moved, FoldSettings(k, seed)).tolist() == [int(plain[one]) for one in order]
    assert sorted(set(plain.tolist())) == list(range(k))


def test_seeds_differ() -> None:
    every = dataset(names_of(50))
    assert (
        assign_folds(every, FoldSettings(5, 0)).tolist()
        != assign_folds(every, FoldSettings(5, 1)).tolist()
    )


@pytest.mark.parametrize(
    ("group_by", "name", "group"),
    [
        (None, "a/b_01.jpg", "a/b_01.jpg"),
        ("folder", "a/b_01.jpg", "a"),
        ("folder", "b.jpg", ""),
        ("frames", "a/b_01.jpg", "a/b_"),
        ("frames", "a/cam2_0010.jpg", "a/cam2_"),
        ("frames", "a/b.jpg", "a/b.jpg"),
        (r"(\w+)_\d+", "day_07.jpg", "day"),
        (r"night|day", "of_night_3.jpg", "night"),
        (r"night|day", "dawn.jpg", "dawn.jpg"),
        (r"(x)?dawn", "dawn.jpg", ""),
    ],
)
def test_groups_are_what_names_share(group_by: str | None, name: str, group: str) -> None:
    assert get_group(name, group_by) == group


def test_groups_stay_together() -> None:
    names = [f"video{v}_{k:03d}.jpg" for v in range(7) for k in range(v + 2)]
    folds = assign_folds(dataset(names), FoldSettings(3, group_by="frames"))
    for v in range(7):
        own = {int(fold) for name, fold in zip(names, folds, strict=True) if f"video{v}_" in name}
        assert len(own) == 1
    assert np.bincount(folds).max() <= 13  # of 35: the largest groups are dealt out first


def test_classes_are_spread_evenly_where_groups_are_not() -> None:
    owls, dogs = ["a_1.jpg", "a_2.jpg", "a_3.jpg", "b_1.jpg"], [f"{one}_1.jpg" for one in "cdefgh"]
    labels = [[2]] * len(owls) + [[1]] * len(dogs)
    folds = assign_folds(dataset([*owls, *dogs], labels), FoldSettings(2, group_by="frames"))
    assert sorted(np.bincount(folds[:4]).tolist()) == [1, 3]
    assert np.bincount(folds[4:]).tolist() == [3, 3]  # though one fold has more images already


def test_images_count_for_their_own_class_also_whose_group_is_assigned_by_another() -> None:
    # The group a has two dogs and an owl, the rarest class, and is dealt out for that: to the first
    # fold. Its dogs count there, so the groups b and c, of a dog each, both go to the second one.
    names = ["a_1.jpg", "a_2.jpg", "a_3.jpg", "b_1.jpg", "c_1.jpg"]
    made = dataset(names, [[2], [1], [1], [1], [1]])
    folds = assign_folds(made, FoldSettings(2, group_by="frames"))
    assert folds[:3].tolist() == [0, 0, 0]
    assert folds[3:].tolist() == [1, 1]


def test_images_of_one_name_stay_together() -> None:
    names = [*names_of(6), *names_of(6)]
    folds = assign_folds(dataset(names), FoldSettings(3))
    assert folds[:6].tolist() == folds[6:].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 1}, "k is 1; expected a number of folds from 2"),
        ({"k": 2000}, "k is 2000"),
        ({"seed": -1}, "seed is -1"),
        ({"group_by": "("}, r"group-by '\(' is no regular expression"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, int | str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(FoldSettings(), **changes)  # type: ignore[arg-type]  # the test is what it refuses


def test_more_folds_than_images_or_groups_are_refused() -> None:
    with pytest.raises(UsageError, match="5 folds need at least 5 images, and there are 4"):
        assign_folds(dataset(names_of(4)), FoldSettings(5))
    names = [f"{folder}/{k}.jpg" for folder in "ab" for k in range(10)]
    with pytest.raises(UsageError, match=r"groups of images, and there are 2 \(of 20 images\)"):
        assign_folds(dataset(names), FoldSettings(3, group_by="folder"))


def test_names_like_frames_give_a_hint() -> None:
    frames = dataset([f"video{v}_{k:03d}.jpg" for v in range(6) for k in range(10)])
    (note,) = advise_grouping(frames, FoldSettings(5))
    assert "frames of 6 videos; if so, --group-by frames" in note
    assert advise_grouping(frames, FoldSettings(5, group_by="folder")) == []
    assert (
        advise_grouping(dataset(names_of(60)), FoldSettings(5)) == []
    )  # one prefix: a plain count
    short = dataset([f"video{v}_{k:03d}.jpg" for v in range(12) for k in range(4)])
    assert advise_grouping(short, FoldSettings(5)) == []  # of four images a prefix: no videos
