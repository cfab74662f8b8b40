"""Records of what jax answers: what they hold, when they are used, and what a run says of them."""

import jax
import numpy as np
import pytest

from tests import golden
from tests.golden import recorded
from tests.golden.recorded import Record, digest_of, text_of

ANSWERS = {
    "array": lambda: jax.numpy.arange(6.0).reshape(2, 3),
    "weak": lambda: jax.numpy.asarray(2.0),
    "empty": lambda: jax.numpy.zeros((0, 3), "int8"),
    "narrow": lambda: jax.numpy.ones(3, "bfloat16"),
    "numpy": lambda: np.float64([0.1, np.nan]),
    "aval": lambda: jax.ShapeDtypeStruct((2, 3), "float16", weak_type=True),
    "float0": lambda: np.zeros((2,), jax.dtypes.float0),
    "plain": lambda: [1, True, "text", 0.1, 2 - 1j, (None,)],
    "tree": lambda: {"a": [jax.numpy.ones(2), (jax.numpy.zeros(3), 1)]},
    "dtype": lambda: np.dtype("bfloat16"),
    "named tuple": lambda: jax.numpy.linalg.slogdet(np.eye(2, dtype=np.float32)),
}


def facts(x):
    """What two answers must agree in."""
    if isinstance(x, dict):
        return {k: facts(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [facts(v) for v in x]
    found = [str(x.dtype), x.shape] if hasattr(x, "dtype") else [x]
    values = np.asarray(x).tobytes() if hasattr(x, "__array__") else None
    return *found, getattr(x, "weak_type", None), values


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Makes records in a folder of their own; days are not sampled."""
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.setattr(golden, "is_sampled", lambda *_: False)
    monkeypatch.setattr(Record, "all", [])

    def make(records=False):
        monkeypatch.setenv(recorded.VARIABLE, "made" if records else "another")
        return Record("made")

    return make


def never():
    raise AssertionError("jax was asked")


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_come_back(name, record):
    first = record(records=True)
    asked = first.answer("key", ANSWERS[name])
    first.save()
    again = record()
    assert facts(again.answer("key", never)) == facts(asked) == facts(ANSWERS[name]())
    assert again.counts == {"sampled": 0, "missing": 0}


def test_exceptions_keep_their_class(record):
    first = record(records=True)
    first.answer("key", lambda: jax.errors.KeyReuseError("used\ntwice"))
    first.save()
    error = record().answer("key", never)
    assert type(error) is TypeError and str(error) == "used"


def test_another_key_is_asked(record):
    first = record(records=True)
    first.answer("key", lambda: np.ones(2))
    first.save()
    second = record()
    np.testing.assert_array_equal(second.answer("other", lambda: np.zeros(2)), np.zeros(2))
    assert second.counts["missing"] == 1


def test_the_sample_of_the_day_is_asked(record, monkeypatch):
    first = record(records=True)
    first.answer("key", lambda: np.ones(2))
    first.save()
    monkeypatch.setattr(golden, "is_sampled", lambda *_: True)
    second = record()
    np.testing.assert_array_equal(second.answer("key", lambda: np.zeros(2)), np.zeros(2))
    assert second.counts == {"sampled": 1, "missing": 0}


def test_other_versions_of_jax_have_other_records(record, monkeypatch):
    first = record(records=True)
    first.answer("key", lambda: np.ones(2))
    first.save()
    monkeypatch.setattr(recorded, "VERSION", (99, 0))
    second = record()
    second.answer("key", lambda: np.ones(2))
    assert second.counts["missing"] == 1


def test_what_has_no_form_is_asked_each_time(record, capsys):
    first = record(records=True)
    key = first.answer("key", lambda: jax.random.key(0))
    assert key.dtype == jax.random.key(0).dtype and not first.asked
    assert "cannot record" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float32", "complex64", "uint8", "bool", "bfloat16", "float64"])
def test_differences(dtype, record):
    """Of an answer that is near another array the difference is kept, and used for no other."""
    answer = np.linspace(-3, 300, 2000).astype(dtype)
    near = answer.copy()
    near[7], near[1000] = near[8], near[3]
    first = record(records=True)
    first.answer("key", lambda: answer, near)
    first.save()
    assert first.file.stat().st_size < 300
    found = record().answer("key", never, near)
    assert found.dtype == answer.dtype and found.tobytes() == answer.tobytes()
    near.view("u1")[0] ^= 1
    other = record()
    other.answer("key", lambda: answer, near)
    assert other.counts["missing"] == 1


def test_records_are_added_to_or_made_anew(record, monkeypatch):
    for name in ("one", "two"):
        each = record(records=True)
        each.answer(name, lambda: np.ones(2))
        each.save()
    assert set(record().on_file) == {digest_of("one"), digest_of("two")}
    monkeypatch.setenv(recorded.DROPS, "1")
    each = record(records=True)
    each.answer("two", never)
    each.save()
    assert set(record().on_file) == {digest_of("two")}


def test_files_are_the_same_for_the_same_answers(record):
    texts = set()
    for order in ("ab", "ba"):
        each = record(records=True)
        for name in order:
            each.answer(name, lambda name=name: np.full(3, ord(name)))
        each.save()
        texts.add(each.file.read_bytes())
        each.file.unlink()
    assert len(texts) == 1


def test_places_of_a_test_have_their_own_answers(record):
    first = record(records=True)
    assert [first.in_test(lambda n=n: n) for n in (3, 4)] == [3, 4]
    first.save()
    second = record()
    assert [second.in_test(never) for _ in range(2)] == [3, 4]
    second.in_test(lambda: 5, np.ones(2))  # with an input that there was not
    assert second.counts["missing"] == 1


def test_text_of_a_file_holds_what_it_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "ROOT", tmp_path)
    folder = tmp_path / "tests"
    folder.mkdir()
    test, helper = folder / "test_it.py", folder / "helper.py"
    texts = []
    for a, b in [("x = 1", "y = 1"), ("x = 1  # said", "y =  1"), ("x = 1", "y = 2")]:
        test.write_text(f"from tests import helper\n{a}\n")
        helper.write_text(f"{b}\n")
        recorded._code_of.cache_clear()
        texts.append(recorded.text_of_file.__wrapped__(test))
    assert texts[0] == texts[1] != texts[2]


def test_keys_tell_arrays_and_functions_apart():
    long = np.zeros(5000)
    other = long.copy()
    other[2500] = 1
    assert text_of([long]) != text_of([other]) and text_of(long) != text_of(long.astype("f4"))
    assert text_of(np.float32) != text_of(np.float64) and text_of(facts) != text_of(never)


def test_summary():
    counts = {"sampled": 2, "missing": 0}
    assert recorded.summary([{"a": counts}, {"a": counts}]) == (
        "jax was asked for 4 answers that are on record, today's sample")
    line = recorded.summary([{"a": {"sampled": 0, "missing": 3}}, {"b": {"sampled": 1,
                                                                         "missing": 1000}}])
    assert line.endswith(
        "and for 1,003 that are not (python -m tests.golden.recorded a b)"), line


def test_every_record_is_made_by_files_that_are_there():
    for files in recorded.FILES.values():
        assert all((recorded.ROOT / file).exists() for file in files)
    on_disk = {path.name.rpartition("-")[0] or path.stem
               for path in golden.FOLDER.glob("*.bin")} - {"parity"}
    assert on_disk <= set(recorded.FILES)
