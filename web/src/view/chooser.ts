// The list of traces to choose from, shown once there are two.

import type { Trace } from "../trace/trace";

/** A trace that can be shown; it is read when it is chosen. */
export interface Entry {
  title: string;
  /** Its name in the address; null for a file opened here, which no address brings back. */
  file: string | null;
  read(): Promise<Trace>;
}

export interface ChooserParts {
  /** Around all of it. */
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

  /** Adds entries that are not there yet. One of the same title and file takes the other's place. */
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

  /** Shows the entry as the chosen one, or none. One that is not listed yet changes nothing. */
  mark(entry: Entry | null): void {
    const index = entry ? this.entries.indexOf(entry) : -1;
    if (index >= 0 || !entry) this.parts.select.selectedIndex = index;
  }
}
