"""Compiles LLVM text to machine code, loads it and returns the addresses of functions.

Each text defines one function `@kernel`; equal texts are compiled once, and their objects are kept
on disk. llvmlite is imported when it is first used. LLVM's JITLink links objects in batches: each
batch is a `Library`, which is unloaded when nothing holds an `Address` in it.
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
from toile.targets.llvm.arm_features import arm_features
from toile.targets.llvm.processors import FEATURES_OF, HOST, for_vectors, own_texts
from toile.targets.llvm.stop_checks import CHECK
from toile.targets.llvm.x86_tiles import permitted

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# The first line of texts of straight-line code, whose scalars LLVM should combine into vectors.
STRAIGHT_LINE = "; straight-line\n"
# The first line of texts that LLVM need not improve: their loops are unrolled and use vectors where
# it helps, or their time is spent in routines of a library. Variables become registers and
# instructions are simplified, which takes a tenth of the time that all passes take.
WRITTEN_OUT = "; written out\n"
_FEW = ("always_inliner", "sroa", "simplify_cfg", "instruction_combine", "simplify_cfg")
FORMAT = "3"  # part of keys on disk: change it whenever texts are compiled differently

_lock = compiling
_code: weakref.WeakValueDictionary[bytes, Library] = weakref.WeakValueDictionary()  # by digest
_kept: list[Library] = []  # for the life of the process
# Recently used libraries stay loaded for a while, so that a loop outside jit, or a function that
# is created again for each call, finds its kernels although nothing else holds them.
_recent: deque[Library] = deque(maxlen=16)
_compiled = 0  # how many kernels this process has compiled
_seconds: dict[bytes, float] = {}  # CPU time of compiling, by digest; not for kernels from disk
_symbols: dict[str, int] = {}  # addresses of C functions that texts may call
_CALLED = re.compile(r"call (?:[a-z]+ )*(\S+|<[^>]*>) @(llvm\.[a-zA-Z0-9_.]+)\(([^()]*)\)")
_VARIANT = re.compile(r'"_ZGV_LLVM_N\d+v+_([\w.]+)\(([\w.]+)\)"')
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
    """llvmlite's code generator and linker for this machine, or for others like `cpu`."""

    def __init__(self, cpu: str = "") -> None:
        self.llvm = _llvmlite()
        self.llvm.initialize_native_target()
        self.llvm.initialize_native_asmprinter()
        host = cpu in ("", HOST)
        self.cpu: str = self.llvm.get_host_cpu_name() if host else cpu
        self.has: dict[str, bool] = dict.fromkeys(FEATURES_OF.get(cpu, ()), True)
        self.features = ""  # those that the name stands for
        if host:
            self.has.update(self.llvm.get_host_cpu_features())
            self.has.update(dict.fromkeys(arm_features(), True))
            if self.has.get("amx-tile") and (cpu or not permitted()):
                self.has.update((name, False) for name in self.has if name.startswith("amx-"))
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
        """A new code generator, for one thread at a time."""
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
        """The key of a text's object on disk."""
        key = self.salt.copy()
        key.update(digest(text))
        return key.hexdigest()

    # ---- texts to objects
    def compile(self, text: str, name: str) -> bytes:
        """The object in which the text's `@kernel` is called `name`; any thread may call this.

        O2 gives code as fast as O3. Combining scalars into vectors outside loops (SLP) helps
        only kernels that are marked as straight-line. llvmlite lets one thread at a time into LLVM,
        but LLVM needs that only for data that threads share: the two long calls, which work on data
        of this thread alone, bypass llvmlite's lock."""
        machine = self.machine()
        return self._object(self._module(text, name, machine), machine)

    def combined(self, texts: dict[str, str], rest: str) -> bytes:
        """One object with the kernels of several texts, by name, and with the LLVM text `rest`."""
        machine, context = self.machine(), self.llvm.create_context()
        self.llvm.initialize_native_asmparser()
        whole = self.llvm.parse_assembly(self.head + rest, context)
        for name, text in texts.items():
            whole.link_in(self._module(text, name, machine, context))
        return self._object(whole, machine)

    def _module(self, text: str, name: str, machine: Any, context: Any = None) -> Any:
        """LLVM's module of a text, after its passes."""
        llvm = self.llvm
        source = self.head + declarations(text) + _KERNEL.sub(f"@{name}", text)
        source = for_vectors(source, self.vector_bytes)
        try:
            module = llvm.parse_assembly(source, context or llvm.create_context())
            module.verify()
        except RuntimeError as error:
            raise RuntimeError(f"native: LLVM refused a kernel: {error}\n{source}") from None
        if optimizes():
            self._optimize(module, machine, text)
        return module

    def _object(self, module: Any, machine: Any) -> bytes:
        """The machine code of a module."""
        ffi = self.llvm.ffi
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

    def _optimize(self, module: Any, machine: Any, text: str) -> None:
        llvm, options = self.llvm, self.llvm.create_pipeline_tuning_options(speed_level=2)
        options.slp_vectorization = text.startswith(STRAIGHT_LINE)
        builder = llvm.create_pass_builder(machine, options)
        few = text.startswith(WRITTEN_OUT)
        passes = llvm.create_new_module_pass_manager() if few else builder.getModulePassManager()
        for name in _FEW if few else ():
            getattr(passes, f"add_{name}_pass")()
        _unlocked(llvm.ffi.lib.LLVMPY_RunNewModulePassManager)(passes, module, builder)

    def timed(self, text: str, name: str) -> bytes:
        """`compile`, which also records the CPU time that it takes."""
        global _compiled
        started = time.thread_time()
        data = self.compile(text, name)
        _seconds[digest(text)] = time.thread_time() - started
        _compiled += 1
        return data

    def objects(self, texts: dict[str, str]) -> dict[str, bytes]:
        """Objects by name (see `name_of`), from disk or compiled, in parallel if several threads
        may be used. The lock must be held."""
        keys = {name: self.key(text) for name, text in texts.items()}
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
        """Objects by name. The longest texts are compiled first, so that none is left for the end,
        when the other threads would have nothing to do."""
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
        """Load objects, given by digest. They may call `symbols`, and define `exports`."""
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


