// Drives the page of a running tarnd in Chromium, and has axe judge it. By hand, with
// `npm install --no-save playwright-core axe-core`:
//
//   node tests/drive.mjs "$(tarn web url)" "$(tarn web url -v)" POOL DATASET NEW_DEVICE FOLDER
//
// DATASET is a mounted file system of POOL that some program uses, and has snapshots; of POOL the
// first device is replaced by NEW_DEVICE. The first snapshot is gone back to: what came after it is
// lost. Pictures go into FOLDER.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [url, viewerUrl, pool, dataset, newDevice, folder] = process.argv.slice(2);
const base = url.split("#")[0];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const program = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
const page = await context.newPage();
page.setDefaultTimeout(30_000);
page.on("pageerror", (error) => assert.fail(error));

const picture = (name) => page.screenshot({ path: `${folder}/${name}.png` });
const command = () => page.locator(".commands pre").innerText();
const closed = () => page.waitForSelector("dialog", { state: "detached" });
async function judge(name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const bad = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(bad.map(({ id, nodes }) => `${id} ${nodes[0].html}`), [], name);
  console.log(`axe: ${name}: ${violations.length} faults`);
}
function sheet(name, rows) {
  const json = JSON.stringify({ name, range: { last: 150 }, rows });
  return `${base}#/analytics?w=${Buffer.from(json).toString("base64url")}`;
}

await page.goto(url);
await page.waitForSelector(".row");
assert.equal(page.url(), base, "the token is gone from the address");

// A worksheet by its link; then the keyboard alone.
await page.goto(sheet("By link", [{ statistic: "fuse.ops", by: "cause", tint: true, height: 280 }]));
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
await picture("analytics");
await judge("analytics");

// Drilling down by clicks.
await page.goto("about:blank");
await page.goto(sheet("Drill", [{ statistic: "fuse.ops", by: "op" }]));
await page.locator(".group").first().click({ button: "right" });
await page.getByRole("menuitem", { name: "break down by file" }).click();
await page.waitForFunction(() => document.querySelector(".row h2").textContent.includes("by file"));
console.log(await page.locator(".row h2").innerText());
await page.getByRole("button", { name: "Dark or light" }).click();
await picture("drill-down-dark");
await judge("dark");
await page.getByRole("button", { name: "Dark or light" }).click();

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
await picture("rollback");
await judge("rollback");
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
await card.getByText(/resilver/).first().waitFor();
await picture("pools");
await judge("pools");
for (const other of ["shares", "events"]) {
  await page.goto(`${base}#/${other}`);
  await page.waitForSelector(".card");
  await judge(other);
}

// A viewer sees pseudonyms, and has nothing to click.
const viewer = await (await browser.newContext()).newPage();
await viewer.goto(viewerUrl);
await viewer.waitForSelector(".row");
await viewer.goto(sheet("Viewer", [{ statistic: "fuse.ops", by: "file", numeric: "" }]));
await viewer.locator(".group .name", { hasText: /^file-[0-9a-f]{8}$/ }).first().waitFor();
await viewer.goto(`${base}#/pools`);
await viewer.waitForSelector(".vdevs");
assert.equal(await viewer.locator(".card button").count(), 0);
await browser.close();
console.log("passed");
