// Taking what is shown elsewhere: a link, a picture, Perfetto.

import type { Theme } from "../paint/palette";
import { chromeJson } from "../trace/chrome";
import type { Trace } from "../trace/trace";
import { headline, subject } from "../trace/words";

/** Copies the address; whether that worked. */
export async function copyLink(url: string): Promise<boolean> {
  return navigator.clipboard?.writeText(url).then(
    () => true,
    () => false,
  );
}

const MARGIN = 16;
const LINE = 22;

/** The chart as a picture, with what it is of, as a download. */
export function downloadPicture(canvases: HTMLCanvasElement[], trace: Trace, theme: Theme): void {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(...canvases.map((canvas) => canvas.width)) + 2 * MARGIN * ratio;
  const head = (MARGIN + 2 * LINE + 8) * ratio;
  const height = canvases.reduce((sum, canvas) => sum + canvas.height, head) + MARGIN * ratio;
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [width, height];
  const context = picture.getContext("2d");
  if (!context) return;
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width, height);
  context.fillStyle = theme.ink;
  context.font = `600 ${15 * ratio}px system-ui, sans-serif`;
  context.fillText(headline(trace.meta, trace.path), MARGIN * ratio, (MARGIN + 14) * ratio);
  context.fillStyle = theme.quiet;
  context.font = `${12 * ratio}px system-ui, sans-serif`;
  const what = `monolith: ${subject(trace.meta)}`;
  context.fillText(what, MARGIN * ratio, (MARGIN + LINE + 12) * ratio);
  let y = head;
  for (const canvas of canvases) {
    context.drawImage(canvas, MARGIN * ratio, y);
    y += canvas.height;
  }
  const link = document.createElement("a");
  link.download = `monolith-${trace.meta.variant}-${trace.meta.position}.png`;
  link.href = picture.toDataURL("image/png");
  link.click();
}

const PERFETTO = "https://ui.perfetto.dev";
const PING_MS = 100;
/** Perfetto loads some megabytes first. */
const PATIENCE_MS = 60_000;

/**
 * Opens Perfetto in a window of its own and hands it the trace. The trace goes from window to window
 * in the browser; nothing is uploaded. Whether Perfetto answered.
 */
export function openInPerfetto(trace: Trace, title: string): Promise<boolean> {
  const other = window.open(PERFETTO);
  if (!other) return Promise.resolve(false);
  const buffer = new TextEncoder().encode(chromeJson(trace)).buffer;
  return new Promise((done) => {
    const begun = performance.now();
    const finish = (answered: boolean) => {
      clearInterval(timer);
      window.removeEventListener("message", heard);
      done(answered);
    };
    const heard = ({ data, origin }: MessageEvent) => {
      if (data !== "PONG" || origin !== PERFETTO) return;
      other.postMessage({ perfetto: { buffer, title, fileName: "monolith.json" } }, PERFETTO);
      finish(true);
    };
    const timer = setInterval(() => {
      if (other.closed || performance.now() - begun > PATIENCE_MS) finish(false);
      else other.postMessage("PING", PERFETTO);
    }, PING_MS);
    window.addEventListener("message", heard);
  });
}
