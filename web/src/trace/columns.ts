// Columns of a file: `counts` has the number of rows of each block, the others one value a row.

import { TraceError } from "./error";
import { at } from "./trace";
import { array, integer, isWhole, object, U32 } from "./values";

export class Columns<Field extends string> {
  /** Rows of all blocks together. */
  readonly rows: number;
  /** The rows of block b are `starts[b]` up to, not including, `starts[b + 1]`. */
  readonly starts: Uint32Array;
  private readonly columns: Record<Field | "counts", unknown>;

  constructor(
    value: unknown,
    private readonly what: string,
    fields: readonly Field[],
    blocks: number,
  ) {
    this.columns = object(value, what, ["counts", ...fields]);
    const counts = array(this.columns.counts, `${what}.counts`);
    if (counts.length !== blocks) {
      throw new TraceError(`${what}.counts has ${counts.length} values for ${blocks} blocks`);
    }
    this.starts = new Uint32Array(blocks + 1);
    let rows = 0;
    counts.forEach((count, block) => {
      rows += integer(count, `${what}.counts[${block}]`, U32);
      // `column` refuses a sum that is too large: no file has that many values.
      this.starts[block + 1] = rows;
    });
    this.rows = rows;
    for (const field of fields) this.checkLength(field);
  }

  private checkLength(field: Field): void {
    const { length } = array(this.columns[field], `${this.what}.${field}`);
    if (length !== this.rows) {
      throw new TraceError(
        `${this.what}.${field} has ${length} values, but ${this.what}.counts adds up to ${this.rows}`,
      );
    }
  }

  /** Whole numbers up to the limit. */
  column(field: Field, limit: number): number[] {
    const values = array(this.columns[field], `${this.what}.${field}`);
    values.forEach((value, row) => {
      // Builds the name only for a refusal: 100,000 names would take longer than the rest.
      if (!isWhole(value, limit)) integer(value, `${this.what}.${field}[${row}]`, limit);
    });
    return values as number[];
  }

  /** The column's ids, translated from the file's list of names to this version's ids. */
  ids(field: Field, ids: number[]): Uint8Array {
    // An empty list has no valid id, but a column without values is fine.
    const limit = Math.max(ids.length - 1, 0);
    return Uint8Array.from(this.column(field, limit), (id) => ids[id] ?? this.unnamed(field, id));
  }

  private unnamed(field: Field, id: number): never {
    throw new TraceError(`${this.what}.${field} has id ${id}, which the file does not name`);
  }

  /** The block of each row. */
  owners(): Uint16Array {
    const owners = new Uint16Array(this.rows);
    for (let block = 0; block + 1 < this.starts.length; block++) {
      owners.fill(block, at(this.starts, block), at(this.starts, block + 1));
    }
    return owners;
  }
}
