// The live connection: one EventSource for the whole tab, which resumes after the last event it has seen.

/** @import { Experiment, LiveRound } from "./types.d.ts" */

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15_000;
const HIDDEN_GRACE = 2000;
/** The server speaks every 15 seconds at least. */
const LONGEST_SILENCE = 40_000;
const LOOK_EVERY = 5000;

/** @typedef {"connecting"|"live"|"offline"|"sleeping"} LiveState */

/** One per tab; pages add listeners and start it once. */
class Live extends EventTarget {
  constructor() {
    super();
    /** @type {LiveState} */
    this.state = "connecting";
    /** Id of the last event; a new connection asks for everything after it. @type {number|null} */
    this.last = null;
    /** Time at which the data was last known to be complete. */
    this.seen = Date.now();
    /** Time of the last sign of life, or of the question for one. */
    this.heard = Date.now();
    this.retryAt = 0;
    this.started = false;
    /** @type {EventSource|null} */
    this.source = null;
    this.wait = FIRST_WAIT;
    this.timer = 0;
    this.hiddenTimer = 0;
    /** @type {string[]} */
    this.experiments = [];
  }

  /**
   * Without a number the stream starts with what happens next.
   * @param {{after: number|null, experiments?: string[]}} options
   */
  start({ after, experiments = [] }) {
    this.last ??= after;
    this.experiments = experiments;
    if (this.started) {
      this.connect();
      return;
    }
    this.started = true;
    document.addEventListener("visibilitychange", () => this.visibility());
    window.addEventListener("online", () => document.hidden || this.connect());
    setInterval(() => this.listen(), LOOK_EVERY);
    window.addEventListener("pagehide", () => this.close());
    window.addEventListener("pageshow", (event) => event.persisted && this.connect());
    if (!document.hidden) this.connect();
    else this.set("sleeping");
  }

  connect() {
    this.close();
    this.set(this.state === "offline" ? "offline" : "connecting");
    const parts = [];
    if (this.last !== null) parts.push(`after=${this.last}`);
    if (this.experiments.length) parts.push(`experiments=${this.experiments.join(",")}`);
    const source = new EventSource(`/api/events${parts.length ? "?" : ""}${parts.join("&")}`);
    this.source = source;
    this.heard = Date.now();
    source.addEventListener("open", () => {
      this.wait = FIRST_WAIT;
      this.seen = this.heard = Date.now();
      this.set("live");
    });
    source.addEventListener("ping", (event) => this.note(event));
    source.addEventListener("state", (event) => this.receive("state", event));
    source.addEventListener("round", (event) => this.receive("round", event));
    // the browser would repeat the first address with its old `after`; a new source asks after the last id instead
    source.addEventListener("error", () => {
      this.close();
      this.set("offline");
      this.retryAt = Date.now() + this.wait;
      this.timer = window.setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
      this.dispatchEvent(new Event("change"));
    });
  }

  /** A sleeping computer or a frozen tunnel breaks no connection: only the silence tells. */
  listen() {
    if (!this.source || Date.now() - this.heard < LONGEST_SILENCE) return;
    this.set("offline");
    this.connect();
  }

  /** @param {MessageEvent} event */
  note(event) {
    const id = Number(event.lastEventId);
    if (id) this.last = id;
    this.seen = this.heard = Date.now();
  }

  /** @param {"state"|"round"} kind @param {MessageEvent} event */
  receive(kind, event) {
    this.note(event);
    this.dispatchEvent(new CustomEvent(kind, { detail: JSON.parse(event.data) }));
  }

  visibility() {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) {
      this.hiddenTimer = window.setTimeout(() => {
        this.close();
        this.set("sleeping");
      }, HIDDEN_GRACE);
    } else if (!this.source) {
      this.connect();
    }
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  /** @param {LiveState} state */
  set(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new Event("change"));
  }

  /** @param {(experiment: Experiment) => void} listener */
  onState(listener) {
    this.addEventListener("state", (event) => listener(/** @type {CustomEvent} */ (event).detail));
  }

  /** @param {(record: LiveRound) => void} listener */
  onRound(listener) {
    this.addEventListener("round", (event) => listener(/** @type {CustomEvent} */ (event).detail));
  }
}

export const live = new Live();

/** Runs a function at most once per painted frame, however many events arrive. @param {() => void} callback */
export function perFrame(callback) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      callback();
    });
  };
}
