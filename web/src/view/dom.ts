/** The page's element with this id; index.html has all of them. */
export function element(id: string): HTMLElement;
export function element<T extends HTMLElement>(id: string, kind: new () => T): T;
export function element(id: string, kind: new () => HTMLElement = HTMLElement): HTMLElement {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`index.html lacks #${id}`);
  return found;
}

/** A new element with this content. */
export function node<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  ...content: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  made.append(...content);
  return made;
}

/** A new element with this class and content. */
export function classed<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  name: string,
  ...content: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const made = node(tag, ...content);
  made.className = name;
  return made;
}
