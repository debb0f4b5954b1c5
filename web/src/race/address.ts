// The race's part of the page's address; the trace's part is in trace/address.ts.

import { SPEEDS, type Speed } from "./replay";

export interface RacePlace {
  run: string;
  model: string;
  prompt: number | null;
  /** Where the replay stands, in ns; null: at its end, as when the page opens. */
  atNs: number | null;
  speed: Speed | null;
}

const KEYS = { run: "race", model: "model", prompt: "prompt", atNs: "rt", speed: "rx" } as const;

/** The race that an address names; null if it names none. */
export function raceFromHash(hash: string): RacePlace | null {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const run = values.get(KEYS.run);
  // `#race` alone is the section.
  if (!run) return null;
  const whole = (key: string): number | null => {
    const text = values.get(key);
    return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
  };
  return {
    run,
    model: values.get(KEYS.model) ?? "",
    prompt: whole(KEYS.prompt),
    atNs: whole(KEYS.atNs),
    speed: SPEEDS.find((speed) => String(speed) === values.get(KEYS.speed)) ?? null,
  };
}

/** An address with this race in the place of its own. Its other parts stay as they are. */
export function withRace(hash: string, place: RacePlace | null): string {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  for (const key of Object.values(KEYS)) values.delete(key);
  // A link to a section: not part of a state.
  for (const [key, value] of [...values]) if (value === "") values.delete(key);
  if (place) {
    values.set(KEYS.run, place.run);
    values.set(KEYS.model, place.model);
    if (place.prompt !== null) values.set(KEYS.prompt, String(place.prompt));
    if (place.atNs !== null) values.set(KEYS.atNs, String(place.atNs));
    if (place.speed !== null) values.set(KEYS.speed, String(place.speed));
  }
  const text = values.toString();
  return text === "" ? "" : `#${text}`;
}
