// Which client was left out in which rounds, and why: what was not finite did not count.

import { fillRows, h } from "./dom.js";

/** @typedef {{client: number|null, part: string, reason: string}} Dropped */

/** 3, 4, 5, 9 → "3–5, 9". @param {number[]} rounds ascending */
export function ranges(rounds) {
  /** @type {[number, number][]} */
  const spans = [];
  for (const round of rounds) {
    const last = spans.at(-1);
    if (last && round === last[1] + 1) last[1] = round;
    else spans.push([round, round]);
  }
  return spans.map(([first, last]) => (first === last ? String(first) : `${first}–${last}`)).join(", ");
}

export class LeftOut {
  /** @param {HTMLElement} panel */
  constructor(panel) {
    this.panel = panel;
    /** @type {Map<string, {note: Dropped, rounds: number[]}>} */
    this.rows = new Map();
  }

  /** @param {{round: number, dropped?: Dropped[]}} record rounds come in order */
  take({ round, dropped }) {
    for (const note of dropped ?? []) {
      const key = JSON.stringify([note.client, note.part, note.reason]);
      const row = this.rows.get(key) ?? { note, rounds: [] };
      row.rounds.push(round);
      this.rows.set(key, row);
    }
  }

  render() {
    this.panel.hidden = this.rows.size === 0;
    const ordered = [...this.rows].sort(([, a], [, b]) => (a.note.client ?? Infinity) - (b.note.client ?? Infinity));
    const body = /** @type {HTMLElement} */ (this.panel.querySelector("tbody"));
    fillRows(
      body,
      ordered.map(([key, { note, rounds }]) =>
        h(
          "tr",
          { data: { key } },
          h("td", {}, note.client === null ? "Server" : `Client ${note.client}`),
          h("td", {}, note.part),
          h("td", {}, note.reason),
          h("td", { class: "num" }, ranges(rounds)),
        )
      ),
    );
  }
}
