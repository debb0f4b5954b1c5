/** Why a file was refused, worded for the person who opened it. */
export class TraceError extends Error {
  override name = "TraceError";
}
