// The picture of a heat map, which moves with the time: what was painted is shifted, and only the
// columns that are new are summed up and painted.
//
// The colour of a cell is that of its layers, mixed by their shares. The strength of all cells, by
// rank, is found anew now and then: until then new cells are ranked among those before.

import { type Frame, type Grid, normalizer, rasterize } from "./heat-map";
import { type Normal, type Palette, type Rgb, shade, tone } from "./palettes";
import type { Column } from "./samples";

export interface Look {
  palette: Palette;
  normal: Normal;
  isDark: boolean;
}

/** The columns of a picture, without gaps: what is missing is undefined. */
export interface Strip {
  /** When the first column begins. */
  from: number;
  columnMs: number;
  columns: (Column | undefined)[];
}

/** So many strengths of a colour are told apart. */
const LEVELS = 96;
/** How long ranks hold. */
const RANKED_MS = 20_000;
/** Columns of the grids that are kept beyond those of the picture. */
const SPARE = 64;

/** Puts columns in a strip that begins at a time and ends beyond another. */
export function stripOf(columns: Column[], columnMs: number, from: number, until: number): Strip {
  const some = columns[0]?.at ?? 0;
  const start = some - Math.ceil((some - from) / columnMs) * columnMs;
  // As many wherever in a column the time begins, so that a picture can be shifted.
  const length = Math.ceil((until - from) / columnMs) + 1;
  const strip: Strip = { from: start, columnMs, columns: Array<Column | undefined>(length).fill(undefined) };
  for (const column of columns) {
    const place = Math.round((column.at - start) / columnMs);
    if (place >= 0 && place < length) strip.columns[place] = column;
  }
  return strip;
}

/** A colour from faint to strong: red, green and blue for each level. */
function ladder(colour: (at: number) => Rgb): Uint8ClampedArray {
  const steps = new Uint8ClampedArray(3 * LEVELS);
  for (let level = 0; level < LEVELS; level++) steps.set(colour(Math.max(0.05, (level + 1) / LEVELS)), 3 * level);
  return steps;
}

const levelOf = (strength: number): number => 3 * Math.min(LEVELS - 1, Math.floor(strength * LEVELS));

interface Ladders {
  plain: Uint8ClampedArray;
  grey: Uint8ClampedArray;
  layers: Uint8ClampedArray[];
}

export class HeatPainter {
  private readonly canvas = document.createElement("canvas");
  private readonly context = this.canvas.getContext("2d", { willReadFrequently: true })!;
  private key = "";
  private from = 0;
  private painted: (Column | undefined)[] = [];
  private grids = new Map<Column, Grid>();
  private ladders: Ladders = { plain: new Uint8ClampedArray(), grey: new Uint8ClampedArray(), layers: [] };
  private strength: (sum: number) => number = () => 1;
  private rankedAt = 0;

  /** The picture, a pixel for each cell. */
  paint(strip: Strip, frame: Frame, look: Look): HTMLCanvasElement {
    const { columns, columnMs, from } = strip;
    const { layers, domain, rows, excluded } = frame;
    const key = JSON.stringify([rows, domain, layers, [...excluded], look, columnMs, columns.length]);
    const steps = Math.round((from - this.from) / columnMs);
    const isNew = key !== this.key;
    if (isNew) this.begin(key, columns.length, frame, look);
    else this.shift(steps, columns.length);
    this.from = from;
    const changed: number[] = [];
    columns.forEach((column, x) => {
      if (column !== this.painted[x]) changed.push(x);
    });
    for (const x of changed) this.gridOf(columns[x], frame);
    if (isNew || changed.length > columns.length / 4 || (changed.length && Date.now() - this.rankedAt > RANKED_MS)) {
      this.rank(columns, look.normal);
      this.paintAll(columns, frame);
    } else for (const x of changed) this.paintOne(columns[x], x, frame);
    this.painted = columns;
    return this.canvas;
  }

  private begin(key: string, width: number, frame: Frame, look: Look): void {
    this.key = key;
    this.grids.clear();
    this.painted = [];
    this.canvas.width = width;
    this.canvas.height = frame.rows;
    this.ladders = {
      plain: ladder((at) => shade(look.palette, at, look.isDark)),
      grey: ladder((at) => tone([128, 128, 128], at, look.isDark)),
      layers: frame.layers.map((layer) => ladder((at) => tone(layer.colour, at, look.isDark))),
    };
  }

