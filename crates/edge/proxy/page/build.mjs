// Builds the page into dist, and records the hash of its sources in dist/sources.sha256.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

mkdirSync("dist", { recursive: true });
const licence = readFileSync("node_modules/uplot/LICENSE", "utf8").trim();
await build({
  entryPoints: ["src/page.ts"],
  outfile: "dist/page.js",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  banner: { js: `/*! uPlot 1.6.32, https://github.com/leeoniya/uPlot\n${licence}\n*/` },
});
await build({
  entryPoints: ["src/page.css"],
  outfile: "dist/page.css",
  bundle: true,
  minify: true,
  target: "es2022",
});

// The same order and format as the test `the_page_is_built_from_its_sources`.
const files = ["build.mjs", "package-lock.json", "tsconfig.json"];
files.push(...readdirSync("src").map((name) => `src/${name}`));
const hash = createHash("sha256");
for (const name of files.sort()) {
  hash.update(`${name}\n`);
  hash.update(readFileSync(name));
}
writeFileSync("dist/sources.sha256", `${hash.digest("hex")}\n`);
