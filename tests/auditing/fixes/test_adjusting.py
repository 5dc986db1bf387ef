"""Probabilities after verdicts: curves and weights by hand, and unjudged fixes."""

from math import exp, log

import numpy as np
import pytest

from boxmend.auditing.fixes.adjusting import adjust_probabilities
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.fixes.verdicts import Verdict, latest_verdicts
from boxmend.bench.audit.reviews import (
    ALL_LIKELY,
    DISTORTIONS,
    ORDERS,
    Rest,
    distort,
    order_as_queue,
    order_by_pattern,
    simulate_review,
)
from boxmend.data.dataset import Dataset
from tests.auditing.fixes.tabled_data import dataset_in
from tests.fabricated_runs import Fix, table_of

LABEL, BOX, MISSING, SPURIOUS, DUPLICATE = Kind
PLACE = (1, 2, 3, 4)
VARIANCE = 0.5**2 + 0.7**2  # of the error of a table at one place, in log odds


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset_in(tmp_path_factory.mktemp("data"))


def make_verdicts(*answers: str, mode: str = "queue") -> dict[str, Verdict]:
    parsed = [Verdict(fix, answer, mode=mode) for fix, answer in map(str.split, answers)]
    return latest_verdicts(parsed)


def missing(shares: list[float], label: int = 0) -> list[Fix]:
    return [Fix(str(k), MISSING, p_fix=p, label=label, box=PLACE) for k, p in enumerate(shares)]


def odds(p: float) -> float:
    return log(p / (1 - p))


def shift_by_hand(is_right: bool, number: float, log_odds: float = 0.0) -> float:
    """Solve for the shift of a node with this many equal verdicts; they are slips with 0.025."""

    def gradient(shift: float) -> float:
        p = 1 / (1 + exp(-log_odds - shift))
        accept = 0.025 + 0.95 * p
        slope = 0.95 * p * (1 - p)
        score = slope / accept if is_right else -slope / (1 - accept)
        return number * score - shift / VARIANCE

    low, high = -10.0, 10.0  # the gradient falls
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gradient(middle) > 0 else (low, middle)
    return low


def test_without_verdicts_probabilities_stay_as_they_are(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.0), Fix("b", LABEL, 1, 1.0), Fix("c", BOX, 2, 0.3)]
    assert adjust_probabilities(table_of(dataset, made), {}).tolist() == [0.0, 1.0, 0.3]


def test_a_rejection_lowers_the_others_of_its_kind(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.5), Fix("b", LABEL, 1, 0.5), Fix("c", BOX, 2, 0.5)]
    adjusted = adjust_probabilities(table_of(dataset, made), make_verdicts("a reject"))
    assert adjusted[0] == 0.0
    assert odds(adjusted[1]) == pytest.approx(shift_by_hand(is_right=False, number=1), abs=1e-6)
    assert adjusted[2] == 0.5


def test_an_accept_raises_the_others_by_the_unjudged_share(dataset: Dataset) -> None:
    made = [Fix("a", LABEL, 0, 0.5), Fix("b", LABEL, 1, 0.5), Fix("c", BOX, 2, 0.5)]
    adjusted = adjust_probabilities(table_of(dataset, made), make_verdicts("a accept"))
    assert adjusted[0] == 1.0
    # One of the two fixes in this group is open, so the verdict counts a half.
    assert odds(adjusted[1]) == pytest.approx(shift_by_hand(is_right=True, number=0.5), abs=1e-6)
    assert adjusted[2] == 0.5


def test_verdicts_count_less_with_the_distance(dataset: Dataset) -> None:
    near, far = 1 / (1 + exp(-1)), 1 / (1 + exp(-3))
    fixes = table_of(dataset, missing([0.5, 0.5, near, far]))
    adjusted = adjust_probabilities(fixes, make_verdicts("0 reject", "1 reject"))
    shift = shift_by_hand(is_right=False, number=2)
    # Shifts have the covariance 0.25 + 0.49 exp(-distance) with that of the verdicts.
    assert odds(adjusted[2]) - 1 == pytest.approx(
        shift * (0.25 + 0.49 * exp(-1)) / VARIANCE, abs=1e-6
    )
    assert odds(adjusted[3]) - 3 == pytest.approx(
        shift * (0.25 + 0.49 * exp(-3)) / VARIANCE, abs=1e-6
    )


