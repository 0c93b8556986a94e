// Heat maps: time to the right, values upwards, colour for how many.
//
// Counts are first summed up in a grid of drawn cells: a bucket is spread over the rows that it
// overlaps, in proportion. Each layer (a group with a colour of its own, or all the rest) has a
// grid. The colour of a cell is that of its layers, mixed by their shares; how strong it is tells
// the sum, by rank among all cells, by its logarithm, or in proportion.

import { type Normal, type Palette, type Rgb, shade, tone } from "./palettes";
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

export interface Raster {
  columns: number;
  rows: number;
  /** A grid for each layer, the rest last; row by row from the lowest value. */
  grids: Float32Array[];
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
export function domainOf(columns: Column[], scale: Scale, crop: number): Domain {
  const cells = new Map<number, Cell>();
  let total = 0;
  for (const column of columns) {
    for (const cell of column.total.cells) {
      const known = cells.get(cell.low);
      if (known) known.count += cell.count;
      else cells.set(cell.low, { ...cell });
      total += cell.count;
    }
  }
  const sorted = [...cells.values()].sort((one, other) => one.low - other.low);
  if (!sorted.length) return { low: 1000, high: 1e9, scale };
  let left = total * crop;
  let last = sorted.length - 1;
  while (last > 0 && sorted[last]!.count <= left) left -= sorted[last--]!.count;
  const high = sorted[last]!.high;
  if (scale === "linear") return { low: 0, high: Math.max(high * 1.02, 1), scale };
  const low = Math.max(sorted[0]!.low, 1);
  return { low: low / 1.3, high: Math.max(high * 1.3, low * 4), scale };
}

/** Sums up columns in a grid. */
export function rasterize(
  columns: Column[],
  columnMs: number,
  from: number,
  until: number,
  rows: number,
  domain: Domain,
  layers: Layer[],
  excluded: ReadonlySet<string>,
): Raster {
  const width = Math.max(1, Math.round((until - from) / columnMs));
  forget(domain, rows);
  const places = new Map(layers.map((layer, place) => [layer.key, place]));
  const grids = Array.from({ length: layers.length + 1 }, () => new Float32Array(width * rows));
  const total = new Float32Array(width * rows);
  for (const column of columns) {
    const x = Math.floor((column.at - from) / columnMs + 0.5);
    if (x < 0 || x >= width) continue;
    if (!column.groups.size) {
      spread(column.total, grids[layers.length]!, x, width, rows, domain);
      continue;
    }
    // Groups and the other ones add up to the total.
    for (const [key, part] of column.groups) {
      if (excluded.has(key)) continue;
      spread(part, grids[places.get(key) ?? layers.length]!, x, width, rows, domain);
    }
  }
  for (const grid of grids) {
    for (let at = 0; at < total.length; at++) total[at]! += grid[at]!;
  }
  return { columns: width, rows, grids, total };
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

function spread(
  part: Part,
  grid: Float32Array,
  x: number,
  width: number,
  rows: number,
  domain: Domain,
): void {
  for (const cell of part.cells) {
    const low = rowOf(domain, cell.low, rows);
    const high = Math.max(rowOf(domain, cell.high, rows), low + 1e-6);
    if (high <= 0 || low >= rows) continue;
    const first = Math.max(0, Math.floor(low));
    const last = Math.min(rows - 1, Math.ceil(high) - 1);
    for (let y = first; y <= last; y++) {
      const overlap = Math.min(high, y + 1) - Math.max(low, y);
      grid[y * width + x]! += (cell.count * overlap) / (high - low);
    }
  }
}

/** How strong each sum is drawn: a function from sums to 0..1. */
export function normalizer(total: Float32Array, normal: Normal): (value: number) => number {
  const used = total.filter((value) => value > 0).sort();
  const most = used[used.length - 1] ?? 1;
  if (normal === "linear") return (value) => value / most;
  if (normal === "log") return (value) => Math.log1p(value) / Math.log1p(most);
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

export interface Paint {
  palette: Palette;
  normal: Normal;
  isDark: boolean;
  layers: Layer[];
}

/** So many strengths of a colour are told apart. */
const LEVELS = 96;

/** A colour from faint to strong: red, green and blue for each level. */
function ladder(colour: (at: number) => Rgb): Uint8ClampedArray {
  const steps = new Uint8ClampedArray(3 * LEVELS);
  for (let level = 0; level < LEVELS; level++) steps.set(colour(Math.max(0.05, (level + 1) / LEVELS)), 3 * level);
  return steps;
}

const levelOf = (strength: number): number => 3 * Math.min(LEVELS - 1, Math.floor(strength * LEVELS));

/** The picture of a grid, a pixel for each cell. */
export function paint(raster: Raster, how: Paint): ImageData {
  const { columns, rows, grids, total } = raster;
  const { layers, isDark } = how;
  const image = new ImageData(columns, rows);
  const strength = normalizer(total, how.normal);
  const plain = ladder((at) => shade(how.palette, at, isDark));
  const grey = ladder((at) => tone([128, 128, 128], at, isDark));
  const ladders = layers.map((layer) => ladder((at) => tone(layer.colour, at, isDark)));
  for (let at = 0; at < total.length; at++) {
    const sum = total[at]!;
    if (sum <= 0) continue;
    const level = levelOf(strength(sum));
    const rest = grids[layers.length]![at]!;
    const steps = rest < sum ? grey : plain;
    let red = steps[level]! * rest;
    let green = steps[level + 1]! * rest;
    let blue = steps[level + 2]! * rest;
    for (let place = 0; place < ladders.length; place++) {
      const part = grids[place]![at]!;
      if (part <= 0) continue;
      const own = ladders[place]!;
      red += own[level]! * part;
      green += own[level + 1]! * part;
      blue += own[level + 2]! * part;
    }
    put(image, at, red / sum, green / sum, blue / sum);
  }
  return image;
}

/** The picture of what one has more (orange) and less (blue) than another. */
export function paintDifference(now: Raster, before: Raster, normal: Normal, isDark: boolean): ImageData {
  const image = new ImageData(now.columns, now.rows);
  const differences = now.total.map((value, at) => value - (before.total[at] ?? 0));
  const strength = normalizer(differences.map(Math.abs), normal);
  const more = ladder((at) => tone([235, 105, 10], at, isDark));
  const fewer = ladder((at) => tone([30, 100, 225], at, isDark));
  differences.forEach((difference, at) => {
    if (Math.abs(difference) < 1e-3) return;
    const steps = difference > 0 ? more : fewer;
    const level = levelOf(strength(Math.abs(difference)));
    put(image, at, steps[level]!, steps[level + 1]!, steps[level + 2]!);
  });
  return image;
}

/** Colours a cell; the grid begins with the lowest row, the picture with the highest. */
function put(image: ImageData, cell: number, red: number, green: number, blue: number): void {
  const row = Math.floor(cell / image.width);
  const at = 4 * ((image.height - 1 - row) * image.width + (cell % image.width));
  image.data[at] = red;
  image.data[at + 1] = green;
  image.data[at + 2] = blue;
  image.data[at + 3] = 255;
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
