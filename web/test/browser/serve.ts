// The built page, served as `vite preview` serves it, and a browser to look at it.

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import axe from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";
import { build, preview } from "vite";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export interface Served {
  url: string;
  /** The build's folder: not `dist`, where a recorded trace may be. */
  folder: string;
  /** Puts the bytes where the page looks for its trace; null: removes it. */
  setTrace(bytes: Uint8Array | string | null): Promise<void>;
  /** The same for any file of that folder. */
  setFile(name: string, bytes: Uint8Array | string | null): Promise<void>;
  close(): Promise<void>;
}

export async function serve(): Promise<Served> {
  const folder = await mkdtemp(join(tmpdir(), "monolith-page-"));
  const common = { root: ROOT, logLevel: "error" as const };
  const outDir = { outDir: folder, emptyOutDir: true };
  await build({ ...common, build: { ...outDir, copyPublicDir: false } });
  const server = await preview({
    ...common,
    build: outDir,
    preview: { host: "127.0.0.1", port: 0, strictPort: true },
  });
  const url = server.resolvedUrls?.local[0];
  if (url === undefined) throw new Error("vite preview names no address");
  await mkdir(join(folder, "data"));
  const setFile: Served["setFile"] = (name, bytes) => {
    const path = join(folder, "data", name);
    return bytes === null ? rm(path, { force: true }) : writeFile(path, bytes);
  };
  return {
    url,
    folder,
    setTrace: (bytes) => setFile("trace.json.gz", bytes),
    setFile,
    close: async () => {
      await server.close();
      await rm(folder, { recursive: true });
    },
  };
}

/** Collects what the page must not do: log to the console, or send requests to other hosts. */
export function watch(page: Page, url: string, faults: string[]): void {
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => {
    // A page without a list or tables finds out by asking; the browser itself reports that.
    const [, file] = message.location().url.split(`${url}data/`);
    if (file && ["traces.json", "results.json", "budget.json", "race.json"].includes(file)) return;
    if (message.type() === "error" || message.type() === "warning") faults.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url)) faults.push(`asks ${request.url()}`);
  });
}

/** Waits two frames: one for pending work, one so that the result is painted. */
export function painted(page: Page): Promise<void> {
  return page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))),
  );
}

export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const found = await page.evaluate(() =>
    (window as unknown as { axe: typeof axe }).axe.run(document),
  );
  return found.violations.map((violation) => `${violation.id}: ${violation.nodes[0]?.html}`);
}

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}
