"""Which fixes are taken: means by hand, verdicts first, and one thing per annotation."""

from math import e, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.auditing.fixes.choosing import (
    KINDS_BY_OPTION,
    adjust_probabilities,
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


def said(*told: str, mode: str = "queue") -> dict[str, Verdict]:
    given = [Verdict(fix, answer, mode=mode) for fix, answer in map(str.split, told)]
    return latest_verdicts(given)


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
    chosen = choose_fixes(table_of(dataset, []), said("x accept"), 0.5)
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
        Fix("b", SPURIOUS, 1, 0.85),
        Fix("c", SPURIOUS, 2, 0.55),
        Fix("d", SPURIOUS, 3, 0.1),
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
    assert ids(fixes, said("b accept"), 0.9, "labels", "spurious") == "ls"
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
    answers = said("a accept", "b reject", mode="pattern")
    assert ids(fixes, answers, 1.0) == "a"
    assert ids(fixes, answers, None) == "a"
    assert ids(fixes, answers, 0.0) == "acd"
    assert choose_fixes(fixes, answers, 1.0).num_left == 2
    assert choose_fixes(fixes, answers, 0.5).expected_precision == pytest.approx(2 / 3)


def test_what_people_accepted_does_not_make_up_for_others(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.5, label=1), Fix("b", BOX, 1, 0.5, box=(1, 2, 3, 4))]
    fixes = table_of(dataset, made)
    assert ids(fixes, said("a accept", mode="pattern"), 0.75) == "a"


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

    def taken(*words: str) -> list[str]:
        return [fixes.ids[row] for row in choose_fixes(fixes, said(*words), 0.95).rows]

    assert taken() == ["label", "box"]
    assert taken("gone accept") == ["gone"]
    assert taken("gone accept", "label accept") == ["label", "box"]
    assert taken("label accept", "gone accept") == ["gone"]
    assert taken("label reject", "gone accept") == ["gone"]


def test_a_rejected_removal_does_not_stand_in_the_way(dataset: Dataset) -> None:
    fixes = table_of(dataset, [Fix("s", SPURIOUS, 0, 0.9), Fix("l", LABEL, 0, 0.5, label=1)])
    assert ids(fixes, said("s reject"), 0.5) == "l"
    assert ids(fixes, said("l accept"), 0.5) == "l"  # though the removal is quite probable


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


def test_without_verdicts_probabilities_stay_as_they_are(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.0), Fix("b", LABEL, 1, 1.0), Fix("c", BOX, 2, 0.3)]
    assert adjust_probabilities(table_of(dataset, made), {}).tolist() == [0.0, 1.0, 0.3]


def test_verdicts_shift_the_others_of_their_kind(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.5), Fix("b", LABEL, 1, 0.5), Fix("c", BOX, 2, 0.5)]
    fixes = table_of(dataset, made)
    # One answer at even odds: the shift t solves t = 1 - 1 / (1 + exp(-t)), so t (1 + e^t) = 1.
    shift = 0.0
    for _ in range(200):
        shift = 1 / (1 + e**shift)
    found = adjust_probabilities(fixes, said("a accept"))
    assert found[0] == 1.0
    assert log(found[1] / (1 - found[1])) == pytest.approx(shift, abs=1e-9)
    assert found[2] == 0.5
    found = adjust_probabilities(fixes, said("a reject"))
    assert found[0] == 0.0
    assert log(found[1] / (1 - found[1])) == pytest.approx(-shift, abs=1e-9)


def test_one_verdict_that_was_to_be_expected_changes_little(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.9), Fix("b", LABEL, 1, 0.9), Fix("c", LABEL, 2, 0.1)]
    # The gradient is 0.1 for the shift and 0.1 log 9 for the slope, whose spreads are 1 and 1/5:
    # shift and slope end a little below 0.1 and 1 + 0.22 / 25, log odds at most 2.32 and -2.10.
    found = adjust_probabilities(table_of(dataset, made), said("a accept"))
    assert 0.9 < found[1] < 0.911
    assert 0.1 < found[2] < 0.11


