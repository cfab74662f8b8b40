"""Properties that are computed once per object, without a lock.

Until 3.12, Python's own `cached_property` took a lock shared by all objects of a class. If another
thread holds this lock while the process forks, the child inherits the lock in its locked state and
waits forever, because the thread that holds the lock does not exist in the child. This module may
import only the standard library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """A property whose value is kept in the object's `__dict__`.

    Two threads that read the property at the same time may both compute its value; the later value
    is kept."""

    def __init__(self, function: Callable[[Any], T]):
        self.function, self.__doc__ = function, function.__doc__
        self.name = function.__name__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: Any = None) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> T: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = self.function(instance)
        instance.__dict__[self.name] = value
        return value
