// Numbers as the tables show them.

/** Stands for what was not measured; a note below the table says so. */
export const NOT_MEASURED = "–";

export function count(value: number | null, digits = 0): string {
  if (value === null) return NOT_MEASURED;
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** Speeds: whole numbers from 100 on. */
export function speed(value: number | null): string {
  return count(value, value !== null && value < 100 ? 1 : 0);
}

export function share(value: number | null, digits = 0): string {
  return value === null ? NOT_MEASURED : `${count(100 * value, digits)}\u00a0%`;
}

export function signedShare(value: number): string {
  return `${value < 0 ? "−" : "+"}${share(Math.abs(value), 2)}`;
}

export function us(ns: number, digits = 1): string {
  return `${count(ns / 1000, digits)}\u00a0µs`;
}

/** A model in a sentence. */
export function theModel(model: string): string {
  if (model === "standin") return "the stand-in of Qwen3-0.6B's shape";
  if (model === "tiny") return "the tiny model";
  return model;
}

/** What a model is called in a list. */
export function modelName(model: string): string {
  if (model === "standin") return "stand-in (Qwen3-0.6B's shape)";
  if (model === "tiny") return "tiny (a small model of our own)";
  return model;
}
