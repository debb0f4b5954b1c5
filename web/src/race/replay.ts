// The replay's arithmetic. Times are ns of the recorded machine since decoding began; a token is
// there from its time on.

/** When each token was there: the sums of the tokens' own times. */
export function arrivals(ns: readonly number[]): Float64Array {
  const at = new Float64Array(ns.length);
  let sum = 0;
  for (const [index, own] of ns.entries()) {
    sum += own;
    at[index] = sum;
  }
  return at;
}

/** How many tokens are there at a time. */
export function countAt(at: Float64Array, ns: number): number {
  let [low, high] = [0, at.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((at[middle] ?? 0) <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Tokens per second up to the last token that is there; null before the first. */
export function speedAt(at: Float64Array, ns: number): number | null {
  const count = countAt(at, ns);
  const last = count === 0 ? 0 : (at[count - 1] ?? 0);
  return last > 0 ? count / (last / 1e9) : null;
}

/** When the last token of all lanes is there. */
export function endOf(lanes: readonly Float64Array[]): number {
  return Math.max(0, ...lanes.map((at) => at.at(-1) ?? 0));
}

/** When the next token of any lane is there; the end if there is none. */
export function nextToken(lanes: readonly Float64Array[], ns: number): number {
  const next = lanes.map((at) => at[countAt(at, ns)] ?? Number.POSITIVE_INFINITY);
  return Math.min(endOf(lanes), ...next);
}

/** When the last token before this time came, of any lane; the begin if there is none. */
export function tokenBefore(lanes: readonly Float64Array[], ns: number): number {
  const before = lanes.map((at) => {
    let count = countAt(at, ns);
    while (count > 0 && (at[count - 1] ?? 0) >= ns) count--;
    return count === 0 ? 0 : (at[count - 1] ?? 0);
  });
  return Math.max(0, ...before);
}

/** Speeds of the replay: shares of the recorded machine's own. */
export const SPEEDS = [0.05, 0.1, 0.25, 0.5, 1] as const;
export type Speed = (typeof SPEEDS)[number];

/** A frame that comes later than this, as after a hidden tab, moves no further. */
const FRAME_MS_MAX = 100;

/** Where a replay is one frame later; never beyond the end. */
export function advanced(ns: number, frameMs: number, speed: number, endNs: number): number {
  const ms = Math.min(Math.max(frameMs, 0), FRAME_MS_MAX);
  return Math.min(endNs, ns + ms * 1e6 * speed);
}

/** A place on a slider of whole microseconds, and back. The last place is the end itself. */
export function sliderAt(ns: number, endNs: number): number {
  return ns >= endNs ? sliderEnd(endNs) : Math.floor(ns / 1000);
}

export function sliderEnd(endNs: number): number {
  return Math.max(1, Math.ceil(endNs / 1000));
}

export function nsAt(slider: number, endNs: number): number {
  return Math.min(endNs, Math.max(0, slider) * 1000);
}

/** The text of a stream at a time, in two parts: what is the first lane's too, and what is not. */
export function written(
  { first, pieces, agrees }: { first: string; pieces: readonly string[]; agrees: number },
  count: number,
): { same: string; own: string; ahead: string } {
  const all = [first, ...pieces];
  const there = count + 1;
  const parting = Math.min(agrees, there);
  return {
    same: all.slice(0, parting).join(""),
    own: all.slice(parting, there).join(""),
    ahead: all.slice(there).join(""),
  };
}

/** Median of some numbers; 0 of none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low, high] = [sorted[middle - 1] ?? sorted[middle] ?? 0, sorted[middle] ?? 0];
  return sorted.length % 2 === 1 ? high : (low + high) / 2;
}

/** Round times between begin and end for an axis, at most about this many. */
export function marks(endNs: number, most: number): number[] {
  const least = endNs / most;
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? endNs;
  const found: number[] = [];
  for (let mark = 0; mark <= endNs; mark += step) found.push(mark);
  return found;
}
