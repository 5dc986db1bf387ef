"""What boxmend says without the packages of its integrations, or with other versions of them."""

import importlib.metadata
import subprocess
import sys
from importlib import import_module

import pytest

from boxmend.errors import UsageError
from boxmend.integrations import versions

NAMES = {
    "lightning": ["MendingCallback"],
    "transformers": ["MendingTrainerCallback", "TrainingImages", "collate", "predict"],
    "ultralytics": ["Mending", "MendingTrainer", "attach", "configure", "train"],
}
SUPPORTED = {"lightning": r"2\.6", "transformers": "5", "ultralytics": r"8\.4"}


def install(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    def find(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(versions, "version", find)


@pytest.mark.parametrize("package", NAMES)
def test_without_the_package_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    install(monkeypatch, None)
    module = import_module(f"boxmend.integrations.{package}")
    assert sorted(module.__all__) == sorted(NAMES[package])
    for name in NAMES[package]:
        with pytest.raises(
            UsageError,
            match=rf"needs {package}, which is not installed: pip .* 'boxmend\[{package}\]'",
        ):
            getattr(module, name)


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("lightning", "2.5.6"),
        ("lightning", "2.7.0"),
        ("transformers", "4.57.6"),
        ("transformers", "6.0.0"),
        ("ultralytics", "8.3.253"),
        ("ultralytics", "8.5.0"),
        ("ultralytics", "9.0"),
    ],
)
def test_other_versions_are_refused(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str
) -> None:
    install(monkeypatch, version)
    text = rf"{package} {version} is installed; boxmend supports {SUPPORTED[package]} "
    with pytest.raises(UsageError, match=text):
        versions.ensure_supported(package)


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("lightning", "2.6.1"),
        ("lightning", "2.6.6"),
        ("transformers", "5.0.0"),
        ("transformers", "5.23.0"),
        ("ultralytics", "8.4.0"),
        ("ultralytics", "8.4.190"),
        ("ultralytics", "8.4.200"),
    ],
)
def test_tested_versions_are_accepted(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str
) -> None:
    install(monkeypatch, version)
    versions.ensure_supported(package)  # raises nothing


@pytest.mark.parametrize("package", NAMES)
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    module = import_module(f"boxmend.integrations.{package}")
    with pytest.raises(AttributeError, match="no attribute 'Mendin'"):
        module.Mendin  # noqa: B018  # looking it up is the test


@pytest.mark.parametrize("package", NAMES)
def test_importing_the_integration_does_not_import_the_package(package: str) -> None:
    code = f"import sys, boxmend.integrations.{package}; print({package!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
