// The plot of a row: which picture it is, upon which values, with cursor and box.

import { LEFT, type Plot, TOP, drawGaps, drawTimes, drawValues, innerHeight, innerWidth, prepare, xOf } from "./axes";
import { type Domain, type Frame, type Layer, domainOf, placeOf, steadied } from "./heat-map";
import { HeatPainter, type Look, type Strip, paintDifference, stripOf } from "./heat-painter";
import {
  type Counted, type Line, differenceDomain, differences, drawDifferences, drawLines, drawMirror, drawOverlay, drawStack,
  linesDomain, mirrorDomain,
} from "./line-chart";
import type { Row } from "./row";
import { type Cell, type Column, OTHER, type Samples } from "./samples";
import { valueOf } from "./units";

/** Pixels of a row of cells. */
const CELL_HEIGHT = 3;

export class RowPicture {
  /** The values that are drawn. */
  domain: Domain = { low: 1, high: 10, scale: "linear" };
  /** The field by whose unit they are told. */
  private unit: string | undefined;
  private readonly painter = new HeatPainter();
  private steady: { domain: Domain; shape: string } | undefined;

  constructor(private readonly row: Row) {}

  draw(columns: Column[]): void {
    const { row } = this;
    const { from, until } = row.range();
    const plot = prepare(row.canvas, row.size, from, until, row.host.isDark());
    const { samples, second } = row.source;
    const { view, combine } = row.state;
    const counted = this.counted(samples, row.state.statistic);
    const { context } = plot;
    context.save();
    // A column may begin before the shown time, and end behind it.
    context.beginPath();
    context.rect(LEFT, TOP, innerWidth(plot), innerHeight(plot));
    context.clip();
    drawGaps(plot, columns, samples.columnMs);
    if (row.state.second && combine === "minus" && view !== "mirror") this.drawMinus(plot, columns, counted);
    else if (view === "mirror") {
      this.domain = mirrorDomain(columns, samples.columnMs);
      drawMirror(plot, columns, samples.columnMs, this.domain);
      this.unit = undefined;
    } else if (samples.numeric && view === "plot") this.drawHeatMap(plot, columns);
    else this.drawLinesOf(plot, columns, counted);
    if (row.state.second && combine === "over") {
      const unit = row.unit(row.state.second, second.measure);
      drawOverlay(plot, second.within(from, until), this.counted(second, row.state.second), (value) => valueOf(unit, value));
    }
    context.restore();
    drawValues(plot, this.domain, this.unit);
    if (columns.some((column) => column.state > 0) && columns.every((column) => column.total.sum === 0)) this.say(plot, "none in this time");
    drawTimes(plot);
    this.drawCursor(plot);
    this.drawBox(plot);
  }

  private say(plot: Plot, text: string): void {
    plot.context.font = "12px system-ui, sans-serif";
    plot.context.textAlign = "center";
    plot.context.fillStyle = plot.isDark ? "#b9c0ca" : "#454b54";
    plot.context.fillText(text, LEFT + innerWidth(plot) / 2, TOP + innerHeight(plot) / 2);
  }

  private counted(samples: Samples, statistic: string): Counted {
    return { columnMs: samples.columnMs, isMean: this.row.source.isMean(statistic) };
  }

  private frame(plot: Plot, samples: Samples): Frame {
    const { state, source } = this.row;
    const buckets = samples.spread();
    const others = [source.reference, state.second && state.combine === "minus" ? source.second : undefined];
    const all = others.reduce((sum: Cell[], other) => (other ? added(sum, other.spread()) : sum), buckets);
    const found = domainOf(all, state.scale, state.crop);
    const shape = JSON.stringify([state.statistic, state.chips, state.numeric, state.scale, state.crop, samples.columnMs, plot.until - plot.from]);
    const domain = steadied(this.steady?.shape === shape ? this.steady.domain : undefined, found);
    this.steady = { domain, shape };
    this.domain = state.values ? { low: state.values[0], high: state.values[1], scale: state.scale } : domain;
    const rows = Math.max(20, Math.floor(innerHeight(plot) / CELL_HEIGHT));
    return { rows, domain: this.domain, layers: [], excluded: new Set(state.excluded) };
  }

  private look(plot: Plot): Look {
    const { palette, normal } = this.row.state;
    return { palette, normal, isDark: plot.isDark };
  }

  private drawHeatMap(plot: Plot, columns: Column[]): void {
    const { row } = this;
    const { state, source } = row;
    const { from, until } = plot;
    const isTinted = state.tint && source.by() !== "cause" && source.causes.columns.length > 0;
    const drawn = isTinted ? source.causes : source.samples;
    const frame = this.frame(plot, drawn);
    const strip = stripOf(isTinted ? drawn.within(from, until) : columns, drawn.columnMs, from, until);
    if (source.reference) {
      const before = source.reference.within(from, until);
      drawGaps(plot, before, drawn.columnMs);
      const others = stripOf(before, drawn.columnMs, from, until);
      this.put(plot, strip, paintDifference(strip, others, frame, this.look(plot)));
    } else {
      frame.layers = this.layers(drawn, from, until);
      this.put(plot, strip, this.painter.paint(strip, frame, this.look(plot)));
    }
    this.unit = source.samples.numeric;
  }

