"""Machine code: LLVM text in, addresses of functions out.

Each text defines one function `@kernel`; equal texts are compiled once, and kept on disk. llvmlite
is loaded at the first use, not before. Objects are linked by LLVM's JITLink, a batch in one go: a
`Library`, which is unloaded when nothing holds an `Address` of it.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from toile.disk import object_cache
from toile.engine.cached import cached_property
from toile.engine.locks import compiling, loading
from toile.targets.llvm import thread_count as threads
from toile.targets.llvm.stop_checks import CHECK

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# Begins texts of straight-line code, whose scalars LLVM is to join to vectors.
STRAIGHT_LINE = "; straight-line\n"
FORMAT = "2"  # of keys on disk; a change of how texts are compiled needs another

_lock = compiling
_code: weakref.WeakValueDictionary[bytes, Library] = weakref.WeakValueDictionary()  # by digest
_kept: list[Library] = []  # for the life of the process
# Those used last stay a while: a loop outside of jit, or a function that is made anew at each call,
# finds its kernels although nothing else holds them.
_recent: deque[Library] = deque(maxlen=16)
_compiled = 0  # kernels of this process
_seconds: dict[bytes, float] = {}  # that compiling took; none for what came from disk
_symbols: dict[str, int] = {}  # C functions that texts may call
_CALLED = re.compile(r"call (?:[a-z]+ )*(\S+|<[^>]*>) @(llvm\.[a-zA-Z0-9_.]+)\(([^()]*)\)")
_KERNEL = re.compile(r"@kernel\b")
_DECLARED = re.compile(r"^declare [^@\n]*@([\w.$]+)\(", re.MULTILINE)


def _llvmlite() -> ModuleType:
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise ImportError(
            "toile: compiling for the CPU needs llvmlite, which is not installed "
            "(python -m pip install 'llvmlite>=0.44')"
        ) from error
    return llvm


class _Engine:
    """llvmlite's code generator and linker for this machine."""

    def __init__(self) -> None:
        self.llvm = _llvmlite()
        self.llvm.initialize_native_target()
        self.llvm.initialize_native_asmprinter()
        self.cpu: str = self.llvm.get_host_cpu_name()
        self.has: dict[str, bool] = dict(self.llvm.get_host_cpu_features())
        self.features = ",".join(("+" if self.has[f] else "-") + f for f in sorted(self.has))
        self.cache = object_cache.from_environment(machine=f"{self.cpu} {self.features}")
        self.linker: _Linker | None = None

    @cached_property
    def vector_bytes(self) -> int:
        return 64 if self.has.get("avx512f") else 32 if self.has.get("avx2") else 16

    @cached_property
    def target(self) -> Any:
        return self.llvm.Target.from_default_triple()

    def machine(self) -> Any:
        """A code generator; each serves one thread at a time."""
        return self.target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3 if optimizes() else 0, reloc="pic",
            codemodel="small",
        )

    @cached_property
    def head(self) -> str:
        layout = self.machine().target_data
        return f'target triple = "{self.target.triple}"\ntarget datalayout = "{layout}"\n'

    # ---- keys and names
    @cached_property
    def salt(self) -> Any:
        from llvmlite import __version__

        version = ".".join(map(str, self.llvm.llvm_version_info))
        parts = (FORMAT, __version__, version, self.cpu, self.features)
        return hashlib.sha256("\0".join(parts).encode())

    def key(self, text: str) -> str:
        """What an object is called on disk."""
        key = self.salt.copy()
        key.update(digest(text))
        return key.hexdigest()

    # ---- texts to objects
    def compile(self, text: str, name: str) -> bytes:
        """The object in which the text's `@kernel` is called `name`; any thread may call this.

        O2 gives the speed of O3; joining scalars to vectors outside of loops (SLP) finds nothing
        in our kernels but those that are marked as straight-line. llvmlite lets one thread at a
        time into LLVM, though LLVM needs that only for what threads share: the two long calls on
        objects of our own go round its lock."""
        llvm, ffi = self.llvm, self.llvm.ffi
        machine = self.machine()
        source = self.head + declarations(text) + _KERNEL.sub(f"@{name}", text)
        if self.vector_bytes == 64:  # else LLVM takes vectors of half the size on most CPUs
            source = source.replace(" nounwind", ' nounwind "prefer-vector-width"="512"')
        try:
            module = llvm.parse_assembly(source, llvm.create_context())
            module.verify()
        except RuntimeError as error:
            raise RuntimeError(f"native: LLVM refused a kernel: {error}\n{source}") from None
        if optimizes():
            self._optimize(module, machine, text.startswith(STRAIGHT_LINE))
        with ffi.OutputString() as problem:
            buffer = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(
                machine, module, 1, problem
            )
            if not buffer:
                raise RuntimeError(f"native: LLVM could not compile a kernel: {problem}")
        try:
            size = ffi.lib.LLVMPY_GetBufferSize(buffer)
            return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)

    def _optimize(self, module: Any, machine: Any, straight: bool) -> None:
        llvm = self.llvm
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.loop_interleaving = options.loop_unrolling = True
        options.slp_vectorization = straight
        builder = llvm.create_pass_builder(machine, options)
        _unlocked(llvm.ffi.lib.LLVMPY_RunNewModulePassManager)(
            builder.getModulePassManager(), module, builder
        )

    def timed(self, text: str, name: str) -> bytes:
        """`compile`, noting what it took of this thread's time."""
        global _compiled
        started = time.thread_time()
        data = self.compile(text, name)
        _seconds[digest(text)] = time.thread_time() - started
        _compiled += 1
        return data

    def objects(self, texts: dict[str, str], keys: dict[str, str]) -> dict[str, bytes]:
        """Objects by name, from disk or compiled, several at once where there are threads."""
        work = Work.current()
        begun = {} if work is None else work.begun
        found: dict[str, bytes] = {}
        for name, key in keys.items():
            data = self.cache.get(key) if self.cache and name not in begun else None
            if data is not None:
                found[name] = data
        missing = [name for name in texts if name not in found]
        if missing:
            for name, data in self._compile_all(missing, texts, work).items():
                found[name] = data
                if self.cache:
                    self.cache.put(keys[name], data)
        return found

    def _compile_all(
        self, names: Sequence[str], texts: dict[str, str], work: Work | None
    ) -> dict[str, bytes]:
        """Objects by name. The longest texts come first, so that no thread ends up with one alone
        while the others wait for it."""
        order = sorted(names, key=lambda name: -len(texts[name]))
        if len(order) > 1 or work is not None:
            with Work.beside() as work:
                if work is not None:
                    return work.finish({name: texts[name] for name in order})
        return {name: self.timed(texts[name], name) for name in order}

    # ---- objects to addresses
    def link(
        self, objects: dict[bytes, bytes], symbols: Iterable[str], exports: Sequence[str] = ()
    ) -> Library:
        """Objects by digest, in memory. They may call `symbols`, and define `exports`."""
        builder = self.llvm.JITLibraryBuilder()
        for digest, data in objects.items():
            builder.add_object_img(data)
            builder.export_symbol(_name(digest))
        for symbol in exports:
            builder.export_symbol(symbol)
        for symbol in symbols:
            builder.import_symbol(symbol, _symbols[symbol])
        if self.linker is None or self.linker.libraries >= LIBRARIES:
            self.linker = _Linker(self)
        linker = self.linker
        linker.libraries += 1
        made = builder.add_current_process().link(linker.jit, f"toile{linker.libraries}")
        library = Library(linker, made, list(objects), sum(map(_mapped_bytes, objects.values())))
        for symbol in exports:
            _symbols[symbol] = made[symbol]
        for digest in objects:
            _code[digest] = library
        return library


