import { defineConfig } from "vitest/config";

export default defineConfig({
  // Relative: the page works from any folder of any server.
  base: "./",
  // One page and no client routes: a missing trace must be a 404, not this page again.
  appType: "mpa",
  build: { target: "es2022", modulePreload: { polyfill: false } },
  test: {
    projects: [
      { test: { name: "unit", include: ["src/**/*.test.ts", "test/*.test.ts"] } },
      {
        test: {
          name: "browser",
          include: ["test/browser/*.test.ts"],
          testTimeout: 60_000,
          hookTimeout: 120_000,
          // A busy machine paints late; the default of a second is a limit on speed.
          expect: { poll: { timeout: 30_000 } },
        },
      },
    ],
  },
});
