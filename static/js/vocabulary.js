// What browser and server both know, said once by the server: app/pages/vocabulary.py puts it into every page.

/** @import { Vocabulary } from "./types.d.ts" */

const block = document.getElementById("vocabulary");

/** @type {Vocabulary} */
export const vocabulary = JSON.parse(block?.textContent || "null");

/** @param {(state: Vocabulary["states"][number]) => boolean} fits @returns {Set<string>} */
function statesThat(fits) {
  return new Set(vocabulary.states.filter(fits).map((state) => state.id));
}

/** In the order in which a filter lists them. */
export const STATES = vocabulary.states.map((state) => state.id);
export const ACTIVE = statesThat((state) => !state.ended);
export const ENDED = statesThat((state) => state.ended);
/** Before all rounds were computed. */
export const ENDED_EARLY = statesThat((state) => state.ended && state.id !== "finished");
/** Those that may be tried again. */
export const RETRIED = statesThat((state) => state.retried);

const WORDS = new Map(vocabulary.states.map((state) => [/** @type {string} */ (state.id), state.title]));

/** @param {string} state */
export function stateWord(state) {
  return WORDS.get(state) ?? state;
}
