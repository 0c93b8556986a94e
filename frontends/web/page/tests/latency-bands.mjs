// The bands of a hybrid pool in one heat map, a colour for each cause: reads that the cache answers,
// writes to the log device, reads from a disk that takes 8 ms, and durable writes to that disk.
import assert from "node:assert/strict";
import { ask, browser, judge, open, picture, sheet, until } from "./support.mjs";

const page = await open();
await page.goto(sheet("The bands of a hybrid pool", [
  { statistic: "nfs.ops", by: "cause", tint: true, height: 460, crop: 0 },
]));
await until(page, ".row h2", "tinted by cause$");
await page.locator(".groups .group").nth(2).waitFor();
// A few seconds more, so that the picture is one of a page that lives.
await page.waitForTimeout(5000);
await page.getByRole("button", { name: "pause" }).click();
await page.waitForTimeout(4000);

const { buckets, groups } = await ask(page, "analytics/query", { statement: "nfs.ops[cause][dataset]:latency", last: 30, column_ms: 30000 });
const medians = {};
for (const { key, series } of groups) {
  const counts = new Map();
  for (let at = 0; at < series.cells.length; at += 3) counts.set(series.cells[at + 1], (counts.get(series.cells[at + 1]) ?? 0) + series.cells[at + 2]);
  const half = [...counts.values()].reduce((sum, one) => sum + one, 0) / 2;
  let below = 0;
  const [bucket] = [...counts].sort((one, other) => one[0] - other[0]).find(([, count]) => (below += count) >= half);
  medians[key.join(" of ")] = buckets[bucket][1] / 1e6;
}
console.log("medians in ms:", medians);
const logged = medians["log_device of tank/db"] ?? medians["log of tank/db"];
assert.ok(medians["cache_hit of tank/db"] < 4, "the cache answers");
assert.ok(logged < 8, "the log device is faster than the disk");
assert.ok(medians["disk of tank/db"] >= 8, "the disk takes 8 ms");
assert.ok(medians["log of tank/bulk"] >= 8, "and so do writes to it");
await picture(page, "page-latency-bands");
await judge(page, "latency bands");
await browser.close();
