// Checked values from a file's JSON; a refusal says what is wrong and where.

import { TraceError } from "./error";

export const U16 = 65_535;
export const U32 = 2 ** 32 - 1;
/** Longest token that a trace holds: an hour. */
export const MAX_TOKEN_NS = 3_600_000_000_000;
const MAX_TEXT_BYTES = 256;

/** An object with these fields and, unless `open`, no others. */
export function object<Field extends string>(
  value: unknown,
  what: string,
  fields: readonly Field[],
  open = false,
): Record<Field, unknown> {
  const entries = objectOf(value, what);
  for (const field of fields) {
    if (!Object.hasOwn(entries, field)) throw new TraceError(`${what} has no field "${field}"`);
  }
  const stray = Object.keys(entries).find((key) => !(fields as readonly string[]).includes(key));
  if (!open && stray !== undefined) throw new TraceError(`${what}: unknown field "${stray}"`);
  return entries as Record<Field, unknown>;
}

/** An object with any keys. */
export function objectOf(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TraceError(`${what} is not an object`);
  }
  return value as Record<string, unknown>;
}

export function text(value: unknown, what: string): string {
  const short =
    typeof value === "string" &&
    value.trim() !== "" &&
    new TextEncoder().encode(value).length <= MAX_TEXT_BYTES;
  if (!short || /\p{Cc}/u.test(value)) throw new TraceError(`${what} is not a short line of text`);
  return value;
}

export function isWhole(value: unknown, limit: number): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= limit;
}

export function integer(value: unknown, what: string, limit: number): number {
  if (isWhole(value, limit)) return value;
  throw new TraceError(
    `${what} is ${JSON.stringify(value)}, not a whole number between 0 and ${limit}`,
  );
}

/** Any finite number; JSON's 1e999 reads as infinity, which is refused. */
export function number(value: unknown, what: string): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new TraceError(`${what} is ${said(value)}, not a number`);
}

export function positive(value: unknown, what: string): number {
  if (number(value, what) > 0) return value as number;
  throw new TraceError(`${what} is ${said(value)}, not above 0`);
}

function said(value: unknown): string {
  return typeof value === "number" ? String(value) : JSON.stringify(value);
}

export function array(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new TraceError(`${what} is not a list`);
  return value;
}

/** This version's ids for the file's list of names. */
export function names(value: unknown, list: string, known: readonly string[]): number[] {
  const ids = array(value, list).map((name) => {
    const id = known.indexOf(name as string);
    if (id < 0) throw new TraceError(`${list}: unknown name ${JSON.stringify(name)}`);
    return id;
  });
  if (new Set(ids).size !== ids.length) throw new TraceError(`${list}: a name is listed twice`);
  return ids;
}
