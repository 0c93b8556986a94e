// Times before the daemon was started anew: the archive has them by the second. They are drawn like
// those of the flight recorder, and compared with what is now.
import { browser, judge, open, picture, sheet, until } from "./support.mjs";

const page = await open();
const row = { statistic: "nfs.ops", by: "cause", tint: true, height: 240 };
await page.goto(sheet("Before and after a restart", [{ ...row, compare: "before" }, { statistic: "nfs.ops", by: "op", numeric: "", view: "stack", compare: "before" }], 40));
await until(page, ".row:nth-of-type(1) h2", "compared with the time before$");
await page.getByRole("button", { name: "pause" }).click();
await page.waitForTimeout(5000);
await picture(page, "page-compare");
await judge(page, "compare");

// The same rows of the time before alone.
await page.goto("about:blank");
await page.goto(sheet("Before a restart", [row, { statistic: "nfs.ops", by: "client", numeric: "", rainbow: true }], 40));
await page.getByRole("button", { name: "Back by the whole range" }).click();
await until(page, ".row:nth-of-type(1) .note", "archive-1s");
await until(page, ".row:nth-of-type(2) .note", "archive-1s");
await page.locator(".row").first().locator(".group", { hasText: "disk" }).waitFor();
await page.locator(".row").nth(1).locator(".group", { hasText: "deimos" }).waitFor();
console.log((await page.locator(".row").first().locator(".groups").innerText()).replaceAll("\n", " "));
await picture(page, "page-archive");
// A file is not archived, which is said, and no zero.
await page.locator(".row").nth(1).getByLabel("Broken down by").selectOption("file");
await until(page, ".row:nth-of-type(2) .note", "recorder.*not collected");
console.log(await page.locator(".row").nth(1).locator(".note").innerText());
await browser.close();
