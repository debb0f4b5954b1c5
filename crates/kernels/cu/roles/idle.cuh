// The timeout of the lanes that only look on.
#pragma once
#include "../xray.cuh"

namespace xray {

// How long a lane has seen nothing new. Every record restarts its timeout: a launch may consist of
// many long waits, each within the consumers' timeout.
struct Idle {
  u32 begin = ptx::global_timer_1024ns(), count = 0;

  // Returns whether to keep looking, after `records` in all: the observed roles may have aborted.
  __device__ __forceinline__ bool expects_more(const abi::StepArgs& args, u32 records) {
    if (ptx::load_relaxed(&args.control->abort) != 0) return false;
    const u32 now = ptx::global_timer_1024ns();
    if (records != count) begin = now, count = records;
    return u64(now - begin) << 10 <= 3 * args.timeout_ns;
  }
};

}  // namespace xray
