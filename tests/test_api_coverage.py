"""toile has the names of JAX: those that real projects use, and nearly all the others."""

import inspect

import pytest

from tools import api_coverage

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("namespace", ["numpy", "lax", "nn", "random", "tree_util"])
def test_nearly_every_public_name_exists(namespace):
    report = api_coverage.compare(namespace)
    assert report.total > 30
    assert report.share >= 0.95, f"{report.namespace} lacks {report.missing}"


def test_every_name_that_two_projects_use_exists():
    assert api_coverage.missing_in_use(projects=2) == []


def test_jax_covers_itself():
    reports = api_coverage.compare_all(root="jax")
    assert len(reports) == len(api_coverage.NAMESPACES)
    assert all(r.share == 1 and not r.differ for r in reports)
    assert api_coverage.missing_in_use(projects=1, root="jax") == []


def test_a_missing_name_is_reported():
    assert not api_coverage.resolve("jax.numpy.no_such_function")
    assert not api_coverage.resolve("no_such_library.numpy")
    assert api_coverage.resolve("jax.scipy.stats.norm.logpdf")
    assert api_coverage.compare("numpy", root="no_such_library").share == 0


def differences(theirs, ours):
    """What the tool says about two functions."""
    pair = (list(inspect.signature(f).parameters.values()) for f in (theirs, ours))
    return api_coverage.compare_parameters(*pair)


def test_signatures_are_compared_by_name_order_kind_and_default():
    def theirs(x, axis=None, *, dtype=float): ...

    def lacks(x, *, dtype=float): ...

    def reorders(axis=None, x=None, *, dtype=float): ...

    def positional(x, axis=None, dtype=float): ...

    def other_default(x, axis=0, *, dtype=float): ...

    assert differences(theirs, theirs) is None
    assert differences(theirs, lacks) == "lacks axis"
    assert differences(lacks, theirs) == "adds axis"
    assert "different order" in differences(theirs, reorders)
    assert "dtype is positional or keyword" in differences(theirs, positional)
    assert differences(theirs, other_default) == "axis=0, not None"
