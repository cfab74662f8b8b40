"""NVRTC without CuPy: CUDA's compiler for kernels needs no GPU."""

import ctypes
import functools

from toile.targets.cuda import libraries

OPTIONS = ("-arch=sm_90", "-std=c++17", "--fmad=false")


@functools.cache
def library():
    """The library; None where it is not installed."""
    try:
        return libraries.load("nvrtc")
    except libraries.LibraryError:
        return None


def problem(source, options=OPTIONS):
    """What the compiler says against a source; "" if it compiles."""
    nvrtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    assert made == 0
    try:
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given) == 0:
            return ""
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        return log.value.decode() or "no reason given"
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