  /** Lays a picture of columns where their times are. */
  private put(plot: Plot, strip: Strip, picture: HTMLCanvasElement): void {
    const { context } = plot;
    const [x0, x1] = [xOf(plot, strip.from), xOf(plot, strip.from + strip.columns.length * strip.columnMs)];
    context.imageSmoothingEnabled = (x1 - x0) * (window.devicePixelRatio || 1) < picture.width;
    context.drawImage(picture, x0, TOP, x1 - x0, innerHeight(plot));
  }

  /** The groups that have colours: those that are highlighted, or all of them. */
  private layers(samples: Samples, from: number, until: number): Layer[] {
    const { row } = this;
    const { tint, rainbow, highlighted } = row.state;
    const keys = tint || rainbow ? samples.sums(from, until).map((one) => one.key) : highlighted;
    // In an order that stays while sums change.
    return [...keys].filter((key) => key !== OTHER).sort().map((key) => ({ key, colour: row.colourOf(key) }));
  }

  private lines(keys: string[]): Line[] {
    return keys.filter((key) => key !== OTHER && !this.row.state.excluded.includes(key)).map((key) => ({ key, colour: this.row.colourOf(key) }));
  }

  private drawLinesOf(plot: Plot, columns: Column[], counted: Counted): void {
    const { row } = this;
    const { source, state } = row;
    this.domain = linesDomain(columns, counted);
    if (source.reference) {
      const other = linesDomain(source.reference.columns, counted);
      this.domain.high = Math.max(this.domain.high, other.high);
    }
    const keys = source.samples.sums(plot.from, plot.until).map((one) => one.key);
    if (state.view === "stack") drawStack(plot, columns, counted, this.domain, this.lines(keys));
    else drawLines(plot, columns, counted, this.domain, this.lines(state.rainbow ? keys : state.highlighted));
    if (source.reference) {
      const before = source.reference.within(plot.from, plot.until);
      drawOverlay(plot, before, counted, (value) => valueOf(row.unit(), value), this.domain);
    }
    this.unit = row.unit();
  }

  /** What the first statistic has more than the second. */
  private drawMinus(plot: Plot, columns: Column[], counted: Counted): void {
    const { samples, second } = this.row.source;
    const others = second.within(plot.from, plot.until);
    if (samples.numeric && second.numeric) {
      const frame = this.frame(plot, samples);
      const of = (all: Column[]): Strip => stripOf(all, samples.columnMs, plot.from, plot.until);
      this.put(plot, of(columns), paintDifference(of(columns), of(others), frame, this.look(plot)));
      this.unit = samples.numeric;
      return;
    }
    const found = differences(columns, counted, others, this.counted(second, this.row.state.second));
    this.domain = differenceDomain(found);
    drawDifferences(plot, found, samples.columnMs, this.domain);
    this.unit = this.row.unit();
  }

  private drawCursor(plot: Plot): void {
    const { pointed, cursor, canvas } = this.row;
    const at = pointed ?? cursor?.ms;
    if (at === undefined || at < plot.from || at > plot.until) return;
    plot.context.fillStyle = plot.isDark ? "#ffffff80" : "#00000070";
    plot.context.fillRect(xOf(plot, at), TOP, 1, innerHeight(plot));
    if (cursor && document.activeElement === canvas && pointed === undefined) {
      const y = TOP + innerHeight(plot) * (1 - placeOf(this.domain, cursor.value));
      plot.context.fillRect(LEFT, y, innerWidth(plot), 1);
    }
  }

  private drawBox(plot: Plot): void {
    const { box } = this.row.boxes;
    if (!box) return;
    const inside = (ms: number): number => xOf(plot, Math.max(plot.from, Math.min(plot.until, ms)));
    const [x0, x1] = [inside(box.from), inside(box.until)];
    if (x1 <= x0) return;
    const y = (value: number): number => TOP + innerHeight(plot) * (1 - Math.max(0, Math.min(1, placeOf(this.domain, value))));
    const [y0, y1] = [y(box.high), y(box.low)];
    plot.context.strokeStyle = plot.isDark ? "#ffffff" : "#000000";
    plot.context.lineWidth = 1;
    plot.context.setLineDash([4, 3]);
    plot.context.strokeRect(x0 + 0.5, y0 + 0.5, Math.max(2, x1 - x0), Math.max(2, y1 - y0));
    plot.context.setLineDash([]);
  }
}

/** Buckets of both, the lowest first. */
function added(some: Cell[], more: Cell[]): Cell[] {
  const all = new Map(some.map((cell) => [cell.low, { ...cell }]));
  for (const cell of more) {
    const known = all.get(cell.low);
    if (known) known.count += cell.count;
    else all.set(cell.low, { ...cell });
  }
  return [...all.values()].sort((one, other) => one.low - other.low);
}
