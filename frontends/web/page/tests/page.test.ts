// What the page computes, without a browser: pictures, sums, worksheets.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Answer, Series } from "../src/contract";
import { cellsWithin, domainOf, normalizer, placeOf, rasterize, steadied, valueAt } from "../src/heat-map";
import { thresholdOf } from "../src/alerts-card";
import { clusters } from "../src/event-strip";
import { stripOf } from "../src/heat-painter";
import { differences, hitsAndMisses } from "../src/line-chart";
import { groupColour, shade } from "../src/palettes";
import { OTHER, Samples, percentile } from "../src/samples";
import { bytes, duration, share, span } from "../src/units";
import { TEMPLATES, decode, encode, parse, predicateOf, statementOf } from "../src/worksheet";

const X = [
  "#......#",
  ".#....#.",
  "..#..#..",
  "...##...",
  "...##...",
  "..#..#..",
  ".#....#.",
  "#......#",
];

function answer(some: Partial<Answer>, columns: number): Answer {
  const empty: Series = { sums: Array<number>(columns).fill(0), cells: [] };
  return {
    statement: "", title: "", source: "recorder", measure: "operations", from_ms: 5000, column_ms: 1000, columns,
    states: Array<number>(columns).fill(2), dropped: 0, by: [], numeric: "latency", buckets: [], total: empty,
    groups: [], other: empty, keys_found: 0, unranked: 0, ...some,
  };
}

/** An answer that draws a picture: a bucket for each line, from the lowest. */
function drawing(picture: string[]): Answer {
  const columns = picture[0]!.length;
  const buckets = picture.map((_, row) => [64 * 2 ** row, 64 * 2 ** (row + 1)] as [number, number]);
  const sums = Array<number>(columns).fill(0);
  const cells: number[] = [];
  picture.forEach((line, row) => {
    [...line].forEach((sign, column) => {
      if (sign !== "#") return;
      cells.push(column, picture.length - 1 - row, 3);
      sums[column]! += 3;
    });
  });
  return answer({ buckets, total: { sums, cells } }, columns);
}

test("a known bitmap of operations is drawn as that picture", () => {
  const samples = new Samples();
  samples.reset(drawing(X));
  const domain = { low: 64, high: 64 * 2 ** 8, scale: "log" as const };
  const frame = { rows: 8, domain, layers: [], excluded: new Set<string>() };
  const grids = stripOf(samples.columns, 1000, 5000, 13000).columns.slice(0, 8).map((column) => rasterize(column!, frame).total);
  const drawn = X.map((_, row) => grids.map((grid) => (grid[7 - row]! > 0.5 ? "#" : ".")).join(""));
  assert.deepEqual(drawn, X);
  const sum = grids.reduce((all, grid) => grid.reduce((more, one) => more + one, all), 0);
  assert.ok(Math.abs(sum - 3 * 16) < 1e-3, `${sum}`);
});

test("a bucket is spread over the rows that it overlaps", () => {
  const samples = new Samples();
  samples.reset(answer({ buckets: [[0, 100]], total: { sums: [8], cells: [0, 0, 8] } }, 1));
  const domain = { low: 0, high: 200, scale: "linear" as const };
  const grid = rasterize(samples.columns[0]!, { rows: 4, domain, layers: [], excluded: new Set() });
  assert.deepEqual([...grid.total], [4, 4, 0, 0]);
});

test("layers, the rest and what is excluded add up", () => {
  const series = (counts: number[]): Series => ({ sums: [counts[0]! + counts[1]!], cells: [0, 0, counts[0]!, 0, 1, counts[1]!] });
  const group = (key: string, counts: number[]) => ({ key: [key], ids: [key], sum: 0, series: series(counts) });
  const samples = new Samples();
  samples.reset(answer({
    by: ["client"], buckets: [[1, 2], [2, 4]], total: series([10, 10]),
    groups: [group("a", [4, 1]), group("b", [2, 2])], other: series([4, 7]),
  }, 1));
  const domain = { low: 1, high: 4, scale: "log" as const };
  const layers = [{ key: "a", colour: groupColour("a", 0) }];
  const grid = rasterize(samples.columns[0]!, { rows: 2, domain, layers, excluded: new Set(["b"]) });
  assert.deepEqual([...grid.parts], [4, 1, 4, 7]);
  assert.deepEqual([...grid.total], [8, 8]);
  assert.deepEqual(samples.sums(5000, 6000).map((one) => one.key), ["a", "b", OTHER]);
});

