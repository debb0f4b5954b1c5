/** The page's element with this id; index.html has all of them. */
export function element(id: string): HTMLElement;
export function element<T extends HTMLElement>(id: string, kind: new () => T): T;
export function element(id: string, kind: new () => HTMLElement = HTMLElement): HTMLElement {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`index.html lacks #${id}`);
  return found;
}
