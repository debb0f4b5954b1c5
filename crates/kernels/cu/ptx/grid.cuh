// Programmatic dependent launch: the kernel behind this one on the stream, and the one before it.
#pragma once

namespace ptx {

// The next kernel's blocks may start, as soon as every block of this one has called this or has ended.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel before has ended and what it wrote is visible.
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace ptx