LIBRARIES = 64  # of one linker: it keeps some memory of those that were unloaded
_LIBRARY_BYTES = 24 << 10  # what LLVM keeps for one, roughly
_PAGE = 4096
_freed: list[tuple[Any, _Linker]] = []  # to be unloaded
_shutting_down = False  # whether the interpreter is


def _mapped_bytes(data: bytes) -> int:
    """The memory that an object takes: code, constants and tables on pages of their own."""
    return 2 * _PAGE + -(-len(data) // _PAGE) * _PAGE


class _Linker:
    """LLVM's linker, which is freed with the last of the libraries that it made."""

    def __init__(self, made: _Engine):
        self.jit = made.llvm.create_lljit_compiler(made.machine(), use_jit_link=True)
        self.libraries = 0
        _linkers.add(self)
        if _shutting_down:
            self.keep()

    def keep(self) -> None:
        """Never unload the code."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.jit))


_linkers: weakref.WeakSet[_Linker] = weakref.WeakSet()


class Library:
    """Kernels that were linked together, by digest; unloaded when this goes."""

    code_bytes = 0  # of all of them

    def __init__(self, linker: _Linker, tracker: Any, digests: Sequence[bytes], nbytes: int):
        self.linker, self.tracker = linker, tracker
        self.addresses = {d: Address(tracker[_name(d)]) for d in digests}
        self.nbytes = nbytes + _LIBRARY_BYTES
        Library.code_bytes += self.nbytes
        _libraries.add(self)
        if _shutting_down:
            tracker.detach()
        # Not `__del__`: other threads can still get this object from `_code` while that runs.
        weakref.finalize(self, _released, tracker, linker, digests, self.nbytes).atexit = False

    def address(self, digest: bytes) -> Address:
        """Where a kernel lies, which keeps it there."""
        found = Address(self.addresses[digest])
        found.library = self
        return found


def _released(tracker: Any, linker: _Linker, digests: Sequence[bytes], nbytes: int) -> None:
    """Unload a library that is gone. This may run anywhere, also in the middle of LLVM's work on
    another thread: then the next call that may do so unloads it."""
    if _shutting_down is not False:
        return  # at shutdown code stays loaded (by then names of this module may be None)
    Library.code_bytes -= nbytes
    for digest in digests:
        _seconds.pop(digest, None)
    _freed.append((tracker, linker))
    unload()


class Address(int):
    """Where a function lies; the code stays there as long as this does."""

    library: Library


_libraries: weakref.WeakSet[Library] = weakref.WeakSet()


def unload() -> None:
    """Unload what is no longer in use; nothing, while another thread is at work in LLVM."""
    while _freed and _lock.try_acquire():
        try:
            tracker, linker = _freed.pop()
            tracker.close()
            del tracker, linker
        except IndexError:
            pass  # another thread has
        finally:
            _lock.release()


@atexit.register
def _keep_loaded_code() -> None:
    """Threads may still run kernels while the interpreter shuts down: keep what is loaded."""
    global _shutting_down
    _shutting_down = True
    for linker in list(_linkers):
        linker.keep()
    for library in list(_libraries):
        library.tracker.detach()
    for tracker, _ in _freed:
        tracker.detach()


class Work:
    """Texts that are compiled by threads of their own, while this one does something else.

    It holds the lock from the first one on, so that the process does not fork meanwhile."""

    _own = threading.local()

    def __init__(self) -> None:
        self.begun: dict[str, Callable[[], bytes]] = {}  # what gives the object, by name
        self.seen: set[str] = set()  # texts
        self.executor: ThreadPoolExecutor | None = None

    @classmethod
    def current(cls) -> Work | None:
        """That of this thread."""
        return getattr(cls._own, "work", None)

    @classmethod
    @contextmanager
    def beside(cls) -> Iterator[Work | None]:
        """Work that goes on while the block runs, and has ended after it; None where a single
        thread has to do everything."""
        outer = cls.current()
        if outer is not None or threads.current() == 1:
            yield outer
            return
        work = cls._own.work = cls()
        try:
            yield work
        finally:
            cls._own.work = None
            if work.executor is not None:
                work.executor.shutdown(cancel_futures=True)
                _lock.release()

    def begin(self, text: str) -> None:
        """Compile a text, if it is neither in memory nor on disk."""
        if text in self.seen:
            return
        self.seen.add(text)
        known = digest(text)
        if known in _code:
            return
        made = engine()
        if made.cache is None or not made.cache.has(made.key(text)):
            self._submit(_name(known), text)

    def _submit(self, name: str, text: str) -> None:
        made = engine()
        try:
            executor = self.executor or self._start(made)
            self.begun[name] = executor.submit(made.timed, text, name).result
        except RuntimeError:  # the interpreter shuts down, and starts no more threads
            done = made.timed(text, name)
            self.begun[name] = lambda: done

    def _start(self, made: _Engine) -> ThreadPoolExecutor:
        # Loaded here because it takes a while, with all of logging, and most programs find what
        # they need on disk. While the interpreter ends it refuses to load, as it does to run.
        with loading:
            from concurrent.futures import ThreadPoolExecutor

        with _lock:
            made.target, made.head  # noqa: B018  made here, before several threads ask
        _lock.acquire()
        self.executor = ThreadPoolExecutor(threads.current(), "toile: compiling")
        return self.executor

    def finish(self, texts: dict[str, str]) -> dict[str, bytes]:
        """The objects of texts by name, whether they were begun before or not."""
        for name, text in texts.items():
            if name not in self.begun:
                self._submit(name, text)
        return {name: self.begun[name]() for name in texts}


def begin(text: str) -> None:
    """Compile a text that will be asked for, where threads are at work beside this one."""
    work = Work.current()
    if work is not None:
        work.begin(text)


def _unlocked(function: Any) -> Any:
    """llvmlite's C function without its lock, where llvmlite is built as we know it."""
    return getattr(function, "_cfn", function)


_engine: _Engine | None = None


def engine() -> _Engine:
    """The code generator, made at the first use."""
    global _engine
    if _engine is None:
        with _lock:
            if _engine is None:
                _engine = _Engine()
    return _engine


def declarations(text: str) -> str:
    """A declaration for each intrinsic that the text calls."""
    found: dict[str, str] = {}
    for result, name, arguments in _CALLED.findall(text):
        types = [a.strip().rsplit(" ", 1)[0] for a in _split(arguments)]
        found[name] = f"declare {result} @{name}({', '.join(types)})\n"
    return "".join(found.values())


def _split(arguments: str) -> list[str]:
    """Arguments at the commas that are not inside vectors' brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(arguments):
        depth += c in "<[{"
        depth -= c in ">]}"
        if c == "," and depth == 0:
            parts.append(arguments[start:i])
            start = i + 1
    parts.append(arguments[start:])
    return [p for p in parts if p.strip()]


def optimizes() -> bool:
    """Whether LLVM's passes run: TOILE_OPTIMIZE=0 makes code several times faster without them,
    for code that runs once or twice, as that of tests."""
    return os.environ.get("TOILE_OPTIMIZE", "1") != "0"


def digest(text: str) -> bytes:
    """What a text is known by in this process."""
    return _digest(text, optimizes())


@lru_cache(maxsize=256)  # compiling a program asks for each several times
def _digest(text: str, optimized: bool) -> bytes:
    return hashlib.sha256(text.encode() + (b"" if optimized else b"\0plain")).digest()


def functions(texts: Sequence[str]) -> list[Address]:
    """The addresses of the `@kernel` of each text; those that are new are compiled together.

    The code stays in memory as long as an Address of its library does."""
    digests = [digest(text) for text in texts]
    found = {d: library for d in digests if (library := _code.get(d)) is not None}
    if len(found) < len(set(digests)):
        with _lock:
            unload()
            new: dict[bytes, str] = {}
            for d, text in zip(digests, texts, strict=True):
                library = found.get(d) or _code.get(d)
                if library is None:
                    new[d] = text
                else:
                    found[d] = library
            if new:
                found.update(_load(new))
    return _addresses_of(found, digests)


def _addresses_of(found: dict[bytes, Library], digests: Iterable[bytes]) -> list[Address]:
    for library in dict.fromkeys(found.values()):
        if library not in _recent:
            _recent.append(library)
    return [found[d].address(d) for d in digests]


def forget_recent() -> None:
    """Keep no library that nothing else holds."""
    _recent.clear()
    _digest.cache_clear()


def names_on_disk(texts: Sequence[str]) -> list[tuple[bytes, str]]:
    """For each text the digest by which this process knows it and the key of its object."""
    return [(digest(text), engine().key(text)) for text in texts]


def recalled(
    kernels: Sequence[tuple[bytes, str]], symbols: Sequence[str]
) -> list[Address] | None:
    """The addresses of kernels whose objects are on disk; None if one of them is not there."""
    if any(s not in _symbols for s in symbols):
        return None
    with _lock:
        unload()
        found = {d: library for d, _ in kernels if (library := _code.get(d)) is not None}
        new = {d: key for d, key in kernels if d not in found}
        cache = engine().cache if new else None
        objects = {}
        for d, key in new.items():
            data = cache.get(key) if cache is not None else None
            if data is None:
                return None
            objects[d] = data
        if objects:
            _load_runner()
            library = engine().link(objects, {*symbols, CHECK})
            found.update(dict.fromkeys(new, library))
    return _addresses_of(found, [d for d, _ in kernels])


def _load_runner() -> None:
    """Have `toile_check` in memory, which kernels with long loops call. Held: the lock."""
    if CHECK not in _symbols:
        importlib.import_module("toile.platforms.cpu.runner").function()


def _name(digest: bytes) -> str:
    """What a kernel's function is called in its object."""
    return f"kernel_{digest.hex()[:24]}"


def symbols_of(texts: Iterable[str]) -> set[str]:
    """The C functions, of those that were added, that texts call."""
    declaring = [text for text in texts if "\ndeclare " in text or text.startswith("declare ")]
    called = {s for text in declaring for s in _DECLARED.findall(text) if s in _symbols}
    return called - {CHECK}


def compiled() -> int:
    """How many kernels this process has compiled."""
    return _compiled


def _load(new: dict[bytes, str]) -> dict[bytes, Library]:
    """Bring texts into memory as code: the library of each. Held: the lock."""
    made = engine()
    texts = {_name(d): text for d, text in new.items()}
    objects = made.objects(texts, {name: made.key(text) for name, text in texts.items()})
    found: dict[bytes, Library] = {}
    for d, text in list(new.items()):
        if _DEFINES_CHECK in text:  # the runner: others call it, and it stays
            found[d] = made.link({d: objects[_name(d)]}, (), [CHECK])
            _kept.append(found[d])
            del new[d]
    if new:
        _load_runner()
        symbols = symbols_of(new.values()) | {CHECK}
        library = made.link({d: objects[_name(d)] for d in new}, symbols)
        found.update(dict.fromkeys(new, library))
    return found


_DEFINES_CHECK = f"define i64 @{CHECK}("


def loaded() -> frozenset[bytes]:
    """The digests of the kernels in memory."""
    return frozenset(_code.keys())


def compile_seconds(text: str) -> float | None:
    """What compiling a text took in this process; None: its kernel came from disk."""
    return _seconds.get(digest(text))


def function(text: str) -> int:
    """The address of the `@kernel` that a module's text defines, which stays in memory."""
    found = functions([text])[0]
    if found.library not in _kept:
        _kept.append(found.library)
    return found


def add_symbol(name: str, address: int) -> None:
    """Let texts that declare a C function of this name call it."""
    _symbols[name] = address


def vector_bytes() -> int:
    """The size of this machine's vector registers: 64 with AVX-512, 32 with AVX2, else 16."""
    return engine().vector_bytes
