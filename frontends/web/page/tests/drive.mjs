// Drives the page: worksheets by link, the keyboard alone, drilling down, two statistics together,
// exports, snapshots and a rollback, a device that is replaced, and what a viewer sees.
//
// The first snapshot is gone back to: what came after it is lost.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { base, browser, judge, open, picture, sheet, told, until } from "./support.mjs";

const { pool, dataset, newDevice } = told;
const page = await open();
const command = () => page.locator(".commands pre").innerText();
const closed = () => page.waitForSelector("dialog", { state: "detached" });

assert.equal(page.url(), base, "the token is gone from the address");

// A worksheet by its link; then the keyboard alone.
await page.goto(sheet("By link", [{ statistic: "nfs.ops", by: "cause", tint: true, height: 280 }]));
await page.waitForSelector(".group");
assert.equal(await page.inputValue("input[aria-label='Name of the worksheet']"), "By link");
await page.keyboard.press(" ");
await page.waitForSelector(".paused");
await page.locator(".row canvas").first().focus();
await page.keyboard.press("]");
for (let turn = 0; turn < 30; turn++) await page.keyboard.press("Shift+ArrowRight");
for (let turn = 0; turn < 30; turn++) await page.keyboard.press("Shift+ArrowUp");
console.log(await page.locator(".box-bar p").first().innerText());
await page.keyboard.press("Enter");
const fields = await page.locator("[role=menuitem]").allInnerTexts();
for (let turn = 0; turn < fields.indexOf("file"); turn++) await page.keyboard.press("ArrowDown");
await page.keyboard.press("Enter");
await page.waitForSelector(".tree, .tree-place .hint");
assert.match(await page.locator(".tag").nth(1).innerText(), /^RETROSPECTIVE /);
await picture(page, "page-analytics");
await judge(page, "analytics");

// Drilling down by clicks: by client, by file, and by a rectangle that is drawn with the pointer.
await page.goto("about:blank");
await page.goto(sheet("Drill", [{ statistic: "nfs.ops", by: "client" }]));
await page.locator(".group", { hasText: "deimos" }).click({ button: "right" });
await page.getByRole("menuitem", { name: "break down by file" }).click();
await until(page, ".row h2", "client = .*deimos.*, by file, by latency$");
await page.locator(".group", { hasText: "/db/table" }).waitFor();
console.log(await page.locator(".row h2").innerText());
const plot = await page.locator(".row canvas").boundingBox();
await page.mouse.move(plot.x + plot.width * 0.5, plot.y + 10);
await page.mouse.down();
await page.mouse.move(plot.x + plot.width - 40, plot.y + plot.height / 2, { steps: 5 });
await page.mouse.up();
await until(page, ".box-bar p", "of the wait time");
await page.locator(".stages li", { hasText: "device" }).first().waitFor();
await page.getByLabel("Break down these by").selectOption("cause");
await until(page, ".row:nth-of-type(2) .tag", "^RETROSPECTIVE ");
await page.locator(".row:nth-of-type(2) .group", { hasText: "disk" }).waitFor();
await picture(page, "page-rectangle");
await judge(page, "rectangle");
await page.locator(".row").nth(1).getByRole("button", { name: "Close this statistic" }).click();
await page.getByRole("button", { name: "Dark or light" }).click();
await picture(page, "page-dark");
await judge(page, "dark");
await page.getByRole("button", { name: "Dark or light" }).click();

// Two statistics in one plot: over each other, and what one has more.
await page.goto("about:blank");
const reads = { statistic: "nfs.ops", numeric: "", height: 200 };
await page.goto(sheet("Two", [{ ...reads, second: "arc.misses" }, { ...reads, second: "vdev.ops", combine: "minus" },
  { statistic: "nfs.ops", compare: "before", height: 200 }], 20));
await until(page, ".row:nth-of-type(1) h2", "with ARC misses$");
await until(page, ".row:nth-of-type(2) h2", "minus ");
await until(page, ".row:nth-of-type(3) h2", "compared with the time before$");
await page.waitForTimeout(1500);
await picture(page, "page-two-statistics");
await judge(page, "two statistics");

// What is shown, as files.
async function exported(form) {
  await page.locator(".row").first().getByRole("button", { name: "export" }).click();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: form }).click()]);
  return readFileSync(await file.path());
}
assert.match((await exported("CSV")).toString(), /^time_ms,state,group,low,high,count,sum\n\d+,2,/);
const json = JSON.parse(await exported("JSON"));
assert.ok(json.columns.length > 10 && json.statement === "nfs.ops", json.statement);
assert.equal((await exported("picture")).subarray(1, 4).toString(), "PNG");

// A snapshot, a rollback with what it costs.
await page.goto(`${base}#/datasets/${encodeURIComponent(dataset)}`);
await page.waitForSelector(".timeline");
await page.getByRole("button", { name: "Take a snapshot" }).click();
await page.getByRole("button", { name: "Take it" }).click();
await closed();
assert.match(await command(), /^# zfs snapshot /);
await page.locator(".timeline button").first().click();
await page.getByRole("button", { name: "Roll back" }).click();
await page.waitForSelector("dialog[open]");
await picture(page, "page-rollback");
await judge(page, "rollback");
await page.locator("dialog").getByRole("button", { name: "Roll back" }).click();
await closed();
assert.match(await command(), /^# zfs rollback /);

// A scrub, and a replaced device.
await page.goto(`${base}#/pools`);
const card = page.locator(`section[aria-label="Pool ${pool}"]`);
await card.getByRole("button", { name: "scrub", exact: true }).click();
await card.getByRole("button", { name: "Actions for" }).first().click();
await page.getByRole("menuitem", { name: "replace…" }).click();
await page.fill("dialog input[type=text]", newDevice);
await page.locator("dialog").getByRole("button", { name: "Replace" }).click();
await closed();
assert.match(await command(), /^# zpool replace /);
const progress = card.getByText(/resilver: [1-9]/);
await progress.waitFor();
console.log((await progress.innerText()).split("\n")[0]);
await picture(page, "page-replace");
await card.getByText(/resilver finished/).waitFor({ timeout: 120_000 });
await picture(page, "page-pools");
await judge(page, "pools");
for (const other of ["shares", "events"]) {
  await page.goto(`${base}#/${other}`);
  await page.waitForSelector(".card");
  await judge(page, other);
}

// A viewer sees pseudonyms, and has nothing to click.
const viewer = await open(told.viewerUrl);
await viewer.goto(sheet("Viewer", [{ statistic: "nfs.ops", by: "file", numeric: "" }]));
await viewer.locator(".group .name", { hasText: /^file-[0-9a-f]{8}$/ }).first().waitFor();
await viewer.goto(`${base}#/pools`);
await viewer.waitForSelector(".vdevs");
assert.equal(await viewer.locator(".card button").count(), 0);
await browser.close();
console.log("passed");