def test_one_rejected_fix_that_was_sure_does_not_undo_the_others(dataset: Dataset) -> None:
    shares = [0.9991] * 4 + [0.95]
    made = [Fix(str(k), MISSING, p_fix=p, label=0, box=(1, 2, 3, 4)) for k, p in enumerate(shares)]
    fixes = table_of(dataset, made)
    # Log odds of 7 fall by at most 1 + 7 * 7 / 25 = 2.96, to 4.04.
    found = adjust_probabilities(fixes, said("0 reject"))
    assert 0.98 < found[1] < 0.985
    assert adjust_probabilities(fixes, said("0 reject", "1 reject", "2 reject"))[3] < 0.75


def test_what_is_more_probable_stays_so_whatever_the_verdicts_say(dataset: Dataset) -> None:
    shares = [0.99] * 60 + [0.01] * 60 + [0.9, 0.1]
    made = [Fix(str(k), MISSING, p_fix=p, label=0, box=(1, 2, 3, 4)) for k, p in enumerate(shares)]
    turned = [f"{k} {'reject' if k < 60 else 'accept'}" for k in range(120)]
    found = adjust_probabilities(table_of(dataset, made), said(*turned))
    # the slope is 0.1 at least: log odds of 2 log 9 apart stay a tenth of that apart
    log_odds = np.log(found[120:] / (1 - found[120:]))
    assert log_odds[0] - log_odds[1] == pytest.approx(0.1 * 2 * log(9))


def test_a_fix_accepted_with_another_label_was_not_right(dataset: Dataset) -> None:
    fixes = table_of(dataset, [Fix("a", LABEL, 0, 0.5), Fix("b", LABEL, 1, 0.5)])
    found = adjust_probabilities(fixes, {"a": Verdict("a", "accept", label="bus")})
    assert found[0] == 1.0
    assert found[1] < 0.5


def test_a_whole_pattern_says_nothing_about_others(dataset: Dataset) -> None:
    fixes = table_of(dataset, [Fix("a", LABEL, 0, 0.5), Fix("b", LABEL, 1, 0.5)])
    assert adjust_probabilities(fixes, said("a accept", mode="pattern")).tolist() == [1.0, 0.5]


def test_many_verdicts_teach_the_true_probabilities(dataset: Dataset) -> None:
    """Probabilities of a table that is far too sure of itself come out as people find them."""
    draws = np.random.default_rng(0)
    told = draws.uniform(0.02, 0.98, 4000)
    true = 1 / (1 + np.exp(-(0.6 * np.log(told / (1 - told)) - 1.5)))
    made = [Fix(str(k), MISSING, p_fix=p, label=0, box=(1, 2, 3, 4)) for k, p in enumerate(told)]
    is_right = draws.uniform(size=4000) < true
    answers = {str(k): Verdict(str(k), "accept" if is_right[k] else "reject") for k in range(2000)}
    found = adjust_probabilities(table_of(dataset, made), answers)
    assert np.abs(found[2000:] - true[2000:]).max() < 0.05
    assert np.abs(told[2000:] - true[2000:]).max() > 0.3


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_order_stays_and_all_are_probabilities_whatever_people_say(
    dataset: Dataset, data: st.DataObject
) -> None:
    shares = data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=12))
    answers = data.draw(st.lists(st.sampled_from(["accept", "reject", ""]), min_size=12))
    made = [Fix(str(k), MISSING, p_fix=p, label=0, box=(1, 2, 3, 4)) for k, p in enumerate(shares)]
    fixes = table_of(dataset, made)
    told = {str(k): Verdict(str(k), one) for k, one in enumerate(answers[: len(made)]) if one}
    found = adjust_probabilities(fixes, told)
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()
    open_ones = [k for k in range(len(made)) if str(k) not in told]
    by_table = sorted(open_ones, key=lambda k: shares[k])
    assert (np.diff(found[by_table]) >= -1e-12).all()
    for precision in (0.5, 0.95):
        chosen = choose_fixes(fixes, told, precision)
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
    found = measure_precision(fixes, verdicts)
    assert {kind: one[:2] for kind, one in found.items()} == {
        "all": (2, 3),
        "wrong label": (1, 2),
        "bad box": (1, 1),
    }
    assert measure_precision(fixes, []) == {"all": (0, 0, 0.0, 1.0)}