  private shift(steps: number, width: number): void {
    if (!steps) return;
    if (steps < 0 || steps >= width) {
      this.painted = [];
      this.context.clearRect(0, 0, width, this.canvas.height);
      return;
    }
    this.context.globalCompositeOperation = "copy";
    this.context.drawImage(this.canvas, -steps, 0);
    this.context.globalCompositeOperation = "source-over";
    this.painted = this.painted.slice(steps);
  }

  private gridOf(column: Column | undefined, frame: Frame): Grid | undefined {
    if (!column) return undefined;
    let grid = this.grids.get(column);
    if (!grid) {
      grid = rasterize(column, frame);
      this.grids.set(column, grid);
    }
    return grid;
  }

  private rank(columns: (Column | undefined)[], normal: Normal): void {
    if (this.grids.size > columns.length + SPARE) {
      const shown = new Set(columns);
      for (const column of this.grids.keys()) if (!shown.has(column)) this.grids.delete(column);
    }
    const totals = columns.map((column) => (column ? this.grids.get(column)?.total : undefined));
    this.strength = normalizer(totals.filter((total) => total !== undefined), normal);
    this.rankedAt = Date.now();
  }

  private paintAll(columns: (Column | undefined)[], frame: Frame): void {
    const image = new ImageData(columns.length, frame.rows);
    columns.forEach((column, x) => {
      const grid = this.gridOf(column, frame);
      if (grid) mixInto(image, x, grid, this.ladders, this.strength);
    });
    this.context.putImageData(image, 0, 0);
  }

  private paintOne(column: Column | undefined, x: number, frame: Frame): void {
    const image = new ImageData(1, frame.rows);
    const grid = this.gridOf(column, frame);
    if (grid) mixInto(image, 0, grid, this.ladders, this.strength);
    this.context.putImageData(image, x, 0);
  }
}

/** Colours a column: each cell by the shares of its layers. */
function mixInto(image: ImageData, x: number, grid: Grid, ladders: Ladders, strength: (sum: number) => number): void {
  const { parts, total } = grid;
  const rows = total.length;
  const rest = ladders.layers.length * rows;
  for (let y = 0; y < rows; y++) {
    const sum = total[y]!;
    if (sum <= 0) continue;
    const level = levelOf(strength(sum));
    const others = parts[rest + y]!;
    const steps = others < sum ? ladders.grey : ladders.plain;
    let red = steps[level]! * others;
    let green = steps[level + 1]! * others;
    let blue = steps[level + 2]! * others;
    for (let place = 0; place < ladders.layers.length; place++) {
      const part = parts[place * rows + y]!;
      if (part <= 0) continue;
      const own = ladders.layers[place]!;
      red += own[level]! * part;
      green += own[level + 1]! * part;
      blue += own[level + 2]! * part;
    }
    put(image, x, y, red / sum, green / sum, blue / sum);
  }
}

/** The picture of what one has more (orange) and less (blue) than another. */
export function paintDifference(now: Strip, before: Strip, frame: Frame, look: Look): HTMLCanvasElement {
  const { rows } = frame;
  const differences = now.columns.map((column, x) => {
    const both = new Float32Array(rows);
    const other = before.columns[x];
    // What was not collected on one side is no difference.
    if (!column || !other || column.state === 0 || other.state === 0) return both;
    const [plus, minus] = [rasterize(column, frame).total, rasterize(other, frame).total];
    return both.map((_, y) => plus[y]! - minus[y]!);
  });
  const strength = normalizer(differences.map((column) => column.map(Math.abs)), look.normal);
  const more = ladder((at) => tone([235, 105, 10], at, look.isDark));
  const fewer = ladder((at) => tone([30, 100, 225], at, look.isDark));
  const image = new ImageData(now.columns.length, rows);
  differences.forEach((column, x) => column.forEach((difference, y) => {
    if (Math.abs(difference) < 1e-3) return;
    const steps = difference > 0 ? more : fewer;
    const level = levelOf(strength(Math.abs(difference)));
    put(image, x, y, steps[level]!, steps[level + 1]!, steps[level + 2]!);
  }));
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = rows;
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas;
}

/** Colours a cell; rows begin with the lowest, the picture with the highest. */
function put(image: ImageData, x: number, y: number, red: number, green: number, blue: number): void {
  const at = 4 * ((image.height - 1 - y) * image.width + x);
  image.data[at] = red;
  image.data[at + 1] = green;
  image.data[at + 2] = blue;
  image.data[at + 3] = 255;
}
