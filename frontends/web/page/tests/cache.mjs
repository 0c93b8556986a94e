// What the cache did, drawn twice from one run: misses upon hits, and hits up and misses down.
import assert from "node:assert/strict";
import { browser, judge, open, picture, sheet, until } from "./support.mjs";

const page = await open();
const row = (view) => ({ statistic: "arc.accesses", by: "result", view, numeric: "", height: 210 });
await page.goto(sheet("The cache, twice", [row("stack"), row("mirror")]));
await until(page, ".row h2", "stacked$");
await page.locator(".row .groups .group", { hasText: "miss" }).first().waitFor();
const mirrored = page.locator(".row").nth(1);
await mirrored.locator(".miss").waitFor();
await page.getByRole("button", { name: "pause" }).click();
await page.waitForTimeout(5000);
// Both tell the same sums.
const stacked = await page.locator(".row").first().locator(".group", { hasText: "miss" }).innerText();
const [, misses] = /misses ([\d.,]+)\/s/.exec(await mirrored.locator(".miss").innerText());
console.log(stacked.replaceAll("\n", " "), "|", await mirrored.locator(".groups").innerText());
assert.ok(stacked.includes(`${misses}/s`), `${stacked}: ${misses}`);
assert.ok(Number(misses.replaceAll(",", "")) > 1, "the table is larger than the cache");
await picture(page, "page-cache");
await judge(page, "cache");
await browser.close();
