// What the scripts share that drive the page of a running tarnd in Chromium. Each gets one argument:
// JSON with the addresses of the page, what is served, and where pictures go.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const told = JSON.parse(process.argv[2]);
/** The page without its token. */
export const base = told.url.split("#")[0];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const program = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });

/** A page that is logged in. */
export async function open(url = told.url, viewport = { width: 1280, height: 900 }) {
  const context = await browser.newContext({ viewport, colorScheme: "light" });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (error) => assert.fail(error));
  // For work on the page: files of a folder in place of those that tarnd was built with.
  const folder = process.env.TARN_PAGE;
  if (folder) await context.route(/\/(page\.(js|css))?$/, (route) => route.fulfill({ path: `${folder}/${new URL(route.request().url()).pathname.slice(1) || "index.html"}` }));
  await page.goto(url);
  await page.waitForSelector(".row");
  return page;
}

/** The link of a worksheet. */
export function sheet(name, rows, last = 60) {
  const json = JSON.stringify({ name, range: { last }, rows });
  return `${base}#/analytics?w=${Buffer.from(json).toString("base64url")}`;
}

export const picture = (page, name) => page.screenshot({ path: `${told.pictures}/${name}.png` });

/** axe finds no serious fault. */
export async function judge(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const bad = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(bad.map(({ id, nodes }) => `${id} ${nodes[0].html}`), [], name);
  console.log(`axe: ${name}: ${violations.length} faults`);
}

/** Asks the server as the page does. */
export const ask = (page, operation, request) => page.evaluate(async ([path, body]) => {
  const headers = { "content-type": "application/json" };
  const reply = await fetch(`/api/v1/${path}`, { method: "POST", headers, body: JSON.stringify({ command: "", request: body }) });
  return reply.json();
}, [operation, request]);

/** Waits until the text of an element is so. */
export const until = (page, selector, pattern) =>
  page.waitForFunction(([one, text]) => new RegExp(text).test(document.querySelector(one)?.textContent ?? ""), [selector, pattern]);
