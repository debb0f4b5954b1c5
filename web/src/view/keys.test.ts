import { expect, test } from "vitest";
import { commandFor } from "./keys";

const press = (key: string, held: Partial<KeyboardEvent> = {}) =>
  ({ key, ctrlKey: false, metaKey: false, altKey: false, ...held }) as KeyboardEvent;

test("letters work whatever has the focus, and with caps lock", () => {
  expect(commandFor(press("w"), false)).toMatchObject({ do: "zoom" });
  expect(commandFor(press("W"), true)).toMatchObject({ do: "zoom" });
  expect(commandFor(press("d"), false)).toMatchObject({ do: "pan" });
  expect(commandFor(press("p"), false)).toEqual({ do: "streams" });
  expect(commandFor(press("?"), false)).toEqual({ do: "help" });
});

test("arrow keys scroll the page unless the chart has the focus", () => {
  expect(commandFor(press("ArrowLeft"), false)).toBeNull();
  expect(commandFor(press("ArrowLeft"), true)).toEqual({ do: "step", step: "previous" });
});

test("the browser keeps its shortcuts", () => {
  for (const held of ["ctrlKey", "metaKey", "altKey"]) {
    expect(commandFor(press("0", { [held]: true }), true)).toBeNull();
  }
  expect(commandFor(press("q"), true)).toBeNull();
});
