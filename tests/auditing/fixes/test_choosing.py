"""Which fixes are taken: means by hand, verdicts first, and one thing per annotation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.auditing.fixes.adjusting import adjust_probabilities
from boxmend.auditing.fixes.choosing import (
    KINDS_BY_OPTION,
    choose_fixes,
    count_yields,
    measure_precision,
    wilson_interval,
)
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.fixes.verdicts import Verdict, latest_verdicts
from boxmend.data.dataset import Dataset
from boxmend.errors import UsageError
from tests.auditing.fixes.tabled_data import dataset_in
from tests.fabricated_runs import Fix, table_of

LABEL, BOX, MISSING, SPURIOUS, DUPLICATE = Kind


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset_in(tmp_path_factory.mktemp("data"))


def make_verdicts(*answers: str, mode: str = "queue") -> dict[str, Verdict]:
    parsed = [Verdict(fix, answer, mode=mode) for fix, answer in map(str.split, answers)]
    return latest_verdicts(parsed)


def ids(fixes: Fixes, answers: dict[str, Verdict], precision: float | None, *only: str) -> str:
    """The fixes taken, by their one-letter ids."""
    rows = choose_fixes(fixes, answers, precision, only or tuple(KINDS_BY_OPTION)).rows
    return "".join(fixes.ids[row] for row in rows.tolist())


def test_the_largest_set_whose_mean_reaches_the_precision_is_taken(dataset: Dataset) -> None:
    made = [
        Fix("a", LABEL, 0, 0.75, label=1),
        Fix("b", LABEL, 1, 1.0, label=0),
        Fix("c", BOX, 2, 0.5, box=(1, 2, 3, 4)),
        Fix("d", MISSING, p_fix=0.25, label=0, box=(1, 2, 3, 4)),
    ]
    fixes = table_of(dataset, made)  # means, the best first: 1, 7/8, 3/4, 5/8
    assert [ids(fixes, {}, wanted) for wanted in (1, 0.875, 0.8751, 0.75, 0.625, 0)] == [
        *("b", "ab", "b", "abc", "abcd", "abcd"),
    ]
    chosen = choose_fixes(fixes, {}, 0.75)
    assert chosen.expected_precision == 0.75
    assert chosen.num_left == 1


def test_nothing_is_taken_of_nothing(dataset: Dataset) -> None:
    chosen = choose_fixes(table_of(dataset, []), make_verdicts("x accept"), 0.5)
    assert (len(chosen.rows), chosen.expected_precision, chosen.num_left) == (0, None, 0)


def test_sure_fixes_do_not_carry_doubtful_ones(dataset: Dataset) -> None:
    made = [Fix(one, SPURIOUS, row, 1.0) for row, one in enumerate("abcd")]
    made.append(Fix("e", SPURIOUS, 4, 0.79))
    fixes = table_of(dataset, made)  # the mean of all is 0.958, but 0.79 is below 1 - 4 * 0.05
    assert ids(fixes, {}, 0.95) == "abcd"
    assert ids(fixes, {}, 0.94) == "abcde"


def test_the_yields_of_several_precisions_are_counted_by_kind(dataset: Dataset) -> None:
    made = [
        Fix("a", LABEL, 0, 0.96, label=1),
        Fix("b", SPURIOUS, 1, 0.85, p_wrong=0.85),
        Fix("c", SPURIOUS, 2, 0.55, p_wrong=0.55),
        Fix("d", SPURIOUS, 3, 0.1, p_wrong=0.1),
    ]
    fixes = table_of(dataset, made)  # means: 0.96, 0.905, 0.787, 0.615
    yields = count_yields(fixes, {})
    assert [
        (wanted, kinds["wrong label"], kinds["spurious"]) for wanted, kinds in yields.items()
    ] == [
        *((0.95, 1, 0), (0.9, 1, 1), (0.8, 1, 1), (0.7, 1, 2)),
    ]
    chosen = choose_fixes(fixes, {}, 0.9)
    assert (chosen.num_left, chosen.num_likely) == (2, 1)


def test_only_some_kinds_are_taken(dataset: Dataset) -> None:
    made = [
        Fix("l", LABEL, 0, 0.9, label=1),
        Fix("b", BOX, 1, 0.9, box=(1, 2, 3, 4)),
        Fix("m", MISSING, p_fix=0.9, label=0, box=(1, 2, 3, 4)),
        Fix("s", SPURIOUS, 2, 0.9),
        Fix("d", DUPLICATE, 3, 0.9, kept=4),
    ]
    fixes = table_of(dataset, made)
    assert [ids(fixes, {}, 0.9, word) for word in KINDS_BY_OPTION] == ["l", "b", "m", "s", "d"]
    assert ids(fixes, make_verdicts("b accept"), 0.9, "labels", "spurious") == "ls"
    for only, words in ((["names"], "'names'"), ([], "empty")):
        with pytest.raises(UsageError, match=words):
            choose_fixes(fixes, {}, 0.9, only)


@pytest.mark.parametrize("precision", [-0.1, 1.1, float("nan"), "high", True])
def test_a_precision_that_is_no_share_is_refused(dataset: Dataset, precision: float) -> None:
    with pytest.raises(UsageError, match="precision is"):
        choose_fixes(table_of(dataset, []), {}, precision)


def test_people_go_before_the_model(dataset: Dataset) -> None:
    made = [Fix(name, LABEL, k, 0.5, label=2 - k % 2) for k, name in enumerate("abcd")]
    fixes = table_of(dataset, made)
    answers = make_verdicts("a accept", "b reject", mode="pattern")
    assert ids(fixes, answers, 1.0) == "a"
    assert ids(fixes, answers, None) == "a"
    assert ids(fixes, answers, 0.0) == "acd"
    assert choose_fixes(fixes, answers, 1.0).num_left == 2
    assert choose_fixes(fixes, answers, 0.5).expected_precision == pytest.approx(2 / 3)


def test_what_people_accepted_does_not_make_up_for_others(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.5, label=1), Fix("b", BOX, 1, 0.5, box=(1, 2, 3, 4))]
    fixes = table_of(dataset, made)
    assert ids(fixes, make_verdicts("a accept", mode="pattern"), 0.75) == "a"


@pytest.mark.parametrize(
    ("removal", "label", "box", "taken"),
    [
        (0.9, 0.8, 0.7, "s"),
        (0.8, 0.8, 0.7, "lb"),  # as probable is not more probable
        (0.8, 0.7, 0.9, "lb"),
    ],
)
def test_a_removal_wins_if_it_is_more_probable_than_all_changes(
    dataset: Dataset, removal: float, label: float, box: float, taken: str
) -> None:
    made = [
        Fix("s", SPURIOUS, 0, removal),
        Fix("l", LABEL, 0, label, label=1),
        Fix("b", BOX, 0, box, box=(1, 2, 3, 4)),
    ]
    fixes = table_of(dataset, made)
    assert ids(fixes, {}, 0.0) == taken
    assert choose_fixes(fixes, {}, 0.0).num_left == (0 if taken == "s" else 1)


def test_what_was_accepted_wins_and_of_both_the_later(dataset: Dataset) -> None:
    made = [Fix("label", LABEL, 0, 1.0), Fix("box", BOX, 0, 1.0), Fix("gone", SPURIOUS, 0, 0.1)]
    fixes = table_of(dataset, made)

    def take_after(*words: str) -> list[str]:
        return [fixes.ids[row] for row in choose_fixes(fixes, make_verdicts(*words), 0.95).rows]

    assert take_after() == ["label", "box"]
    assert take_after("gone accept") == ["gone"]
    assert take_after("gone accept", "label accept") == ["label", "box"]
    assert take_after("label accept", "gone accept") == ["gone"]
    assert take_after("label reject", "gone accept") == ["gone"]


def test_a_rejected_removal_does_not_stand_in_the_way(dataset: Dataset) -> None:
    fixes = table_of(dataset, [Fix("s", SPURIOUS, 0, 0.9), Fix("l", LABEL, 0, 0.5, label=1)])
    assert ids(fixes, make_verdicts("s reject"), 0.5) == "l"
    assert ids(fixes, make_verdicts("l accept"), 0.5) == "l"  # though the removal is quite probable


def test_a_removal_that_people_made_a_change_of_goes_with_other_changes(dataset: Dataset) -> None:
    fixes = table_of(dataset, [Fix("s", SPURIOUS, 0, 0.9), Fix("b", BOX, 0, 0.5, box=(1, 2, 3, 4))])
    answers = {"s": Verdict("s", "accept", label="bus")}
    assert ids(fixes, answers, 0.5) == "sb"


def test_of_two_removals_of_an_annotation_one_is_taken(dataset: Dataset) -> None:
    made = [Fix("s", SPURIOUS, 0, 0.6), Fix("d", DUPLICATE, 0, 0.7, kept=1)]
    fixes = table_of(dataset, made)
    assert ids(fixes, {}, 0.0) == "d"
    assert choose_fixes(fixes, {}, 0.0).num_left == 0


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        ([Fix("a", DUPLICATE, 0, 0.6, kept=1), Fix("b", DUPLICATE, 1, 0.7, kept=0)], "b"),
        ([Fix("a", DUPLICATE, 0, 0.8, kept=1), Fix("b", SPURIOUS, 1, 0.7)], "a"),
        ([Fix("a", DUPLICATE, 0, 0.6, kept=1), Fix("b", SPURIOUS, 1, 0.7)], "b"),
        ([Fix("a", DUPLICATE, 0, 0.6, kept=2), Fix("b", DUPLICATE, 1, 0.7, kept=2)], "ab"),
    ],
)
def test_a_double_never_goes_with_the_one_that_stays_for_it(
    dataset: Dataset, made: list[Fix], taken: str
) -> None:
    assert ids(table_of(dataset, made), {}, 0.0) == taken


def test_fixes_for_review_are_likely_by_the_probability_of_an_error(dataset: Dataset) -> None:
    made = [
        Fix("a", LABEL, 0, 0.3, label=1, p_wrong=0.75),  # wrong, but the new label is doubtful
        Fix("b", LABEL, 1, 0.3, label=0, p_wrong=0.25),
        Fix("c", SPURIOUS, 2, 0.5, p_wrong=0.5),
    ]
    fixes = table_of(dataset, made)
    chosen = choose_fixes(fixes, {}, 1.0)
    assert (chosen.num_left, chosen.num_likely) == (3, 2)
    chosen = choose_fixes(fixes, make_verdicts("a reject"), 1.0)
    assert (chosen.num_left, chosen.num_likely) == (2, 1)
    # Verdicts change both probabilities by as much.
    assert chosen.p_wrong[1] == pytest.approx(0.25 - 0.3 + chosen.p_fix[1])
    assert chosen.p_fix[1] < 0.3


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_order_stays_and_all_are_probabilities_whatever_people_say(
    dataset: Dataset, data: st.DataObject
) -> None:
    shares = data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=12))
    answers = data.draw(st.lists(st.sampled_from(["accept", "reject", ""]), min_size=12))
    made = [Fix(str(k), MISSING, p_fix=p, label=0, box=(1, 2, 3, 4)) for k, p in enumerate(shares)]
    fixes = table_of(dataset, made)
    verdicts = {str(k): Verdict(str(k), one) for k, one in enumerate(answers[: len(made)]) if one}
    adjusted = adjust_probabilities(fixes, verdicts)
    assert np.isfinite(adjusted).all()
    assert ((adjusted >= 0) & (adjusted <= 1)).all()
    open_ones = [k for k in range(len(made)) if str(k) not in verdicts]
    by_table = sorted(open_ones, key=lambda k: shares[k])
    assert (np.diff(adjusted[by_table]) >= -1e-12).all()
    for precision in (0.5, 0.95):
        chosen = choose_fixes(fixes, verdicts, precision)
        taken = set(chosen.rows.tolist())
        assert {k for k, one in enumerate(answers[: len(made)]) if one == "accept"} <= taken
        assert not {k for k, one in enumerate(answers[: len(made)]) if one == "reject"} & taken
        if chosen.expected_precision is not None:
            assert chosen.expected_precision >= precision - 1e-9
        assert chosen.num_left == len(set(open_ones) - taken)


def test_what_is_taken_does_not_depend_on_the_order_of_the_table(dataset: Dataset) -> None:
    made = [Fix(name, LABEL, k % 6, 0.5, label=0) for k, name in enumerate("abcdef")]
    fixes = table_of(dataset, made)
    turned = fixes.take(np.arange(6)[::-1])
    one, other = choose_fixes(fixes, {}, 0.5), choose_fixes(turned, {}, 0.5)
    assert {fixes.ids[k] for k in one.rows} == {turned.ids[k] for k in other.rows}


def test_wilson_by_hand() -> None:
    # 48 of 50: (0.96 + z2/100 +- z sqrt(0.96 * 0.04 / 50 + z2 / 10000)) / (1 + z2/50), z2 = 3.8415
    right, number, low, high = wilson_interval(48, 50)
    assert (right, number) == (48, 50)
    assert (round(low, 4), round(high, 4)) == (0.8654, 0.9890)
    assert wilson_interval(0, 0) == (0, 0, 0.0, 1.0)
    assert wilson_interval(5, 5).high == 1.0
    assert wilson_interval(0, 5).low == 0.0


def test_precision_is_measured_on_the_sample_alone(dataset: Dataset) -> None:
    made = [Fix(name, LABEL if name < "d" else BOX, k, 0.5) for k, name in enumerate("abcdef")]
    fixes = table_of(dataset, made)

    def sample(fix: str, answer: str, label: str | None = None) -> Verdict:
        return Verdict(fix, answer, label, mode="sample")

    verdicts = [
        sample("a", "accept"),
        sample("b", "accept", "bus"),  # another label: the fix was not right
        sample("c", "accept"),
        sample("c", "undo"),
        sample("d", "reject"),
        Verdict("d", "accept"),  # on second thoughts
        Verdict("e", "accept"),  # not of the sample
        sample("f", "skip"),
        sample("gone", "accept"),  # of an earlier audit
    ]
    result = measure_precision(fixes, verdicts)
    assert {kind: one[:2] for kind, one in result.items()} == {
        "all": (2, 3),
        "wrong label": (1, 2),
        "bad box": (1, 1),
    }
    assert measure_precision(fixes, []) == {"all": (0, 0, 0.0, 1.0)}
