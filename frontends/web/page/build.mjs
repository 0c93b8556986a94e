// Makes the page in the folder that is named, or in built/: one script, one style sheet, the
// document, and the sums of the sources. The same sources give the same bytes.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

const out = process.argv[2] ?? "built";
mkdirSync(out, { recursive: true });
await build({
  entryPoints: { page: "src/main.ts" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  outdir: out,
});
await build({ entryPoints: { page: "src/page.css" }, minify: true, outdir: out });
copyFileSync("src/index.html", `${out}/index.html`);
const sources = readdirSync("src").map((name) => `src/${name}`);
sources.push("build.mjs", "package.json", "package-lock.json", "tsconfig.json");
const sum = (name) => createHash("sha256").update(readFileSync(name)).digest("hex");
const lines = sources.sort().map((name) => `${sum(name)}  ${name}\n`);
writeFileSync(`${out}/sources.sha256`, lines.join(""));
