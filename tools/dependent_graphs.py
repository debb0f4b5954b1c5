"""Asks a driver which launches of programmatic dependent kernels it survives.

    python3 tools/dependent_graphs.py

Rows `*-dependent-graph` once ended in SIGSEGV (notes/ablation.md). Here kernels that only count are put on a
stream as those rows do, in a process for each case, so that one that dies does not end the others. A line a
case: what became of it, the microseconds of a step, and, if it died, the call that it died in.
"""

import ctypes as c
import subprocess
import sys
import time

NODES, BLOCKS, THREADS, SHARED_BYTES, STEPS = 113, 128, 576, 108_672, 300
PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry plain(.param .u64 words) {
  .reg .u64 %to;
  .reg .u32 %thread;
  .reg .pred %first;
  ld.param.u64 %to, [words];
  mov.u32 %thread, %tid.x;
  setp.eq.u32 %first, %thread, 0;
  @%first red.global.add.u32 [%to], 1;
  ret;
}
.visible .entry dependent(.param .u64 words) {
  .reg .u64 %to;
  .reg .u32 %thread;
  .reg .pred %first;
  griddepcontrol.launch_dependents;
  griddepcontrol.wait;
  ld.param.u64 %to, [words];
  mov.u32 %thread, %tid.x;
  setp.eq.u32 %first, %thread, 0;
  @%first red.global.add.u32 [%to], 1;
  ret;
}
"""


class Attribute(c.Structure):
    """CUlaunchAttribute: 64 bytes of value, aligned to 8."""

    _fields_ = [("id", c.c_int), ("pad", c.c_char * 4), ("value", c.c_uint64 * 8)]


class Config(c.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", c.c_uint * 3),
        ("block", c.c_uint * 3),
        ("shared_bytes", c.c_uint),
        ("stream", c.c_void_p),
        ("attributes", c.POINTER(Attribute)),
        ("count", c.c_uint),
    ]


class NodeParams(c.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", c.c_void_p),
        ("grid", c.c_uint * 3),
        ("block", c.c_uint * 3),
        ("shared_bytes", c.c_uint),
        ("parameters", c.c_void_p),
        ("extra", c.c_void_p),
        ("kernel", c.c_void_p),
        ("context", c.c_void_p),
    ]


class Gpu:
    """A stream, a counter, and one of the kernels."""

    def __init__(self, kernel):
        self.cuda = c.CDLL("libcuda.so.1")
        self.function, self.stream, self.words = c.c_void_p(), c.c_void_p(), c.c_uint64()
        device, context, module = c.c_int(), c.c_void_p(), c.c_void_p()
        self("cuInit", 0)
        self("cuDeviceGet", c.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", c.byref(context), device)
        self("cuCtxSetCurrent", context)
        self("cuModuleLoadData", c.byref(module), PTX)
        self("cuModuleGetFunction", c.byref(self.function), module, kernel)
        self("cuFuncSetAttribute", self.function, 8, SHARED_BYTES)
        self("cuStreamCreate", c.byref(self.stream), 1)
        self("cuMemAlloc_v2", c.byref(self.words), c.c_size_t(64))
        self("cuMemsetD8_v2", self.words, 0, c.c_size_t(64))
        self.parameters = (c.c_void_p * 1)(c.cast(c.pointer(self.words), c.c_void_p))

    def __call__(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            sys.exit(f"{name} returned {code}")

    def launch(self, overlaps):
        attribute = Attribute(id=6)
        attribute.value[0] = 1
        config = Config(
            (BLOCKS, 1, 1), (THREADS, 1, 1), SHARED_BYTES, self.stream, c.pointer(attribute), overlaps
        )
        self("cuLaunchKernelEx", c.byref(config), self.function, self.parameters, None)

    def launch_step(self, overlaps, nodes=NODES):
        for node in range(nodes):
            self.launch(overlaps and node > 0)

    def captured(self, overlaps, nodes):
        graph = c.c_void_p()
        self("cuStreamBeginCapture_v2", self.stream, 1)
        self.launch_step(overlaps, nodes)
        self("cuStreamEndCapture", self.stream, c.byref(graph))
        return graph

    def built(self, nodes):
        """The same graph, without a capture."""
        graph, before = c.c_void_p(), None
        self("cuGraphCreate", c.byref(graph), 0)
        # CUgraphEdgeData: from the programmatic port, to the whole node, programmatic.
        edge = (c.c_ubyte * 8)(1, 0, 1)
        for _ in range(nodes):
            node = c.c_void_p()
            params = NodeParams(
                self.function, (BLOCKS, 1, 1), (THREADS, 1, 1), SHARED_BYTES,
                c.cast(self.parameters, c.c_void_p), None, None, None,
            )  # fmt: skip
            self("cuGraphAddKernelNode_v2", c.byref(node), graph, None, c.c_size_t(0), c.byref(params))
            if before is not None:
                ends = c.byref(before), c.byref(node), c.byref(edge)
                self("cuGraphAddDependencies_v2", graph, *ends, c.c_size_t(1))
            before = node
        return graph

    def instantiated(self, graph):
        executable = c.c_void_p()
        self("cuGraphInstantiateWithFlags", c.byref(executable), graph, c.c_ulonglong(0))
        self("cuGraphUpload", executable, self.stream)
        return executable

    def synchronize(self):
        self("cuStreamSynchronize", self.stream)

    def copy(self):
        self.unused = (c.c_char * 32)()
        self("cuMemcpyHtoDAsync_v2", c.c_uint64(self.words.value + 32), self.unused, c.c_size_t(32), self.stream)

    def count(self):
        value = c.c_uint()
        self("cuMemcpyDtoH_v2", c.byref(value), self.words, c.c_size_t(4))
        return value.value


def run(kernel="dependent", graph="captured", nodes=NODES, executables=1, at_once=STEPS, copies=False):
    """`at_once` steps are on the stream before the host waits for them."""
    overlaps = kernel == "dependent"
    gpu = Gpu(kernel.encode())
    ready = []
    for _ in range(executables if graph else 0):
        made = gpu.captured(overlaps, nodes) if graph == "captured" else gpu.built(nodes)
        ready.append(gpu.instantiated(made))
    gpu.synchronize()
    begin = time.perf_counter()
    for step in range(STEPS):
        if copies:
            gpu.copy()
        if ready:
            gpu("cuGraphLaunch", ready[step % len(ready)], gpu.stream)
        else:
            gpu.launch_step(overlaps, nodes)
        if (step + 1) % at_once == 0:
            gpu.synchronize()
    gpu.synchronize()
    us = (time.perf_counter() - begin) / STEPS * 1e6
    is_right = gpu.count() == STEPS * nodes * BLOCKS
    print(f"{'runs' if is_right else 'WRONG COUNT'}, {us:.0f} us a step")


CASES = {
    "a graph without programmatic launches": {"kernel": "plain"},
    "no graph, one launch after the other": {"graph": None},
    "a graph, one at a time": {"at_once": 1},
    "a graph, one at a time, 112 kernels": {"at_once": 1, "nodes": 112},
    "a graph, two at a time": {"at_once": 2},
    "a graph, all at once": {},
    "a graph, all at once, a copy between": {"copies": True},
    "a graph, 16 at a time, a copy between, 112 kernels": {"at_once": 16, "copies": True, "nodes": 112},
    "two graphs in turn, two at a time": {"executables": 2, "at_once": 2},
    "four graphs in turn, all at once": {"executables": 4},
    "a graph built node by node, all at once": {"graph": "built"},
}


def main():
    if len(sys.argv) > 1:
        run(**CASES[sys.argv[1]])
        return
    for name in CASES:
        command = [sys.executable, "-X", "faulthandler", __file__, name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            said = " ".join(done.stdout.split())
            if done.returncode != 0:
                said = f"ends with {done.returncode}: {' '.join(done.stderr.split())[:400]}"
        except subprocess.TimeoutExpired:
            said = "hangs"
        print(f"{name}: {said}", flush=True)


main()