def test_groups_that_are_judged_completely_raise_nothing(dataset: Dataset) -> None:
    made = missing([0.9] * 20)  # a pattern
    made += [Fix(f"other{k}", MISSING, p_fix=0.9, label=1, box=PLACE) for k in range(20)]
    fixes = table_of(dataset, made)
    adjusted = adjust_probabilities(fixes, make_verdicts(*(f"{k} accept" for k in range(20))))
    assert adjusted[20:] == pytest.approx([0.9] * 20)
    adjusted = adjust_probabilities(fixes, make_verdicts(*(f"{k} accept" for k in range(19))))
    assert adjusted[20] > 0.901
    adjusted = adjust_probabilities(fixes, make_verdicts(*(f"{k} reject" for k in range(20))))
    assert adjusted[20] < 0.4  # but they lower


def test_groups_end_where_the_log_odds_change_by_one(dataset: Dataset) -> None:
    inside, outside = 1 / (1 + exp(-2.9)), 1 / (1 + exp(-3.1))
    verdicts = make_verdicts(*(f"{k} accept" for k in range(20)))
    apart = adjust_probabilities(
        table_of(dataset, missing([inside] * 20 + [outside] * 20)), verdicts
    )
    assert apart[20:] == pytest.approx([outside] * 20)
    same = adjust_probabilities(table_of(dataset, missing([outside] * 40)), verdicts)
    assert same[20] > outside + 0.005


def test_small_patterns_of_a_kind_are_one_group(dataset: Dataset) -> None:
    made = [Fix(f"{k}", MISSING, p_fix=0.9, label=k % 2, box=PLACE) for k in range(38)]
    verdicts = make_verdicts(
        *(f"{k} accept" for k in range(0, 38, 2))
    )  # all 19 of the first pattern
    assert adjust_probabilities(table_of(dataset, made), verdicts)[1] > 0.91


def test_one_surprise_may_be_a_slip_and_many_are_none(dataset: Dataset) -> None:
    fixes = table_of(dataset, missing([0.99] * 40))
    adjusted = adjust_probabilities(fixes, make_verdicts("0 reject"))
    assert 0.985 < adjusted[1] < 0.99
    adjusted = adjust_probabilities(fixes, make_verdicts(*(f"{k} reject" for k in range(20))))
    assert adjusted[20] < 0.7


def test_the_order_stays_whatever_the_verdicts_say(dataset: Dataset) -> None:
    fixes = table_of(dataset, missing([0.99] * 60 + [0.3] * 60 + [0.95, 0.9, 0.5, 0.35]))
    turned = [f"{k} {'reject' if k < 60 else 'accept'}" for k in range(30)]
    turned += [f"{k} accept" for k in range(60, 90)]
    adjusted = adjust_probabilities(fixes, make_verdicts(*turned))
    assert (np.diff(adjusted[120:]) <= 0).all()
    assert adjusted[30] >= adjusted[95]


def test_a_fix_accepted_with_another_label_was_not_right(dataset: Dataset) -> None:
    fixes = table_of(dataset, [Fix("a", LABEL, 0, 0.5), Fix("b", LABEL, 1, 0.5)])
    adjusted = adjust_probabilities(fixes, {"a": Verdict("a", "accept", label="bus")})
    assert adjusted[0] == 1.0
    assert adjusted[1] < 0.5


def test_a_whole_pattern_says_nothing_about_others(dataset: Dataset) -> None:
    fixes = table_of(dataset, [Fix("a", LABEL, 0, 0.5), Fix("b", LABEL, 1, 0.5)])
    assert adjust_probabilities(fixes, make_verdicts("a accept", mode="pattern")).tolist() == [
        1.0,
        0.5,
    ]


