// One experiment or a sweep: the document that a form edits, whichever it is. docs/sweeps.md describes the fields.

/** @import { Document } from "./types.d.ts" */

import { valueAt, withValue } from "./form.js";

/** For people, not for the fingerprint: a sweep holds them itself, not its base. */
const LABELS = ["name", "tags", "notes"];
/** What a sweep made by the form consists of; anything else was written by hand and is kept. */
const PLAIN = new Set([...LABELS, "base", "grid", "seeds"]);
const SEEDS = 3;
/** How a spec is written; a field that is no longer swept goes back to its place. */
const ORDER = [
  "algorithm",
  "dataset",
  "partition",
  "models",
  "topology",
  "clients",
  "participation",
  "rounds",
  "training",
  "evaluation",
];

/** @type {(value: unknown) => value is Document} */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** @param {Document} document */
export function isSweep(document) {
  return isObject(document) && "base" in document;
}

/** The lists of seeds as written: a list, or {from, count}. @param {Document} document @returns {number[]} */
function seedsOf({ seeds }) {
  if (Array.isArray(seeds)) return seeds;
  if (seeds && Number.isInteger(seeds.from) && Number.isInteger(seeds.count)) {
    return Array.from({ length: Math.min(2000, seeds.count) }, (_, place) => seeds.from + place);
  }
  return [42];
}

/**
 * The values that a field takes; null where it is not swept by the grid. One seed alone is not a sweep.
 * @param {Document} document @param {string} path @returns {unknown[]|null}
 */
export function valuesOf(document, path) {
  if (!isSweep(document)) return null;
  const values = path === "seed" ? seedsOf(document) : document.grid?.[path];
  return Array.isArray(values) && !(path === "seed" && values.length === 1) ? values : null;
}

/**
 * Whether zip or list says what the field is: that is written in the text alone.
 * @param {Document} document @param {string} path
 */
export function sweptElsewhere(document, path) {
  if (!isSweep(document)) return false;
  const entries = [document.zip, ...(Array.isArray(document.list) ? document.list : [])];
  return entries.some((entry) => isObject(entry) && path in entry);
}

/** The value that all experiments share. @param {Document} document @param {string} path */
export function sharedOf(document, path) {
  if (isSweep(document) && path === "seed") return seedsOf(document)[0];
  return valueAt(isSweep(document) && !LABELS.includes(path) ? document.base : document, path);
}

/**
 * The same document with one shared value changed; undefined removes the field.
 * @param {Document} document @param {string} path @param {unknown} value @returns {Document}
 */
export function withShared(document, path, value) {
  if (!isSweep(document) || LABELS.includes(path)) return withValue(document, path, value);
  if (path === "seed") {
    const { seeds: _, ...rest } = document;
    return value === undefined ? rest : { ...rest, seeds: [value] };
  }
  return { ...document, base: withValue(document.base, path, value) };
}

/**
 * The same document with a field that takes these values; null: the first of them alone, for all.
 * @param {Document} document @param {string} path @param {unknown[]|null} values @returns {Document}
 */
export function withValues(document, path, values) {
  if (values === null) return withoutValues(document, path);
  const { base, grid, seeds, ...rest } = isSweep(document) ? document : asSweep(document);
  if (path === "seed") return { ...rest, base, ...(grid ? { grid } : {}), seeds: values };
  return {
    ...rest,
    base: withValue(base, path, undefined),
    grid: { ...grid, [path]: values },
    ...(seeds === undefined ? {} : { seeds }),
  };
}

/** @param {Document} document @param {string} path @returns {Document} */
function withoutValues(document, path) {
  if (path === "seed") return asSpec({ ...document, seeds: seedsOf(document).slice(0, 1) });
  const { [path]: values, ...grid } = document.grid ?? {};
  const base = values?.length ? inOrder(withValue(document.base, path, values[0])) : document.base;
  return asSpec({ ...document, base, grid });
}

/** @param {Document} base */
function inOrder(base) {
  /** @type {(field: [string, unknown]) => number} */
  const place = ([key]) => (ORDER.includes(key) ? ORDER.indexOf(key) : ORDER.length);
  return Object.fromEntries(Object.entries(base).sort((a, b) => place(a) - place(b)));
}

/** @param {Document} spec @returns {Document} */
function asSweep({ name, tags, notes, seed, ...base }) {
  const labels = Object.entries({ name, tags, notes }).filter(([, value]) =>
    value !== undefined && value !== null && value.length
  );
  return { ...Object.fromEntries(labels), base, seeds: [seed ?? 42] };
}

/** One experiment again, when nothing is swept any more. @param {Document} document @returns {Document} */
function asSpec(document) {
  const { base, grid, ...rest } = document;
  const [seed, ...more] = seedsOf(document);
  if (Object.keys(grid ?? {}).length || more.length || Object.keys(rest).some((key) => !PLAIN.has(key))) {
    return document;
  }
  const { seeds: _, ...labels } = rest;
  return { ...labels, ...base, seed };
}

/**
 * The first experiment as a spec: what the partition and the fields of a block are drawn from.
 * @param {Document} document @returns {Document}
 */
export function firstSpec(document) {
  if (!isSweep(document)) return document;
  const { name, tags, notes, base, grid } = document;
  let spec = { name, tags, notes, ...base };
  for (const [path, values] of Object.entries(grid ?? {})) {
    if (Array.isArray(values) && values.length) spec = withValue(spec, path, values[0]);
  }
  return Object.fromEntries(
    Object.entries({ ...spec, seed: seedsOf(document)[0] }).filter(([, value]) => value !== undefined),
  );
}

/** What a field starts with when it becomes swept. @param {string} path @param {unknown} value @returns {unknown[]} */
export function startValues(path, value) {
  if (path === "seed") return Array.from({ length: SEEDS }, (_, place) => Number(value ?? 42) + place);
  return typeof value === "boolean" ? [value, !value] : [value];
}
