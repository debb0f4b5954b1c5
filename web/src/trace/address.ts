// What the page shows, as the part of its address after `#`, so that a link shows the same.

/** Everything is optional: an address may name a trace alone. Times in ns. */
export interface Place {
  file: string | null;
  beginNs: number | null;
  endNs: number | null;
  layer: number | null;
  /** The selected span's block and begin. */
  block: number | null;
  atNs: number | null;
}

/** `trace` is what older links say. */
const OLD_FILE = "trace";

export function placeFromHash(hash: string): Place {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (key: string): number | null => {
    const text = values.get(key);
    return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
  };
  return {
    file: values.get("v") ?? values.get(OLD_FILE),
    beginNs: whole("t0"),
    endNs: whole("t1"),
    layer: whole("l"),
    block: whole("b"),
    atNs: whole("at"),
  };
}

export function hashFor(place: Place): string {
  const values = new URLSearchParams();
  const put = (key: string, value: string | number | null) => {
    if (value !== null) values.set(key, String(value));
  };
  put("v", place.file);
  put("l", place.layer);
  put("t0", place.beginNs);
  put("t1", place.endNs);
  put("b", place.block);
  put("at", place.atNs);
  const text = values.toString();
  return text === "" ? "" : `#${text}`;
}
