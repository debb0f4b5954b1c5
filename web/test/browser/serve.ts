// The built page, served as `vite preview` serves it, and a browser to look at it.

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, chromium } from "playwright-core";
import { build, preview } from "vite";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export interface Served {
  url: string;
  /** The build's folder: not `dist`, where a recorded trace may be. */
  folder: string;
  /** Puts the bytes where the page looks for its trace; null: removes it. */
  setTrace(bytes: Uint8Array | string | null): Promise<void>;
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
  const trace = join(folder, "data", "trace.json.gz");
  await mkdir(join(folder, "data"));
  return {
    url,
    folder,
    setTrace: (bytes) => (bytes === null ? rm(trace, { force: true }) : writeFile(trace, bytes)),
    close: async () => {
      await server.close();
      await rm(folder, { recursive: true });
    },
  };
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
