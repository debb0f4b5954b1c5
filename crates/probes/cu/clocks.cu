// Measures %globaltimer and clock64: the timer's steps, the clock's rate on every multiprocessor,
// and the offsets of both between multiprocessors.
#include "bound.cuh"

// One thread reads the timer in a loop and keeps its changes, at most `steps_max`. The loop ends
// after a number of reads or clocks, whichever comes first.
extern "C" __global__ void __launch_bounds__(32)
    probe_steps(u64 reads_max, u64 clocks_max, long long* steps, u32 steps_max, u64* totals) {
  if (threadIdx.x != 0) return;
  const u64 clock_begin = clock64(), begin = ptx::global_timer_ns();
  u64 last = begin, reads = 0, changes = 0;
  while (reads < reads_max && u64(clock64()) - clock_begin < clocks_max) {
    const u64 now = ptx::global_timer_ns();
    reads++;
    if (now == last) continue;
    if (changes < steps_max) steps[changes] = static_cast<long long>(now - last);
    changes++;
    last = now;
  }
  totals[0] = reads;
  totals[1] = changes;
  totals[2] = last - begin;
  totals[3] = clock64() - clock_begin;
}

// Reads both clocks just after the timer has stepped, so that its step size causes no error.
__device__ __forceinline__ bool read_at_step(u64 clocks_max, u64& timer, u64& clock) {
  const u64 before = ptx::global_timer_ns(), clock_begin = clock64();
  do {
    timer = ptx::global_timer_ns();
    clock = clock64();
    if (clock - clock_begin > clocks_max) return false;
  } while (timer == before);
  return true;
}

// Every block spins for `window_ns` of the timer and reports how many clocks passed. Five words per
// block: multiprocessor, whether it was measured, nanoseconds, clocks, clocks at the start.
extern "C" __global__ void __launch_bounds__(32)
    probe_rate(u64 window_ns, u64 clocks_max, u64* out) {
  if (threadIdx.x != 0) return;
  u64 timer_begin, clock_begin, timer_end, clock_end;
  bool ok = read_at_step(clocks_max, timer_begin, clock_begin);
  while (ptx::global_timer_ns() - timer_begin < window_ns) {
    if (u64(clock64()) - clock_begin > clocks_max) {
      ok = false;
      break;
    }
  }
  ok = read_at_step(clocks_max, timer_end, clock_end) && ok;
  u64* mine = out + blockIdx.x * PROBE_RATE_WORDS;
  mine[0] = ops::multiprocessor();
  mine[1] = ok;
  mine[2] = timer_end - timer_begin;
  mine[3] = clock_end - clock_begin;
  mine[4] = clock_begin;
}

// The message itself holds a read of the timer, above the round's number, so that the message
// cannot be sent before the read.
__device__ __forceinline__ u64 message_of(u64 timer, u32 round) { return timer << 16 | round; }

// One word per 128-byte line.
constexpr u32 MAIL_STRIDE = PROBE_MAIL_STRIDE;

struct Stamp {
  u64 timer, clock;
};

// Block 0 asks every other block for the time, one after another, `rounds` times: sent at t0,
// answered at t1, received at t2. The other clock is ahead by at least t1 - t2 and at most t1 - t0.
// `stamps` holds [block][round]{t0, t1, t2}; `mail` is zero before the launch.
extern "C" __global__ void __launch_bounds__(32)
    probe_offsets(Control* control, u64 timeout_ns, u64* mail, u32 rounds, Stamp* stamps) {
  if (threadIdx.x != 0) return;
  const Bound bound = {control, timeout_ns};
  const bool asks = blockIdx.x == 0;
  const u32 first = asks ? 1 : blockIdx.x, last = asks ? gridDim.x - 1 : blockIdx.x;
  for (u32 other = first; other <= last; other++) {
    u64* question = mail + u64(2 * other) * MAIL_STRIDE;
    u64* answer = question + MAIL_STRIDE;
    for (u32 round = 1; round <= rounds; round++) {
      Stamp* stamp = stamps + (u64(other) * rounds + round - 1) * 3;
      const auto arrives = [&](const u64* word) {
        return wait_until(bound, What::Mail, other, round, [&](u32& seen) {
          seen = static_cast<u32>(ptx::load_relaxed(word) & 0xffff);
          return seen == round;
        });
      };
      if (asks) {
        const u64 clock = clock64(), timer = ptx::global_timer_ns();
        ptx::store_relaxed(question, message_of(timer, round));
        if (!arrives(answer)) return;
        const u64 timer_back = ptx::global_timer_ns(), clock_back = clock64();
        stamp[0] = {timer, clock};
        stamp[2] = {timer_back, clock_back};
      } else {
        if (!arrives(question)) return;
        const u64 clock = clock64(), timer = ptx::global_timer_ns();
        ptx::store_relaxed(answer, message_of(timer, round));
        stamp[1] = {timer, clock};
      }
    }
  }
}
