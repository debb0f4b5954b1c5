// `npm run picture`: a picture of the page's chart for links elsewhere and for readers without the
// script, taken in Chromium (CHROMIUM names it) of the page as built, with the data beside it.

import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { build, preview } from "vite";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const WAIT_MS = 60_000;

const quiet = { root: ROOT, logLevel: "error" };
await build(quiet);
const server = await preview({ ...quiet, preview: { host: "127.0.0.1", port: 0 } });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 630 } });
  page.setDefaultTimeout(WAIT_MS);
  await page.goto(`${server.resolvedUrls?.local[0]}?embed`);
  await page.locator("#chart:not([hidden])").waitFor();
  await page.addStyleTag({
    content: "#choice, #tools, #legend, #minimap, #details { display: none !important }",
  });
  // Two frames: one for the new sizes, one so that they are painted.
  await page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
  );
  await page.screenshot({ path: `${ROOT}public/data/picture.png` });
} finally {
  await browser.close();
  await server.close();
}
