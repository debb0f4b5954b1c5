import { defineConfig } from "vitest/config";
import { fallback } from "./build/fallback.ts";
import { tour } from "./build/tour.ts";

export default defineConfig({
  // Relative: the page works from any folder of any server.
  base: "./",
  // One page and no client routes: a missing trace must be a 404, not this page again.
  appType: "mpa",
  plugins: [tour(), fallback()],
  build: { target: "es2022", modulePreload: { polyfill: false } },
  test: {
    projects: [
      {
        test: { name: "unit", include: ["src/**/*.test.ts", "test/*.test.ts", "build/*.test.ts"] },
      },
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
