// A program looks for a file that is not there, 63 times a second, over NFS. Four clicks find it on
// a server that looks idle: the client, the operation, the file, and how long it took.
import assert from "node:assert/strict";
import { ask, browser, judge, open, picture, told, until } from "./support.mjs";

const page = await open();
await page.getByRole("button", { name: "1 min" }).click();
// The row that a first visit begins with: operations of NFS by client.
const row = page.locator(".row").first();
const title = ".row h2";
const component = (name) => row.locator(".groups li", { hasText: name });
const into = (name) => component(name).locator(".drill").click();
const rateOf = async (name) => Number(/([\d.]+)\/s/.exec(await component(name).innerText())[1]);

await until(page, title, "by client$");
await component("kiowa").waitFor();
// The shown minute begins before the program did.
let rate = 0;
for (let turn = 0; turn < 60 && rate < 60; turn++) {
  await page.waitForTimeout(1000);
  rate = await rateOf("kiowa");
}
assert.ok(rate > 56 && rate < 70, `${rate} operations a second`);
await picture(page, "missing-file-1-clients");

await into("kiowa");
await until(page, title, "only client = .*kiowa.*, by op$");
await component("lookup").waitFor();
await picture(page, "missing-file-2-operations");

await into("lookup");
await until(page, title, "op = lookup, by file$");
const missing = `${told.mount}/home/brendan/.elinks (missing)`;
await row.locator(`.name[title="${missing}"]`).waitFor();
assert.ok((await rateOf(".elinks")) > 56);
await picture(page, "missing-file-3-files");

await into(".elinks");
await until(page, title, "file = .*\\.elinks \\(missing\\), by latency$");
await row.locator(".groups .group").first().waitFor();
// All of them are of this file: the recorder has them, though no one had asked before.
const latencies = await row.locator(".groups .group").allInnerTexts();
console.log(`${await row.locator("h2").innerText()}: ${latencies.join("; ").replaceAll("\n", " ")}`);
const shares = latencies.map((text) => Number(/([\d.]+) %$/.exec(text)[1]));
await row.locator(".groups .group").nth(shares.indexOf(Math.max(...shares))).click();
await until(page, ".box-bar p", "of the wait time");
console.log(await row.locator(".box-bar").innerText().then((text) => text.split("\n")[0]));
await row.locator(".stages li").first().waitFor();
await picture(page, "missing-file-4-latency");
await judge(page, "missing file");

const filter = { and: [{ eq: ["op", "lookup"] }, { eq: ["file", missing] }] };
const { count } = await ask(page, "analytics/operations", { statement: "nfs.ops", filter, last: 20, limit: 1 });
assert.ok(count > 20 * 56 && count < 20 * 70, `${count} lookups in 20 seconds`);
console.log(`${count} lookups of ${missing} in 20 seconds: passed`);
await browser.close();
