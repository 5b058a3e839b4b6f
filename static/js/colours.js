// One colour and one dash pattern for each method, everywhere and for ever.
//
// The hue says the family; tone and dash tell the methods of a family apart. Every colour has a contrast of at
// least 4.5 : 1 on the chart's ground in its theme, so it may also colour text. The values are those of the
// figures that the server draws.

/** @import { Style } from "./types.d.ts" */

import { vocabulary } from "./vocabulary.js";

const { dashes: DASHES, families: PALETTE, methods: METHODS } = vocabulary.palette;

const [LONG, DOT] = [[20, 4], [1, 4]];

export const FAMILIES = Object.keys(PALETTE);

export const FAMILY_TITLES = Object.fromEntries(FAMILIES.map((family) => [family, PALETTE[family].title]));

/** @param {string} id */
export function methodTitle(id) {
  return Object.hasOwn(METHODS, id) ? METHODS[id].title : id;
}

/**
 * A method from elsewhere keeps its look too: tone and dash come from its name, as in app/comparison/palette.py.
 * @param {string} id
 */
function placeOf(id) {
  if (Object.hasOwn(METHODS, id)) return METHODS[id];
  let hash = 2166136261;
  for (const letter of id) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 16777619) >>> 0;
  return { family: "homogeneous", tone: hash % 4, dash: hash % DASHES.length };
}

/**
 * @param {string} id a method's id
 * @param {number} variant 0 for the method itself, 1, 2, … for the same method with other settings: the colour stays
 *   the method's own and the dash changes
 * @returns {Style & {css: string, family: string}}
 */
export function methodStyle(id, variant = 0) {
  const place = placeOf(id);
  const { light, dark } = PALETTE[place.family];
  const [day, night] = [light[place.tone], dark[place.tone]];
  const turns = Math.floor(variant / DASHES.length);
  const plain = DASHES[(place.dash + variant) % DASHES.length];
  // more variants than dashes: after each turn one more dot, as in app/comparison/palette.py
  const dash = turns ? [...(plain.length ? plain : LONG), ...Array.from({ length: turns }, () => DOT).flat()] : plain;
  return { light: day, dark: night, css: `light-dark(${day}, ${night})`, dash, family: place.family };
}

/** Every listed method, for a legend of all and for tests. */
export function allMethods() {
  return Object.keys(METHODS);
}

const darkQuery = matchMedia("(prefers-color-scheme: dark)");

/** @returns {boolean} whether the page is dark now */
export function isDark() {
  const choice = document.documentElement.dataset.theme;
  return choice ? choice === "dark" : darkQuery.matches;
}

/** Calls back when the theme changes, by the switch or by the system. @param {() => void} callback */
export function onThemeChange(callback) {
  darkQuery.addEventListener("change", callback);
  new MutationObserver(callback).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

const probe = document.createElement("span");
probe.hidden = true;

/** The colour a CSS variable has in the present theme, as a canvas understands it. @param {string} name */
export function cssColour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
