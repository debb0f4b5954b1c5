// The list of traces to choose from, shown once there are two.

import type { Trace } from "../trace/trace";

/** A trace that can be shown; it is read when it is chosen. */
export interface Entry {
  title: string;
  /** The name in the address; null for a file opened here, which no address can name. */
  file: string | null;
  read(): Promise<Trace>;
}

export interface ChooserParts {
  /** The element around the list. */
  choice: HTMLElement;
  select: HTMLSelectElement;
}

export class Chooser {
  private entries: Entry[] = [];

  constructor(
    private readonly parts: ChooserParts,
    onChoice: (entry: Entry) => void,
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
    this.parts.select.replaceChildren(...this.entries.map(({ title }) => new Option(title)));
    this.parts.choice.hidden = this.entries.length < 2;
  }

  /** The entry that an address names. */
  named(file: string): Entry | undefined {
    return this.entries.find((entry) => entry.file === file);
  }

  /** Selects the entry, or none. An entry that is not listed changes nothing. */
  mark(entry: Entry | null): void {
    const index = entry ? this.entries.indexOf(entry) : -1;
    if (index >= 0 || !entry) this.parts.select.selectedIndex = index;
  }
}