LIBRARIES = 64  # that one linker makes: it keeps some memory for each, even after unloading
_LIBRARY_BYTES = 24 << 10  # what LLVM itself needs for a library, roughly
_PAGE = 4096
_freed: list[tuple[Any, _Linker]] = []  # to be unloaded
_shutting_down = False  # whether the interpreter is shutting down


def _mapped_bytes(data: bytes) -> int:
    """An estimate of the memory of a loaded object, whose sections are on separate pages."""
    return 2 * _PAGE + -(-len(data) // _PAGE) * _PAGE


class _Linker:
    """An LLVM linker, held by the libraries that it made and, while current, by the engine."""

    def __init__(self, made: _Engine):
        self.jit = made.llvm.create_lljit_compiler(made.machine(), use_jit_link=True)
        self.libraries = 0
        _linkers.add(self)
        if _shutting_down:
            self.keep()

    def keep(self) -> None:
        """Never free the linker, so that its code stays loaded."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.jit))


_linkers: weakref.WeakSet[_Linker] = weakref.WeakSet()


class Library:
    """Kernels that were linked together, by digest; they are unloaded when this object is freed."""

    code_bytes = 0  # of all libraries

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
        """The address of a kernel, which keeps this library loaded."""
        found = Address(self.addresses[digest])
        found.library = self
        return found


def _released(tracker: Any, linker: _Linker, digests: Sequence[bytes], nbytes: int) -> None:
    """Unload a library whose object was freed. This may run at any time, even while another thread
    is in LLVM; in that case a later call of `unload` unloads it."""
    if _shutting_down is not False:
        return  # at shutdown code stays loaded (by then names of this module may be None)
    Library.code_bytes -= nbytes
    for digest in digests:
        _seconds.pop(digest, None)
    _freed.append((tracker, linker))
    unload()


class Address(int):
    """The address of a function, whose code stays loaded as long as this object exists."""

    library: Library


_libraries: weakref.WeakSet[Library] = weakref.WeakSet()


def unload() -> None:
    """Unload libraries that are no longer used, unless another thread is working in LLVM."""
    while _freed and _lock.try_acquire():
        try:
            tracker, linker = _freed.pop()
            tracker.close()
            del tracker, linker
        except IndexError:
            pass  # another thread has unloaded it
        finally:
            _lock.release()


@atexit.register
def _keep_loaded_code() -> None:
    """Keep code loaded while the interpreter shuts down: threads may still be running it."""
    global _shutting_down
    _shutting_down = True
    for linker in list(_linkers):
        linker.keep()
    for library in list(_libraries):
        library.tracker.detach()
    for tracker, _ in _freed:
        tracker.detach()


class Work:
    """Texts that are compiled by other threads while this one does something else.

    The lock is held from the first text on, so that the process does not fork meanwhile."""

    _own = threading.local()

    def __init__(self) -> None:
        self.begun: dict[str, Callable[[], bytes]] = {}  # functions that return the object, by name
        self.seen: set[str] = set()  # texts
        self.executor: ThreadPoolExecutor | None = None

    @classmethod
    def current(cls) -> Work | None:
        """The work of this thread, if it has any."""
        return getattr(cls._own, "work", None)

    @classmethod
    @contextmanager
    def beside(cls) -> Iterator[Work | None]:
        """Work that proceeds while the block runs, and has ended after it; None if only one thread
        may be used."""
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
        """Start to compile a text, unless it is in memory or on disk."""
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
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            done = made.timed(text, name)
            self.begun[name] = lambda: done

    def _start(self, made: _Engine) -> ThreadPoolExecutor:
        # Imported here because that takes a while (it imports logging), and most programs find what
        # they need on disk. While the interpreter shuts down, this raises RuntimeError too.
        with loading:
            from concurrent.futures import ThreadPoolExecutor

        with _lock:
            made.target, made.head  # noqa: B018  computed here, before several threads need them
        _lock.acquire()
        self.executor = ThreadPoolExecutor(threads.current(), "toile: compiling")
        return self.executor

    def finish(self, texts: dict[str, str]) -> dict[str, bytes]:
        """The objects of texts, by name; texts that were not begun before are begun now."""
        for name, text in texts.items():
            if name not in self.begun:
                self._submit(name, text)
        return {name: self.begun[name]() for name in texts}


def begin(text: str) -> None:
    """Start to compile a text that will be needed, if this thread has `Work`."""
    work = Work.current()
    if work is not None:
        work.begin(text)


def _unlocked(function: Any) -> Any:
    """A C function of llvmlite without llvmlite's lock, if it has the attribute for that."""
    return getattr(function, "_cfn", function)


_engine: _Engine | None = None


def engine() -> _Engine:
    """The engine, which is made when it is first used."""
    global _engine
    if _engine is None:
        with _lock:
            if _engine is None:
                _engine = _Engine()
    return _engine


@contextmanager
def machine(cpu: str) -> Iterator[_Engine]:
    """Inside the block, kernels are written and compiled for processors of this name. They cannot
    be loaded there. The lock is held."""
    global _engine
    with _lock, own_texts():
        before, _engine = engine(), _Engine(cpu)
        try:
            yield _engine
        finally:
            _engine = before


def declarations(text: str) -> str:
    """Declarations of the intrinsics that the text calls, and the list of functions that LLVM must
    not remove: those that calls name only in an attribute."""
    found: dict[str, str] = {}
    for result, name, arguments in _CALLED.findall(text):
        types = [a.strip().rsplit(" ", 1)[0] for a in _split(arguments)]
        found[name] = f"declare {result} @{name}({', '.join(types)})\n"
    kept = [f"ptr @{name}" for pair in sorted(set(_VARIANT.findall(text))) for name in pair]
    if kept:
        found[""] = (f"@llvm.compiler.used = appending global [{len(kept)} x ptr] "
                     f"[{', '.join(kept)}], section \"llvm.metadata\"\n")
    return "".join(found.values())


def _split(arguments: str) -> list[str]:
    """Arguments, split at the commas that are not inside brackets."""
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
    """Whether LLVM's passes run. Without them (TOILE_OPTIMIZE=0) compiling is several times faster,
    which suits code that runs once or twice, as in tests."""
    return os.environ.get("TOILE_OPTIMIZE", "1") != "0"


def digest(text: str) -> bytes:
    """The digest that identifies a text, with or without optimization."""
    return _digest(text, optimizes())


@lru_cache(maxsize=256)  # each is needed several times when a program is compiled
def _digest(text: str, optimized: bool) -> bytes:
    return hashlib.sha256(text.encode() + (b"" if optimized else b"\0plain")).digest()


def functions(texts: Sequence[str]) -> list[Address]:
    """The address of each text's `@kernel`; texts that are new are compiled together.

    The code stays in memory as long as an Address in its library exists."""
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
    """Release the recently used libraries; those that nothing else holds are unloaded."""
    _recent.clear()
    _digest.cache_clear()


def names_on_disk(texts: Sequence[str]) -> list[tuple[bytes, str]]:
    """For each text, its digest and the key of its object on disk."""
    return [(digest(text), engine().key(text)) for text in texts]


def recalled(
    kernels: Sequence[tuple[bytes, str]], symbols: Sequence[str]
) -> list[Address] | None:
    """The addresses of kernels in memory or on disk; None if one, or a symbol, is missing."""
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


def name_of(text: str) -> str:
    """The name of a text's function in its object."""
    return _name(digest(text))


def _load_runner() -> None:
    """Load `toile_check`, which kernels with long loops call. The lock must be held."""
    if CHECK not in _symbols:
        importlib.import_module("toile.platforms.cpu.runner").function()


def _name(digest: bytes) -> str:
    """The name of a kernel's function in its object."""
    return f"kernel_{digest.hex()[:24]}"


def symbols_of(texts: Iterable[str]) -> set[str]:
    """The C functions added by `add_symbol` that texts call."""
    declaring = [text for text in texts if "\ndeclare " in text or text.startswith("declare ")]
    called = {s for text in declaring for s in _DECLARED.findall(text) if s in _symbols}
    return called - {CHECK}


def compiled() -> int:
    """How many kernels this process has compiled."""
    return _compiled


def _load(new: dict[bytes, str]) -> dict[bytes, Library]:
    """Load texts as machine code; returns the library of each. The lock must be held."""
    made = engine()
    objects = made.objects({_name(d): text for d, text in new.items()})
    found: dict[bytes, Library] = {}
    for d, text in list(new.items()):
        if _DEFINES_CHECK in text:  # the runner, which other kernels call; it stays
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
    """The CPU time of compiling a text in this process; None if its kernel came from disk."""
    return _seconds.get(digest(text))


def function(text: str) -> int:
    """The address of a text's `@kernel`, which stays loaded for the life of the process."""
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


def has(feature: str) -> bool:
    """Whether this processor has a feature, by LLVM's name."""
    return engine().has.get(feature, False)