test("news replace the open column, and old columns go", () => {
  const samples = new Samples();
  const of = (from: number, sums: number[], states: number[]): Answer =>
    answer({ from_ms: from, states, total: { sums, cells: [] } }, sums.length);
  samples.reset(of(5000, [1, 2, 3], [2, 2, 1]));
  assert.equal(samples.end(), 7000);
  samples.join(of(7000, [9, 4], [2, 1]));
  assert.deepEqual(samples.columns.map((one) => one.total.sum), [1, 2, 9, 4]);
  samples.forgetBefore(7000);
  assert.deepEqual(samples.columns.map((one) => one.at), [7000, 8000]);
});

test("columns that are told again as they were stay those that they are", () => {
  const samples = new Samples();
  const of = (count: number): Answer => answer({ buckets: [[64, 128]], total: { sums: [3, count], cells: [0, 0, 3, 1, 0, count] } }, 2);
  samples.reset(of(4));
  const before = samples.columns;
  samples.reset(of(5));
  assert.equal(samples.columns[0], before[0]);
  assert.notEqual(samples.columns[1], before[1]);
  assert.deepEqual(samples.spread().map(({ count }) => count), [8]);
});

test("counts of buckets follow the columns that are held", () => {
  const samples = new Samples();
  const of = (from: number, counts: number[]): Answer =>
    answer({ from_ms: from, buckets: [[64, 128], [128, 256]], total: { sums: counts, cells: counts.flatMap((count, column) => [column, column % 2, count]) } }, counts.length);
  samples.reset(of(5000, [1, 2, 3]));
  samples.join(of(7000, [9, 4]));
  assert.deepEqual(samples.spread().map(({ low, count }) => [low, count]), [[64, 10], [128, 6]]);
  samples.forgetBefore(7000);
  assert.deepEqual(samples.spread().map(({ low, count }) => [low, count]), [[64, 9], [128, 4]]);
  samples.clear();
  assert.deepEqual(samples.spread(), []);
});

test("columns lie where their times are, and what is missing is a gap", () => {
  const samples = new Samples();
  samples.reset(answer({ from_ms: 5000, total: { sums: [1, 2], cells: [] } }, 2));
  const strip = stripOf(samples.columns, 1000, 3500, 8200);
  assert.equal(strip.from, 3000);
  assert.deepEqual(strip.columns.map((column) => column?.total.sum ?? 0), [0, 0, 1, 2, 0, 0]);
});

test("events that would lie upon each other are one button", () => {
  const mark = (at_ms: number) => ({ at_ms, kind: "history", pool: "tank", text: "" });
  const found = clusters([mark(50), mark(0), mark(10), mark(19), mark(20)], (ms) => ms);
  assert.deepEqual(found.map((marks) => marks.map((one) => one.at_ms)), [[0, 10, 19], [20], [50]]);
});

test("thresholds are numbers, or times in nanoseconds", () => {
  assert.equal(thresholdOf("10ms"), 1e7);
  assert.equal(thresholdOf(" 0.5 "), 0.5);
  assert.equal(thresholdOf("2s"), 2e9);
  for (const text of ["", "ms", "-1", "1 h", "1e3"]) assert.equal(thresholdOf(text), undefined, text);
});

test("a range of values stays while it fits", () => {
  const of = (low: number, high: number) => ({ low, high, scale: "linear" as const });
  const before = of(0, 100);
  assert.equal(steadied(before, of(0, 90)), before);
  assert.deepEqual(steadied(before, of(0, 101)), of(0, 101));
  assert.deepEqual(steadied(before, of(0, 50)), of(0, 50));
  assert.deepEqual(steadied(before, { ...of(0, 90), scale: "log" }).scale, "log");
});

test("a difference of two statistics is of columns that both have", () => {
  const column = (at: number, sum: number, state = 2) => ({ at, state, total: { sum, cells: [] }, groups: new Map() });
  const counted = { columnMs: 2000, isMean: false };
  const found = differences([column(0, 10), column(2000, 4), column(4000, 8)], counted, [column(0, 4), column(2000, 6, 0)], counted);
  assert.deepEqual(found.map((one) => [one.total.sum, one.state]), [[3, 2], [-1, 0], [0, 0]]);
});

