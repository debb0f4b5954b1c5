export interface Links {
  open(hash: string): void;
}
export async function showResults(_: Links): Promise<void> {}
