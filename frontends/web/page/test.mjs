// Runs the tests of the page with node's own runner, bundled as the page is.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "page-tests-"));
const outfile = join(folder, "page.test.mjs");
await build({ entryPoints: ["tests/page.test.ts"], bundle: true, platform: "node", format: "esm", outfile });
const { status } = spawnSync(process.execPath, ["--test", outfile], { stdio: "inherit" });
rmSync(folder, { recursive: true });
process.exit(status ?? 1);