test("a scale finds its way back, and crops what is rare and high", () => {
  for (const scale of ["log", "linear"] as const) {
    const domain = { low: 10, high: 1e6, scale };
    for (const value of [10, 999, 123456, 1e6]) assert.ok(Math.abs(valueAt(domain, placeOf(domain, value)) - value) < 1e-3 * value);
  }
  const samples = new Samples();
  samples.reset(answer({ buckets: [[100, 110], [1e9, 1.1e9]], total: { sums: [1000], cells: [0, 0, 999, 0, 1, 1] } }, 1));
  assert.ok(domainOf(samples.spread(), "log", 0).high > 1e9);
  assert.ok(domainOf(samples.spread(), "log", 0.01).high < 500);
});

test("strength is by rank, by logarithm or in proportion", () => {
  const total = Float32Array.of(0, 1, 2, 1000);
  const at = (normal: "rank" | "log" | "linear"): number[] => [1, 2, 1000].map(normalizer([total], normal)).map((one) => Math.round(one * 100));
  assert.deepEqual(at("rank"), [33, 67, 100]);
  assert.deepEqual(at("linear"), [0, 0, 100]);
  assert.deepEqual(at("log"), [10, 16, 100]);
});

test("a box counts the part of a bucket that lies in it", () => {
  const samples = new Samples();
  samples.reset(answer({ buckets: [[0, 10], [10, 20]], total: { sums: [30], cells: [0, 0, 10, 0, 1, 20] } }, 1));
  const cells = cellsWithin(samples.columns, 5, 15);
  assert.deepEqual(cells.map((cell) => cell.count), [5, 10]);
  assert.equal(percentile(cells, 0.5), 20);
  assert.equal(percentile(cells, 0.3), 10);
});

test("hits and misses of a column are told by the causes of operations", () => {
  const column = { at: 0, state: 2, total: { sum: 9, cells: [] }, groups: new Map(
    [["cache_hit", 5], ["second_level", 1], ["disk", 2], ["none", 1]].map(([key, sum]) => [key as string, { sum: sum as number, cells: [] }])) };
  assert.deepEqual(hitsAndMisses(column), [5, 3]);
});

test("a worksheet comes back from its link, and other texts do not", () => {
  for (const make of Object.values(TEMPLATES)) {
    const sheet = make();
    sheet.name = "Freitag: öfter ≥ 1 ms";
    const back = decode(encode(sheet))!;
    assert.deepEqual({ ...back, rows: back.rows.map(({ id: _, ...row }) => row) }, { ...sheet, rows: sheet.rows.map(({ id: _, ...row }) => row) });
  }
  for (const text of ["", "x", "%%%", btoa("{}"), btoa('{"rows":[{}]}'), btoa("null")]) assert.equal(decode(text), undefined);
  assert.equal(parse({ rows: Array(41).fill({ statistic: "nfs.ops" }) }), undefined);
});

test("statements and filters are those of the server", () => {
  const row = TEMPLATES["NFS latency by cause"]!().rows[0]!;
  assert.equal(statementOf(row), "nfs.ops[cause]:latency");
  assert.equal(statementOf({ ...row, view: "tree" }, "file"), "nfs.ops[file]");
  assert.equal(predicateOf([]), undefined);
  const read = { field: "op", operator: "eq" as const, value: "read" };
  assert.deepEqual(predicateOf([read]), { eq: ["op", "read"] });
  assert.deepEqual(predicateOf([read, { field: "latency", operator: "ge", value: 5 }]), { and: [{ eq: ["op", "read"] }, { ge: ["latency", 5] }] });
});

test("numbers are as people read them", () => {
  assert.equal(bytes(1536), "1.5K");
  assert.equal(duration(8_200_000), "8.2 ms");
  assert.equal(span(3661), "1 h 1 min");
  assert.equal(share(1, 3), "33.3 %");
  assert.equal(share(1, 1e9), "<0.01 %");
  assert.equal(share(0, 0), "–");
});

test("more is darker on paper and brighter in the dark", () => {
  const light = (colour: number[]): number => colour.reduce((sum, one) => sum + one, 0);
  for (const palette of ["orange", "viridis", "cividis", "inferno", "grey"] as const) {
    assert.ok(light(shade(palette, 0.1, false)) > light(shade(palette, 1, false)), palette);
    assert.ok(light(shade(palette, 0.1, true)) < light(shade(palette, 1, true)), palette);
  }
});
