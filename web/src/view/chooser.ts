// The traces to choose from: versions and positions as buttons, and a list of all.

import type { Of } from "../trace/list";
import type { Trace } from "../trace/trace";
import { classed, node } from "./dom";

/** A trace that can be shown; it is read when it is chosen. */
export interface Entry {
  title: string;
  /** The name in the address; null for a file opened here, which no address can name. */
  file: string | null;
  /** What a committed trace is of. */
  of: Of | null;
  read(): Promise<Trace>;
}

export interface ChooserParts {
  /** The element around everything. */
  choice: HTMLElement;
  /** Where the versions and positions go. */
  versions: HTMLElement;
  /** The element around the list. */
  all: HTMLElement;
  select: HTMLSelectElement;
}

export class Chooser {
  private entries: Entry[] = [];
  private marked: Entry | null = null;

  constructor(
    private readonly parts: ChooserParts,
    private readonly onChoice: (entry: Entry) => void,
  ) {
    parts.select.addEventListener("change", () => {
      const entry = this.entries[parts.select.selectedIndex];
      if (entry) onChoice(entry);
    });
  }

  /** Adds new entries. An entry with the same title and file replaces the old one. */
  add(...entries: Entry[]): void {
    for (const entry of entries) {
      if (this.entries.includes(entry)) continue;
      const old = this.entries.findIndex(
        ({ title, file }) => title === entry.title && file === entry.file,
      );
      if (old < 0) this.entries.push(entry);
      else this.entries[old] = entry;
    }
    const { select, choice, all } = this.parts;
    select.replaceChildren(...this.entries.map(({ title }) => new Option(title)));
    choice.hidden = this.entries.length < 2;
    // The buttons suffice if every trace has one.
    all.hidden = this.gpus().length === 1 && this.entries.every(({ of }) => of !== null);
    this.showVersions();
  }

  /** The entry that an address names. */
  named(file: string): Entry | undefined {
    return this.entries.find((entry) => entry.file === file);
  }

  /** The entries that versions are compared of. */
  committed(): Entry[] {
    return this.entries.filter(({ of }) => of !== null);
  }

  /** Selects the entry, or none. An entry that is not listed changes nothing. */
  mark(entry: Entry | null): void {
    const index = entry ? this.entries.indexOf(entry) : -1;
    if (index < 0 && entry) return;
    this.parts.select.selectedIndex = index;
    this.marked = entry;
    this.showVersions();
  }

  private gpus(): string[] {
    return [...new Set(this.entries.flatMap(({ of }) => (of ? [of.gpu] : [])))];
  }

  /** The variants, and the positions of the one shown; of one GPU at a time. */
  private showVersions(): void {
    const own = this.marked?.of ?? this.committed()[0]?.of ?? null;
    const near = this.committed().filter(({ of }) => of?.gpu === own?.gpu);
    const { versions } = this.parts;
    versions.hidden = near.length < 2;
    versions.replaceChildren();
    if (versions.hidden || !own) return;
    const values = <T>(value: (of: Of) => T): T[] => [
      ...new Set(near.flatMap(({ of }) => (of ? [value(of)] : []))),
    ];
    // A variant that lacks the position has another one, and likewise.
    const find = (variant: string, position: number) =>
      near.find(({ of }) => of?.variant === variant && of.position === position) ??
      near.find(({ of }) => of?.variant === variant);
    const shown = this.marked?.of;
    versions.replaceChildren(
      group(
        "Version",
        values(({ variant }) => variant).map((variant) => ({
          label: variantName(variant),
          pressed: shown?.variant === variant,
          pick: () => this.pick(find(variant, own.position)),
        })),
      ),
      group(
        "Position",
        values(({ position }) => position).map((position) => ({
          label: position.toLocaleString("en"),
          pressed: shown?.position === position,
          pick: () => this.pick(find(own.variant, position)),
        })),
      ),
    );
  }

  private pick(entry: Entry | undefined): void {
    if (entry) this.onChoice(entry);
  }
}

/** A variant's name for people: its format, and the hand-off if that is not the usual one. */
export function variantName(variant: string): string {
  const [format = variant, ...rest] = variant.replace(/-flag$/, "").split("-");
  const name = format.startsWith("fp") || format.startsWith("nvfp") ? format.toUpperCase() : format;
  return [name, ...rest].join(" ");
}

interface Choice {
  label: string;
  pressed: boolean;
  pick(): void;
}

function group(title: string, choices: Choice[]): HTMLElement {
  const buttons = choices.map(({ label, pressed, pick }) => {
    const button = node("button", label);
    button.type = "button";
    button.setAttribute("aria-pressed", String(pressed));
    button.addEventListener("click", () => {
      pick();
      // The buttons were made anew: the keyboard stays where it was.
      const again = [...box.ownerDocument.querySelectorAll<HTMLButtonElement>("#versions button")];
      again.find(({ textContent }) => textContent === label)?.focus();
    });
    return button;
  });
  const segments = classed("span", "segments", ...buttons);
  const box = classed("span", "group", classed("span", "quiet", title), segments);
  segments.setAttribute("role", "group");
  segments.setAttribute("aria-label", title);
  return box;
}
