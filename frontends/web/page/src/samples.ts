// What is known of one statistic over a range of time: answers, joined column by column.

import type { Answer, Group, Series } from "./contract";

/** A bucket of a column: the lowest value, the first beyond, the count. */
export interface Cell {
  low: number;
  high: number;
  count: number;
}

/** One series in one column. */
export interface Part {
  sum: number;
  cells: Cell[];
}

/** All series in one column. */
export interface Column {
  at: number;
  state: number;
  total: Part;
  groups: Map<string, Part>;
}

const EMPTY: Part = { sum: 0, cells: [] };
const LONGEST = 4000;

/** The key under which groups beyond the listed ones are summed up. */
export const OTHER = "\u0000other";
export const keyOf = (group: Group): string => group.key.join(" · ") || "–";

export class Samples {
  columns: Column[] = [];
  columnMs = 1000;
  title = "";
  statement = "";
  source = "";
  measure = "operations";
  numeric: string | undefined;
  by: string[] = [];
  dropped = 0;
  keysFound = 0;
  unranked = 0;
  /** The id that filters can name, by key. */
  ids = new Map<string, string[]>();

  /** Counts of buckets over all columns, by their lowest value. */
  private readonly buckets = new Map<number, Cell>();

  /** Forgets everything. */
  clear(): void {
    this.columns = [];
    this.buckets.clear();
    this.ids.clear();
    this.dropped = 0;
    this.numeric = undefined;
    this.source = "";
  }

  /** Forgets what was before. A column that is told as it was stays the one that it is. */
  reset(answer: Answer): void {
    const before = new Map(this.columnMs === answer.column_ms ? this.columns.map((column) => [column.at, column]) : []);
    this.clear();
    this.join(answer);
    this.columns = this.columns.map((column) => {
      const known = before.get(column.at);
      return known && isSame(known, column) ? known : column;
    });
  }

  /** Adds columns, in place of those of the same time. */
  join(answer: Answer): void {
    this.columnMs = answer.column_ms;
    this.title = answer.title;
    this.statement = answer.statement;
    this.source = answer.source;
    this.measure = answer.measure;
    this.numeric = answer.numeric ?? undefined;
    this.by = answer.by;
    this.keysFound = answer.keys_found;
    this.unranked = answer.unranked;
    this.dropped = Math.max(this.dropped, answer.dropped);
    const totals = parts(answer.total, answer);
    const others = parts(answer.other, answer);
    const groups = answer.groups.map((group) => {
      this.ids.set(keyOf(group), group.ids);
      return [keyOf(group), parts(group.series, answer)] as const;
    });
    const fresh: Column[] = [];
    for (let place = 0; place < answer.columns; place++) {
      const column: Column = {
        at: answer.from_ms + place * answer.column_ms,
        state: answer.states[place] ?? 0,
        total: totals[place]!,
        groups: new Map(),
      };
      for (const [key, series] of groups) {
        if (series[place]!.sum || series[place]!.cells.length) column.groups.set(key, series[place]!);
      }
      if (others[place]!.sum || others[place]!.cells.length) column.groups.set(OTHER, others[place]!);
      fresh.push(column);
    }
    const begin = fresh[0]?.at;
    if (begin === undefined) return;
    const end = fresh[fresh.length - 1]!.at;
    const before = this.columns.filter((column) => column.at < begin);
    const after = this.columns.filter((column) => column.at > end);
    this.count(this.columns.slice(before.length, this.columns.length - after.length), -1);
    this.count(fresh, 1);
    const all = [...before, ...fresh, ...after];
    this.count(all.slice(0, Math.max(0, all.length - LONGEST)), -1);
    this.columns = all.slice(-LONGEST);
  }

  /** Drops columns that end before a time. */
  forgetBefore(ms: number): void {
    const first = this.columns.findIndex((column) => column.at + this.columnMs > ms);
    if (first <= 0) return;
    this.count(this.columns.slice(0, first), -1);
    this.columns = this.columns.slice(first);
  }

  private count(columns: Column[], sign: 1 | -1): void {
    for (const column of columns) {
      for (const cell of column.total.cells) {
        const known = this.buckets.get(cell.low);
        if (known) known.count += sign * cell.count;
        else this.buckets.set(cell.low, { ...cell, count: sign * cell.count });
      }
    }
  }

  /** Buckets that have some, the lowest first, with their counts over all columns. */
  spread(): Cell[] {
    return [...this.buckets.values()].filter((cell) => cell.count > 0).sort((one, other) => one.low - other.low);
  }

  /** When the last column that is whole ends. */
  end(): number {
    for (let place = this.columns.length - 1; place >= 0; place--) {
      const column = this.columns[place]!;
      if (column.state === 2) return column.at + this.columnMs;
    }
    return this.columns[0]?.at ?? 0;
  }

  /** The columns within a range. */
  within(from: number, until: number): Column[] {
    return this.columns.filter((column) => column.at + this.columnMs > from && column.at < until);
  }

  private summed: { of: Column[]; from: number; until: number; sums: { key: string; sum: number }[] } | undefined;

  /** The sum of each group within a range, largest first. */
  sums(from: number, until: number): { key: string; sum: number }[] {
    const before = this.summed;
    if (before && before.of === this.columns && before.from === from && before.until === until) return before.sums;
    const sums = new Map<string, number>();
    for (const column of this.within(from, until)) {
      for (const [key, part] of column.groups) sums.set(key, (sums.get(key) ?? 0) + part.sum);
    }
    const all = [...sums].map(([key, sum]) => ({ key, sum }));
    all.sort((one, other) => Number(one.key === OTHER) - Number(other.key === OTHER) || other.sum - one.sum);
    this.summed = { of: this.columns, from, until, sums: all };
    return all;
  }

  totalSum(from: number, until: number): number {
    return this.within(from, until).reduce((sum, column) => sum + column.total.sum, 0);
  }
}

const isSamePart = (one: Part, other: Part | undefined): boolean =>
  other !== undefined && one.sum === other.sum && one.cells.length === other.cells.length &&
  one.cells.every((cell, place) => cell.low === other.cells[place]!.low && cell.count === other.cells[place]!.count);

/** Whether two columns of one time are alike. */
function isSame(one: Column, other: Column): boolean {
  return one.state === other.state && one.groups.size === other.groups.size && isSamePart(one.total, other.total) &&
    [...one.groups].every(([key, part]) => isSamePart(part, other.groups.get(key)));
}

function parts(series: Series | undefined, answer: Answer): Part[] {
  const all: Part[] = [];
  for (let place = 0; place < answer.columns; place++) {
    const sum = series?.sums[place] ?? 0;
    all.push(sum ? { sum, cells: [] } : { ...EMPTY, cells: [] });
  }
  const cells = series?.cells ?? [];
  for (let at = 0; at + 2 < cells.length; at += 3) {
    const bucket = answer.buckets[cells[at + 1]!];
    const part = all[cells[at]!];
    if (bucket && part) part.cells.push({ low: bucket[0], high: bucket[1], count: cells[at + 2]! });
  }
  return all;
}

/** A value so that this part of the counts lies below it, from sorted cells. */
export function percentile(cells: Cell[], part: number): number {
  const sorted = [...cells].sort((one, other) => one.low - other.low);
  const total = sorted.reduce((sum, cell) => sum + cell.count, 0);
  let below = 0;
  for (const cell of sorted) {
    below += cell.count;
    if (below >= total * part) return cell.high;
  }
  return sorted[sorted.length - 1]?.high ?? 0;
}
