// Building the page from data: every string ends as a text node, never as markup.

/** @import { Attributes, Child, ElementOf } from "./types.d.ts" */

import { stateWord } from "./vocabulary.js";

/** @param {string} selector @param {ParentNode} root @returns {HTMLElement} */
export function one(selector, root = document) {
  const found = root.querySelector(selector);
  if (!found) throw new Error(`the page has no element ${selector}`);
  return /** @type {HTMLElement} */ (found);
}

/** @param {string} selector @param {ParentNode} root @returns {HTMLElement[]} */
export function all(selector, root = document) {
  return /** @type {HTMLElement[]} */ ([...root.querySelectorAll(selector)]);
}

/**
 * An element with attributes and children. Strings and numbers become text; null and false are left out.
 * `on` holds listeners, `data` the dataset.
 * @template {string} Tag
 * @param {Tag} tag
 * @param {Attributes} attributes
 * @param {...Child} children
 * @returns {ElementOf<Tag>}
 */
export function h(tag, attributes = {}, ...children) {
  const svg = tag === "svg" || tag === "use" || tag === "line" || tag === "path";
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  const { on = {}, data = {}, ...plain } = attributes;
  for (const [event, listener] of Object.entries(on)) {
    element.addEventListener(event, /** @type {EventListener} */ (listener));
  }
  Object.assign(element.dataset, data);
  for (const [key, value] of Object.entries(plain)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, children);
  return /** @type {ElementOf<Tag>} */ (element);
}

/** @param {Element} element @param {Child[]} children */
export function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
}

/** Replaces all children. @param {Element} element @param {...Child} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * Makes an element like a fresh one, node by node, and leaves alone what is the same already: the focus, a selection and
 * a click that has only begun stay where they are. Listeners are not taken over.
 * @param {Element} present @param {Element} fresh
 */
function become(present, fresh) {
  for (const name of present.getAttributeNames()) if (!fresh.hasAttribute(name)) present.removeAttribute(name);
  for (const name of fresh.getAttributeNames()) {
    const value = fresh.getAttribute(name);
    if (present.getAttribute(name) !== value) present.setAttribute(name, value ?? "");
  }
  const wanted = [...fresh.childNodes];
  wanted.forEach((child, place) => {
    const old = present.childNodes[place];
    if (!old) present.append(child);
    else if (old.nodeName !== child.nodeName) old.replaceWith(child);
    else if (old instanceof Element) become(old, /** @type {Element} */ (child));
    else if (old.nodeValue !== child.nodeValue) old.nodeValue = child.nodeValue;
  });
  while (present.childNodes.length > wanted.length) present.lastChild?.remove();
}

/**
 * Shows rows that are told apart by `data-key`: a row that is there already is brought up to date.
 * @param {Element} root @param {HTMLElement[]} fresh
 */
export function fillRows(root, fresh) {
  const present = new Map([...root.children].map((row) => [/** @type {HTMLElement} */ (row).dataset.key, row]));
  const rows = fresh.map((row) => {
    const old = present.get(row.dataset.key);
    if (old) become(old, row);
    return old ?? row;
  });
  const wanted = new Set(rows);
  for (const row of [...root.children]) if (!wanted.has(row)) row.remove();
  rows.forEach((row, place) => {
    if (root.children[place] !== row) root.insertBefore(row, root.children[place] ?? null);
  });
}

/**
 * Writes text only when it changed, so that a selection or a screen reader is not disturbed.
 * @param {Element} element @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The JSON the server put into the page for the first paint. @param {string} id @returns {any} */
export function pageData(id = "page-data") {
  const block = document.getElementById(id);
  return block ? JSON.parse(block.textContent || "null") : null;
}

/** A state as a coloured chip with a shape and a word. @param {string} state */
export function stateChip(state) {
  return h(
    "span",
    { class: "chip", data: { state } },
    h("span", { class: "chip-icon", "aria-hidden": "true" }),
    stateWord(state),
  );
}

/**
 * A link whose text is shortened before its end where there is no room.
 * @param {string} address @param {[string, string]} parts
 */
export function nameLink(address, [front, end]) {
  return h(
    "a",
    { class: "name-link", href: address, title: front + end },
    h("span", { class: "name-front" }, front),
    end ? h("span", { class: "name-end" }, end) : null,
  );
}

/**
 * A small quiet button, as in the head of a chart.
 * @param {string} label @param {string} title @param {() => void} action
 */
export function toolButton(label, title, action) {
  return h("button", { type: "button", class: "tool", title, on: { click: action } }, label);
}

/** Offers text as a file. @param {string} name @param {string|Blob} content @param {string} type */
export function download(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {HTMLCanvasElement} canvas */
export function contextOf(canvas) {
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("this browser draws on no canvas");
  return pen;
}

/** Offers an SVG as an image, twice as fine. @param {string} name @param {string} svg */
export async function downloadPng(name, svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
  contextOf(canvas).drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && download(name, blob, "image/png"), "image/png");
}

/** Copies text and says so on the button for a moment. @param {HTMLElement} button @param {string} text */
export async function copy(button, text) {
  const before = button.dataset.label ?? button.textContent ?? "";
  button.dataset.label = before;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch (error) {
    console.info("The clipboard is not available.", error);
    button.textContent = "Copy failed";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

/**
 * Keeps the address in step with what is shown, without a new history entry.
 * @param {Record<string, unknown>} values
 */
export function setQuery(values) {
  const url = new URL(location.href);
  for (const [key, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(key);
    else url.searchParams.set(key, String(value));
  }
  // a comma is legal in a query and keeps a shared link readable
  history.replaceState(null, "", url.pathname + url.search.replaceAll("%2C", ",") + url.hash);
}
