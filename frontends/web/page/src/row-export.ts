// What a row shows, as a file: CSV, JSON, or the picture.

import { menu } from "./dialogs";
import { h } from "./dom";
import { css } from "./palettes";
import type { Row } from "./row";
import { OTHER, type Part } from "./samples";
import { dateTime, rate } from "./units";
import { predicateOf } from "./worksheet";

const nameOf = (key: string): string => (key === OTHER ? "other" : key);

/** A menu of the forms. */
export function exportMenu(row: Row, event: MouseEvent): void {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  menu(box.left, box.bottom, "export", [
    { text: "CSV", run: () => saveCsv(row) },
    { text: "JSON", run: () => save(row, "json", new Blob([`${JSON.stringify(jsonOf(row), null, 1)}\n`], { type: "application/json" })) },
    { text: "picture (PNG)", run: () => void savePicture(row) },
  ]);
}

/** A text as a field of CSV; one that a spreadsheet would run begins with an apostrophe. */
function quoted(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}

/** A line for each column and group, and for each of its buckets. */
export function csvOf(row: Row): string {
  const { from, until } = row.range();
  const lines = [["time_ms", "state", "group", "low", "high", "count", "sum"].join(",")];
  for (const column of row.source.samples.within(from, until)) {
    const series: [string, Part][] = [["", column.total], ...column.groups];
    for (const [key, part] of series) {
      const name = quoted(nameOf(key));
      // What was not collected is not zero.
      lines.push([column.at, column.state, name, "", "", "", column.state ? part.sum : ""].join(","));
      for (const cell of part.cells) lines.push([column.at, column.state, name, cell.low, cell.high, cell.count, ""].join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

export function saveCsv(row: Row): void {
  save(row, "csv", new Blob([csvOf(row)], { type: "text/csv" }));
}

/** What is shown, with what was asked. */
export function jsonOf(row: Row): object {
  const { from, until } = row.range();
  const { samples } = row.source;
  const filter = predicateOf(row.state.chips);
  return {
    statement: samples.statement, title: row.sentence(), ...(filter ? { filter } : {}), source: samples.source, measure: samples.measure,
    by: samples.by, numeric: samples.numeric, column_ms: samples.columnMs, dropped: samples.dropped,
    columns: samples.within(from, until).map((column) => ({
      at_ms: column.at, state: column.state, total: column.total,
      groups: Object.fromEntries([...column.groups].map(([key, part]) => [nameOf(key), part])),
    })),
  };
}

const MARGIN = 12;
const LINE = 18;
const PANEL = 260;

/** The plot with its title and its components. */
async function savePicture(row: Row): Promise<void> {
  row.draw();
  const { canvas } = row;
  const scale = window.devicePixelRatio || 1;
  const { from, until } = row.range();
  const sums = row.source.by() ? row.source.samples.sums(from, until) : [];
  const total = sums.reduce((sum, one) => sum + one.sum, 0);
  const height = Math.max(canvas.clientHeight, sums.length * LINE) + 3 * LINE + MARGIN;
  const picture = h("canvas", { width: Math.round((canvas.clientWidth + PANEL + MARGIN) * scale), height: Math.round(height * scale) });
  const context = picture.getContext("2d")!;
  context.scale(scale, scale);
  const isDark = row.host.isDark();
  const [paper, ink] = isDark ? ["#14171c", "#e7eaee"] : ["#ffffff", "#1b2027"];
  context.fillStyle = paper;
  context.fillRect(0, 0, picture.width, picture.height);
  context.fillStyle = ink;
  context.font = "600 14px system-ui, sans-serif";
  context.fillText(row.sentence(), MARGIN, LINE);
  context.font = "12px system-ui, sans-serif";
  context.fillText(`${dateTime(from)} – ${dateTime(until)}`, MARGIN, 2 * LINE);
  context.drawImage(canvas, PANEL, 2.5 * LINE, canvas.clientWidth, canvas.clientHeight);
  sums.forEach(({ key, sum }, place) => {
    const y = 3.3 * LINE + place * LINE;
    context.fillStyle = key === OTHER ? paper : css(row.colourOf(key));
    context.fillRect(MARGIN, y - 9, 10, 10);
    context.fillStyle = ink;
    context.fillText(`${nameOf(key).slice(-28)}  ${rate((100 * sum) / Math.max(total, 1))} %`, MARGIN + 16, y);
  });
  const blob = await new Promise<Blob | null>((done) => picture.toBlob(done, "image/png"));
  if (blob) save(row, "png", blob);
}

function save(row: Row, ending: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: `${row.state.statistic}-${Math.round(row.range().from / 1000)}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
