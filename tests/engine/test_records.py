"""Dataclasses made of templates: the same as Python's, in all that can be seen of a class."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import typing
from typing import Any, ClassVar

import pytest

from toile.engine import records

PYTHON, OURS = dataclasses.dataclass, records.dataclass


def classes(make, frozen):
    """The kinds of classes that toile has, and those that go to Python's own decorator."""

    @make(frozen=frozen)
    class Empty:
        """No fields."""

    @make(frozen=frozen)
    class Plain:
        """Fields, some with defaults, and a variable of the class."""

        first: int
        second: "tuple[int, ...]" = (1, 2)
        shared: ClassVar[int] = 3

    @make(frozen=frozen)
    class Derived(Plain):
        second: Any = "other"
        third: bool = dataclasses.field(default=False, repr=False)
        note: str = dataclasses.field(default="", compare=False, metadata={"a": 1})

    @make(frozen=frozen)
    class Own:
        """Methods of its own stay."""

        x: int

        def __repr__(self):
            return f"<{self.x}>"

        def __eq__(self, other):
            return isinstance(other, type(self)) and self.x % 2 == other.x % 2

        def __hash__(self):
            return self.x % 2

    @make(frozen=frozen)
    class Checked:
        """More to do after `__init__`."""

        field_0_: int
        y: int = 2

        def __post_init__(self):
            if self.field_0_ < 0:
                raise ValueError("negative")

    @make(frozen=frozen)
    class Factory:
        """One that Python makes."""

        x: int
        items: tuple = dataclasses.field(default_factory=tuple)
        hidden: int = dataclasses.field(default=1, init=False)

    return [(Empty, ()), (Plain, (1,)), (Derived, (1, 2, True, "n")), (Own, (4,)), (Checked, (5,)),
            (Factory, (1,))]


def seen(cls, args):
    """What can be told of a class and an instance."""
    x, y = cls(*args), cls(*args)
    fields = [(f.name, f.type, f.default, f.init, f.repr, f.compare, f.kw_only, dict(f.metadata))
              for f in dataclasses.fields(cls)]
    hashed = None if cls.__hash__ is None else hash(x)
    methods = {n: (f.__qualname__, f.__module__) for n, f in vars(cls).items()
               if inspect.isfunction(f)}
    found = [cls.__doc__, str(inspect.signature(cls)), fields, repr(x), x == y, x != y, hashed,
             cls.__match_args__, x == object(), dataclasses.asdict(x), methods,
             repr(cls.__dataclass_params__), sorted(vars(cls)), cls.__init__.__annotations__]
    names = [f.name for f in dataclasses.fields(cls) if f.init]
    if names:
        other = dataclasses.replace(x, **{names[0]: 9})
        found += [repr(other), x == other, repr(copy.deepcopy(other))]
    for change in (lambda: setattr(x, "new", 1), lambda: setattr(x, "x", 1),
                   lambda: delattr(x, "first"), lambda: cls(1, 2, 3, 4, 5, 6), lambda: cls(q=1)):
        try:
            change()
            found.append("done")
        except (AttributeError, TypeError) as error:
            found.append((type(error), str(error)))
    return found


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("which", range(6))
def test_a_class_is_what_python_would_make(which, frozen):
    ours, theirs = classes(OURS, frozen)[which], classes(PYTHON, frozen)[which]
    assert seen(*ours) == seen(*theirs)


def test_post_init_runs():
    with pytest.raises(ValueError, match="negative"):
        classes(OURS, True)[4][0](-1)


def test_recursion_is_not_printed():
    @OURS
    class Node:
        """Holds itself."""

        child: Any = None

    node = Node()
    node.child = node
    assert repr(node).endswith("Node(child=...)")


@pytest.mark.parametrize("ours, base", [(True, False), (False, True)])
def test_frozen_and_other_classes_do_not_mix(ours, base):
    parent = OURS(frozen=base)(type("Parent", (), {"__annotations__": {"x": int}}))
    with pytest.raises(TypeError, match="cannot inherit"):
        OURS(frozen=ours)(type("Child", (parent,), {"__annotations__": {"y": int}}))


def test_a_field_without_a_default_comes_first():
    with pytest.raises(TypeError, match="non-default argument 'y' follows default argument"):
        OURS(type("Wrong", (), {"__annotations__": {"x": int, "y": int}, "x": 1}))


@OURS(frozen=True)
class Pickled:
    """At the top of a module, where pickle finds it."""

    x: int
    y: str = "a"


def test_instances_can_be_pickled():
    assert pickle.loads(pickle.dumps(Pickled(1))) == Pickled(1)


def test_import_compiles_few_texts():
    """Python's decorator would compile one for each method of some two hundred classes."""
    code = (
        "import dataclasses\n"
        "made, real = [], dataclasses._process_class\n"
        "dataclasses._process_class = lambda cls, init, repr, *rest: (\n"
        "    made.append(cls) if init or repr else None, real(cls, init, repr, *rest))[1]\n"
        "import toile, toile.linen, toile.optim\n"
        "print(len(made))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) < 25, done.stderr


def make_inherited(decorate):
    @decorate
    class Base:
        x: int = 3

    @decorate
    class Again(Base):
        x: float

    return Again()


def make_from_plain(decorate):
    class Plain:
        x = 3

    @decorate
    class Child(Plain):
        x: int

    return Child()


@pytest.mark.parametrize("make", [make_inherited, make_from_plain])
def test_defaults_of_bases(make):
    assert make(OURS).x == make(dataclasses.dataclass).x == 3


@pytest.mark.parametrize("decorate", [OURS, dataclasses.dataclass])
def test_a_field_needs_an_annotation(decorate):
    with pytest.raises(TypeError, match="'y' is a field but has no type annotation"):
        decorate(type("Wrong", (), {"__annotations__": {"x": int}, "y": dataclasses.field()}))


@pytest.mark.parametrize("decorate", [OURS, dataclasses.dataclass])
def test_descriptors_see_their_class_once(decorate):
    seen = []

    class Default:
        def __set_name__(self, owner, name):
            seen.append((owner.__name__, name))

    decorate(type("Owner", (), {"__annotations__": {"x": int}, "x": Default()}))
    assert seen == [("Owner", "x")]


class Referred:
    """A name of this module."""


@OURS(frozen=True)
class Textual:
    """Its annotation is text."""

    x: "Referred"
    put: int = 1


def test_annotations_as_text_are_names_of_the_module():
    assert typing.get_type_hints(Textual.__init__)["x"] is Referred
    signature = inspect.signature(Textual, eval_str=True)
    assert signature.parameters["x"].annotation is Referred
    assert Textual(2).put == 1 and Textual(2, 5) == Textual(2, put=5)
