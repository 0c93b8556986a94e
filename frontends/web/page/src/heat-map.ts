// Heat maps: time to the right, values upwards, colour for how many.
//
// Counts are first summed up in rows of drawn cells, a column at a time: a bucket is spread over the
// rows that it overlaps, in proportion. Each layer (a group with a colour of its own, or all the
// rest) has its rows. How strong a cell is drawn tells its sum, by rank among all cells, by its
// logarithm, or in proportion; heat-painter.ts makes the picture.

import type { Normal, Rgb } from "./palettes";
import type { Cell, Column, Part } from "./samples";

export type Scale = "log" | "linear";

export interface Domain {
  low: number;
  high: number;
  scale: Scale;
}

/** A group with a colour of its own. */
export interface Layer {
  key: string;
  colour: Rgb;
}

/** Counts of one column by row, the lowest value first. */
export interface Grid {
  /** Of each layer one after the other, the rest last. */
  parts: Float32Array;
  total: Float32Array;
}

/** Where a value lies: 0 lowest, 1 highest. */
export function placeOf(domain: Domain, value: number): number {
  if (domain.scale === "linear") return (value - domain.low) / (domain.high - domain.low);
  const low = Math.log(Math.max(domain.low, 1));
  return (Math.log(Math.max(value, 1)) - low) / (Math.log(Math.max(domain.high, 2)) - low);
}

/** The value at a place. */
export function valueAt(domain: Domain, place: number): number {
  if (domain.scale === "linear") return domain.low + place * (domain.high - domain.low);
  const low = Math.log(Math.max(domain.low, 1));
  return Math.exp(low + place * (Math.log(Math.max(domain.high, 2)) - low));
}

/** The values that are drawn: all but the highest, of which `crop` is the part that is left out. */
export function domainOf(buckets: Cell[], scale: Scale, crop: number): Domain {
  if (!buckets.length) return { low: 1000, high: 1e9, scale };
  let left = buckets.reduce((sum, cell) => sum + cell.count, 0) * crop;
  let last = buckets.length - 1;
  while (last > 0 && buckets[last]!.count <= left) left -= buckets[last--]!.count;
  const high = buckets[last]!.high;
  if (scale === "linear") return { low: 0, high: Math.max(high * 1.02, 1), scale };
  const low = Math.max(buckets[0]!.low, 1);
  return { low: low / 1.3, high: Math.max(high * 1.3, low * 4), scale };
}

/** How much larger than needed a range of values may be before it shrinks, as a share of it. */
const SLACK = 0.25;

/** A range of values that moves seldom: the one before, while it has the new one and little more. */
export function steadied(before: Domain | undefined, now: Domain): Domain {
  if (!before || before.scale !== now.scale) return now;
  const [low, high] = [placeOf(before, now.low), placeOf(before, now.high)];
  return low >= -1e-9 && high <= 1 + 1e-9 && high - low >= 1 - SLACK ? before : now;
}

/** What all columns of a picture have in common. */
export interface Frame {
  rows: number;
  domain: Domain;
  layers: Layer[];
  excluded: ReadonlySet<string>;
}

/** Sums up a column. */
export function rasterize(column: Column, frame: Frame): Grid {
  const { rows, domain, layers, excluded } = frame;
  forget(domain, rows);
  const parts = new Float32Array((layers.length + 1) * rows);
  const total = new Float32Array(rows);
  const rest = layers.length * rows;
  if (!column.groups.size) spread(column.total, parts, rest, rows, domain);
  // Groups and the other ones add up to the total.
  for (const [key, part] of column.groups) {
    if (excluded.has(key)) continue;
    const place = layers.findIndex((layer) => layer.key === key);
    spread(part, parts, place < 0 ? rest : place * rows, rows, domain);
  }
  for (let at = 0; at < parts.length; at++) total[at % rows]! += parts[at]!;
  return { parts, total };
}

/** Rows of bounds of buckets, of which there are few and which come again in each column. */
const known = new Map<number, number>();
let knownFor = "";

function rowOf(domain: Domain, value: number, rows: number): number {
  const found = known.get(value);
  if (found !== undefined) return found;
  const row = placeOf(domain, value) * rows;
  if (known.size < 4096) known.set(value, row);
  return row;
}

function forget(domain: Domain, rows: number): void {
  const now = `${domain.scale} ${domain.low} ${domain.high} ${rows}`;
  if (now === knownFor) return;
  knownFor = now;
  known.clear();
}

/** Adds a part to the rows that begin at a place. */
function spread(part: Part, parts: Float32Array, begin: number, rows: number, domain: Domain): void {
  for (const cell of part.cells) {
    const low = rowOf(domain, cell.low, rows);
    const high = Math.max(rowOf(domain, cell.high, rows), low + 1e-6);
    if (high <= 0 || low >= rows) continue;
    const first = Math.max(0, Math.floor(low));
    const last = Math.min(rows - 1, Math.ceil(high) - 1);
    for (let y = first; y <= last; y++) {
      const overlap = Math.min(high, y + 1) - Math.max(low, y);
      parts[begin + y]! += (cell.count * overlap) / (high - low);
    }
  }
}

/** How strong each sum is drawn: a function from sums to 0..1. */
export function normalizer(totals: Float32Array[], normal: Normal): (value: number) => number {
  let length = 0;
  for (const total of totals) for (const value of total) if (value > 0) length++;
  const used = new Float32Array(length);
  for (const total of totals) for (const value of total) if (value > 0) used[--length] = value;
  used.sort();
  const most = used[used.length - 1] ?? 1;
  if (normal === "linear") return (value) => Math.min(1, value / most);
  if (normal === "log") return (value) => Math.min(1, Math.log1p(value) / Math.log1p(most));
  return (value) => {
    let [low, high] = [0, used.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (used[middle]! <= value) low = middle + 1;
      else high = middle;
    }
    return low / Math.max(1, used.length);
  };
}

/** Cells of columns whose values lie in a range: a bucket counts by the part that does. */
export function cellsWithin(columns: Column[], low: number, high: number, key?: string): Cell[] {
  const sums = new Map<number, Cell>();
  for (const column of columns) {
    const part = key === undefined ? column.total : column.groups.get(key);
    for (const cell of part?.cells ?? []) {
      const overlap = Math.min(cell.high, high) - Math.max(cell.low, low);
      if (overlap <= 0) continue;
      const count = (cell.count * overlap) / Math.max(cell.high - cell.low, 1e-9);
      const known = sums.get(cell.low);
      if (known) known.count += count;
      else sums.set(cell.low, { low: cell.low, high: cell.high, count });
    }
  }
  return [...sums.values()].sort((one, other) => one.low - other.low);
}
