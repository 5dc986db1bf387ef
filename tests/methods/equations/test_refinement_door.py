"""The public names of the package exist and are sorted."""

from boxmend.methods import equations


def test_all_public_names_are_there_and_sorted() -> None:
    names = equations.__all__
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and name not in constants]
    functions = [name for name in names if name[0].islower()]
    assert names == sorted(constants) + sorted(classes) + sorted(functions)
    for name in names:
        assert getattr(equations, name) is not None
