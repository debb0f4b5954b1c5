/** Why a file was refused, in words for the person who opened it. */
export class TraceError extends Error {
  override name = "TraceError";
}
