"""What grids run is what tables show: cells of every scale stand side by side unquestioned."""

from dataclasses import asdict

import pytest

from boxmend.bench.grids.cells import Cell, list_table_cells
from boxmend.bench.grids.comparability import find_differences
from boxmend.bench.grids.jobs import own_settings
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.results import Data, Result
from boxmend.bench.grids.scales import SCALES, cell_settings, fit_layout
from boxmend.bench.grids.table_spec import TWO_STAGE
from boxmend.bench.grids.tables import make_table
from tests.bench.grid_results import noisy_hash, result


def result_of_cell(cell: Cell, scale: str) -> Result:
    """The result that a cell would leave."""
    settings = asdict(cell_settings(cell, SCALES[scale], None, {}))
    noise = (cell.labels, cell.boxes, cell.presence)
    noisy = "f" * 64 if cell.method == TWO_STAGE else noisy_hash(noise, cell.seed)
    return result(
        cell.method,
        0.5,
        noise=noise,
        seed=cell.seed,
        cell=cell.name,
        scale=scale,
        variant=dict(cell.variant),
        settings=own_settings(settings, str(settings["method"])),
        data=Data("a" * 64, noisy, "c" * 64),
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_cells_of_a_grid_fill_its_table(name: str, scale: str) -> None:
    layout = fit_layout(SCALES[scale], LAYOUTS[name])
    results = [result_of_cell(cell, scale) for cell in list_table_cells(layout, (0, 1))]
    assert find_differences(results) == []
    made = make_table(layout, results)
    assert {result.cell for result in made.results} == {result.cell for result in results}
    for row, line in made.lines():
        for column, square in zip(layout.columns, line, strict=True):
            if layout.is_run(row, column) and row.figure is None and column.metric is None:
                assert set(square.values) == {0, 1}