def test_many_verdicts_teach_the_true_probabilities(dataset: Dataset) -> None:
    """Probabilities of a table that is far too sure of itself come out as people find them."""
    draws = np.random.default_rng(0)
    stated = draws.uniform(0.02, 0.98, 4000)
    true = 1 / (1 + np.exp(-(0.6 * np.log(stated / (1 - stated)) - 1.5)))
    is_right = draws.uniform(size=4000) < true
    answers = {str(k): Verdict(str(k), "accept" if is_right[k] else "reject") for k in range(2000)}
    adjusted = adjust_probabilities(table_of(dataset, missing(stated.tolist())), answers)
    assert np.abs(adjusted[2000:] - true[2000:]).max() < 0.1
    assert np.abs(adjusted[2000:] - true[2000:]).mean() < 0.03
    assert np.abs(stated[2000:] - true[2000:]).max() > 0.3


def reviewed(dataset: Dataset, name: str, order: str, slip_share: float) -> dict[str, Rest]:
    """Pool reviews of tables with three kinds and several patterns after 400 verdicts."""
    pooled: dict[str, Rest] = {}
    for seed in range(6):
        draws = np.random.default_rng(seed)
        shares = draws.beta(1.2, 0.8, 1800)
        made = [
            *(Fix(f"l{k}", LABEL, k % 6, p, label=k % 2) for k, p in enumerate(shares[:600])),
            *(
                Fix(f"m{k}", MISSING, p_fix=p, label=k % 3, box=PLACE)
                for k, p in enumerate(shares[600:1200])
            ),
            *(Fix(f"s{k}", SPURIOUS, k % 6, p) for k, p in enumerate(shares[1200:])),
        ]
        made = [Fix(**{**vars(one), "p_wrong": one.p_fix}) for one in made]
        table = distort(table_of(dataset, made), DISTORTIONS[name], draws)
        for column, rest in simulate_review(table, order, [400], slip_share, seed)[400].items():
            before = pooled.get(column, Rest(0, 0.0, 0.0))
            pooled[column] = before.add(rest)
    return pooled


@pytest.mark.parametrize("slip_share", [0.0, 0.05])
@pytest.mark.parametrize("order", ORDERS)
def test_unjudged_fixes_are_as_precise_as_stated(
    dataset: Dataset, order: str, slip_share: float
) -> None:
    rest = reviewed(dataset, "calibrated", order, slip_share)[ALL_LIKELY]
    assert rest.number > 1000
    assert rest.stated / rest.number == pytest.approx(rest.right / rest.number, abs=0.03)


@pytest.mark.parametrize("order", ["queue", "at random"])
@pytest.mark.parametrize("name", ["too sure", "not sure enough", "kinds differ"])
def test_verdicts_correct_a_table_that_is_off(dataset: Dataset, name: str, order: str) -> None:
    rest = reviewed(dataset, name, order, 0.0)[ALL_LIKELY]
    assert rest.stated / rest.number == pytest.approx(rest.right / rest.number, abs=0.04)


def test_orders_by_hand(dataset: Dataset) -> None:
    made = [
        Fix("a", SPURIOUS, 0, 0.9, p_wrong=0.2),
        Fix("b", SPURIOUS, 1, 0.6, p_wrong=0.9),
        Fix("c", MISSING, p_fix=0.7, p_wrong=0.7, label=0, box=PLACE),
        Fix("d", SPURIOUS, 2, 0.3, p_wrong=0.8),
        Fix("e", MISSING, p_fix=0.8, p_wrong=0.6, label=0, box=PLACE),
    ]
    fixes = table_of(dataset, made)
    names = [fixes.ids[row] for row in order_by_pattern(fixes, np.random.default_rng(0))]
    assert "".join(name for name in names if name in "ce") == "ec"
    queue = order_as_queue(fixes, np.random.default_rng(0))
    assert [fixes.ids[row] for row in queue[:3]] == ["b", "d", "c"]
    assert fixes.p_fix[queue[3]] >= 0.5
    assert sorted(queue.tolist()) == [0, 1, 2, 3, 4]
