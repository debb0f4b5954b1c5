// Hand-offs between all blocks: the all-gather of the megakernel's handoff/flag.cuh, and a grid
// barrier for comparison. Every exchange has its own slot, written once per launch with the
// launch's epoch, so no unread slot is overwritten and nothing is reset. All blocks must be
// resident, so the launch is cooperative.
#include "bound.cuh"

constexpr int THREADS = PROBE_HANDOFF_THREADS;
// A block's units fill whole 32-byte sectors, so that no two blocks share a sector.
constexpr u32 UNITS_PER_SECTOR = 4;

__device__ __forceinline__ u64 unit_of(u32 value, u32 epoch) { return u64(epoch) << 32 | value; }
__device__ __forceinline__ u32 value_of(u64 unit) { return static_cast<u32>(unit); }
__device__ __forceinline__ u32 epoch_of(u64 unit) { return static_cast<u32>(unit >> 32); }

// A unit's value depends on the values of the exchange before it; the host recomputes the chain.
__device__ __forceinline__ u32 next_value(u32 gathered, u32 index) {
  return gathered * 1664525u + 1013904223u + index;
}

// Clocks at the end of every exchange, in shared memory until the launch is over.
constexpr u32 EXCHANGES_MAX = PROBE_EXCHANGES_MAX;
struct Stamps {
  u64 clocks[EXCHANGES_MAX + 1];
  u64 timer_begin;
};

__device__ __forceinline__ void begin_stamps(Stamps& stamps) {
  if (threadIdx.x != 0) return;
  stamps.timer_begin = ptx::global_timer_ns();
  stamps.clocks[0] = clock64();
}

// [block][exchanges + 2]: the clocks, and the nanoseconds from the first clock to the last.
__device__ __forceinline__ void write_stamps(const Stamps& stamps, u32 exchanges, u64* out) {
  u64* mine = out + u64(blockIdx.x) * (exchanges + 2);
  if (threadIdx.x == 0) mine[exchanges + 1] = ptx::global_timer_ns() - stamps.timer_begin;
  __syncthreads();
  for (u32 at = threadIdx.x; at <= exchanges; at += THREADS) mine[at] = stamps.clocks[at];
}

// Gathers a slot: polls all units once before it waits for any, so that the loads overlap.
template <int UNITS>
__device__ __forceinline__ bool gather(const Bound& bound, const u64* slot, u32 epoch,
                                       u32 (&gathered)[UNITS]) {
  constexpr int PAIRS = UNITS / 2 / THREADS;
  u64 words[PAIRS][2];
#pragma unroll
  for (int at = 0; at < PAIRS; at++) {
    const u32 index = 2 * (threadIdx.x + at * THREADS);
    ptx::load_relaxed_pair(slot + index, words[at][0], words[at][1]);
  }
  bool ok = true;
#pragma unroll
  for (int at = 0; at < PAIRS; at++) {
    const u32 index = 2 * (threadIdx.x + at * THREADS);
    u64 first = words[at][0], second = words[at][1];
    if (epoch_of(first) != epoch || epoch_of(second) != epoch) {
      ok = wait_until(bound, What::Unit, index, epoch, [&](u32& seen) {
               ptx::load_relaxed_pair(slot + index, first, second);
               seen = epoch_of(first) != epoch ? epoch_of(first) : epoch_of(second);
               return seen == epoch;
             }) && ok;
    }
    gathered[index] = value_of(first);
    gathered[index + 1] = value_of(second);
  }
  return ok;
}

template <int UNITS>
__device__ __forceinline__ void exchange_all(const Bound& bound, u64* slots, u32 epoch,
                                             u32 exchanges, u64* out) {
  // Two halves, used alternately: a thread that writes one half knows that no thread reads it.
  __shared__ u32 gathered[2][UNITS];
  __shared__ Stamps stamps;
  const u32 even = (UNITS + gridDim.x - 1) / gridDim.x;
  const u32 share = (even + UNITS_PER_SECTOR - 1) / UNITS_PER_SECTOR * UNITS_PER_SECTOR;
  const u32 index = blockIdx.x * share + threadIdx.x;
  const bool posts = threadIdx.x < share && index < UNITS;
  u32 value = index;
  begin_stamps(stamps);
  for (u32 exchange = 0; exchange < exchanges; exchange++) {
    u64* slot = slots + u64(exchange) * UNITS;
    if (posts) ptx::store_relaxed(slot + index, unit_of(value, epoch));
    const bool ok = gather<UNITS>(bound, slot, epoch, gathered[exchange & 1]);
    if (!__syncthreads_and(ok)) return;
    value = next_value(gathered[exchange & 1][(index * 7 + 1) % UNITS], index);
    if (threadIdx.x == 0) stamps.clocks[exchange + 1] = clock64();
  }
  write_stamps(stamps, exchanges, out);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    probe_gather_1024(Control* control, u64 timeout_ns, u64* slots, u32 epoch, u32 exchanges,
                      u64* out) {
  exchange_all<1024>({control, timeout_ns}, slots, epoch, exchanges, out);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    probe_gather_3072(Control* control, u64 timeout_ns, u64* slots, u32 epoch, u32 exchanges,
                      u64* out) {
  exchange_all<3072>({control, timeout_ns}, slots, epoch, exchanges, out);
}

// The counter is zero before the launch and is never reset: exchange n waits for n times the number
// of blocks.
extern "C" __global__ void __launch_bounds__(THREADS)
    probe_barrier(Control* control, u64 timeout_ns, u32* counter, u32 exchanges, u64* out) {
  __shared__ Stamps stamps;
  const Bound bound = {control, timeout_ns};
  begin_stamps(stamps);
  for (u32 exchange = 0; exchange < exchanges; exchange++) {
    // Block barrier, then release; acquire, then block barrier.
    __syncthreads();
    bool ok = true;
    if (threadIdx.x == 0) {
      ops::add_release(counter);
      const u32 wanted = (exchange + 1) * gridDim.x;
      ok = wait_until(bound, What::Barrier, exchange, wanted, [&](u32& seen) {
        seen = ops::load_acquire(counter);
        return seen >= wanted;
      });
    }
    if (!__syncthreads_and(ok)) return;
    if (threadIdx.x == 0) stamps.clocks[exchange + 1] = clock64();
  }
  write_stamps(stamps, exchanges, out);
}
