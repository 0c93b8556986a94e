// What the page costs a browser (bar B19): first paint, the size of all files, and with eight live
// heat maps of 15 minutes what a second takes of the main thread and of a processor, and memory.
import { readFileSync, readdirSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { base, browser, open, sheet, told } from "./support.mjs";

const ROWS = 8;
const SECONDS = 30;
const FIELDS = ["cause", "op", "file", "client", "dataset", "user", "protocol", "slowest_stage"];

const page = await open(told.url, { width: 1280, height: 4000 });
await page.goto(base);
await page.waitForSelector(".row");
const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
const files = readdirSync(told.built).filter((name) => name.startsWith("page.") || name === "index.html");
const bytes = files.reduce((sum, name) => sum + gzipSync(readFileSync(`${told.built}/${name}`), { level: 9 }).length, 0);

await page.goto(sheet("Eight heat maps", FIELDS.map((by) => ({ statistic: "nfs.ops", by, tint: by === "cause", rainbow: by !== "cause" })), 900));
await page.locator(".row").nth(ROWS - 1).locator(".group").first().waitFor();
await page.waitForTimeout(15_000);
const session = await page.context().newCDPSession(page);
// Processor time, not time on the wall: other programs run, too.
await session.send("Performance.enable", { timeDomain: "threadTicks" });
const processes = await browser.newBrowserCDPSession();
async function look() {
  const { metrics } = await session.send("Performance.getMetrics");
  const { processInfo } = await processes.send("SystemInfo.getProcessInfo");
  const renderers = processInfo.filter(({ type }) => type === "renderer");
  return { ...Object.fromEntries(metrics.map(({ name, value }) => [name, value])), cpu: renderers.reduce((sum, one) => sum + one.cpuTime, 0) };
}
const before = await look();
await page.waitForTimeout(SECONDS * 1000);
const after = await look();
await browser.close();

const bars = [
  ["first paint, ms", paint, 1000],
  ["all files by gzip, KiB", bytes / 1024, 150],
  ["main thread, ms for each row and second", ((after.TaskDuration - before.TaskDuration) * 1000) / SECONDS / ROWS, 4],
  ["renderer with eight live heat maps, % of a processor", ((after.cpu - before.cpu) * 100) / SECONDS, 10],
  ["heap, MiB", after.JSHeapUsedSize / 2 ** 20, 200],
];
for (const [what, is, bar] of bars) console.log(`${what}: ${is.toFixed(1)}, at most ${bar}: ${is <= bar ? "PASS" : "FAIL"}`);
if (bars.some(([, is, bar]) => is > bar)) process.exitCode = 1;
