// What the scripts use of js-yaml, which lies in static/vendor.

export function load(text: string): unknown;

/** Where a text stops being YAML, and why. */
export class YAMLException extends Error {
  reason: string;
  mark?: { line: number };
}
