// What every page has: theme switch, live dot, queue count, offline banner, keys and copy buttons.

import { copy, h, one, setText } from "./dom.js";
import { live } from "./live.js";

const QUEUE_EVERY = 20_000;
const THEMES = ["system", "light", "dark"];

function themeSwitch() {
  const button = one("#theme");
  const current = () => document.documentElement.dataset.theme ?? "system";
  const label = () => {
    setText(one(".theme-word", button), current());
    button.dataset.choice = current();
    button.setAttribute("aria-label", `Theme: ${current()}. Change it`);
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem("fedarena.theme");
      else localStorage.setItem("fedarena.theme", next);
    } catch (error) {
      console.info("The theme is not remembered because storage is blocked.", error);
    }
    label();
  });
  label();
}

const LIVE_WORDS = { connecting: "connecting", live: "live", offline: "offline", sleeping: "paused" };
const LIVE_HELP = {
  connecting: "Connecting to the server",
  live: "Connected: the page is current",
  offline: "Not connected: trying again by itself",
  sleeping: "The tab was hidden; it catches up when it is shown",
};

function liveDot() {
  const dot = one("#live");
  const banner = one("#offline");
  const since = one("#offline-since");
  let timer = 0;
  const show = () => {
    dot.dataset.state = live.state;
    dot.title = LIVE_HELP[live.state];
    setText(one(".live-word", dot), LIVE_WORDS[live.state]);
    clearTimeout(timer);
    // a short break, as during a restart of the server, is not worth a banner
    if (live.state === "offline") timer = window.setTimeout(() => (banner.hidden = false), 1500);
    else banner.hidden = true;
    setText(since, new Date(live.seen).toLocaleTimeString("en-GB"));
  };
  live.addEventListener("change", show);
  one("#offline-retry").addEventListener("click", () => live.connect());
  show();
}

/** Read anew after a change of state: this page's stream may be about other experiments only. */
function queueCount() {
  /** @type {number} */
  let timer = 0;
  const read = async () => {
    if (document.hidden) return;
    try {
      const { running, queued } = await (await fetch("/queue.json")).json();
      setText(one("#queue"), `${running} running · ${queued} queued`);
    } catch (error) {
      console.info("The queue could not be read.", error); // the live dot shows that the server is away
    }
  };
  const soon = () => {
    clearTimeout(timer);
    timer = window.setTimeout(read, 200);
  };
  live.onState(soon);
  live.addEventListener("change", soon);
  setInterval(read, QUEUE_EVERY);
  read();
}

function keys() {
  const dialog = /** @type {HTMLDialogElement} */ (one("#keys"));
  one("#show-keys").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (event.key === "?") {
      event.preventDefault();
      dialog.showModal();
    } else if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) {
        event.preventDefault();
        search.closest("details")?.setAttribute("open", "");
        /** @type {HTMLInputElement} */ (search).focus();
      }
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && target.matches(".rows .name-link")) {
      const links = [...document.querySelectorAll(".rows .name-link")].filter((link) =>
        link.closest("table") === target.closest("table")
      );
      const next = links[links.indexOf(target) + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) {
        event.preventDefault();
        /** @type {HTMLElement} */ (next).focus();
      }
    } else if (event.key === "c") {
      document.dispatchEvent(new Event("fedarena:compare"));
    } else if (event.key === "n") {
      location.assign("/new#first");
    }
  });
}

function copyButtons() {
  document.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest?.("[data-copy]");
    if (!(button instanceof HTMLElement)) return;
    const source = button.dataset.copy ? document.getElementById(button.dataset.copy) : null;
    copy(button, source?.textContent ?? button.dataset.text ?? "");
  });
}

/**
 * A short message at the bottom of the page, for what happened and what to do.
 * @param {string} text @param {"info"|"error"} kind @param {{word: string, act: () => unknown}|null} offer
 */
export function notice(text, kind = "info", offer = null) {
  const box = h("div", { class: "notice", data: { kind }, role: kind === "error" ? "alert" : "status" }, text);
  if (offer) {
    const click = () => {
      box.remove();
      offer.act();
    };
    box.append(h("button", { type: "button", class: "tool", on: { click } }, offer.word));
  }
  one("#notices").append(box);
  setTimeout(() => box.remove(), kind === "error" || offer ? 12_000 : 4000);
}

/**
 * How far something with several parts is, told once it takes long.
 * @param {number} total @param {number} wait milliseconds
 */
export function progress(total, wait = 2000) {
  const box = h("div", { class: "notice", role: "status", hidden: true });
  let done = 0;
  const show = () => setText(box, `${done} of ${total} …`);
  const timer = setTimeout(() => (box.hidden = total < 2), wait);
  show();
  one("#notices").append(box);
  return {
    step() {
      done += 1;
      show();
    },
    end() {
      clearTimeout(timer);
      box.remove();
    },
  };
}

/** A thin line under the top bar while something takes longer than a blink. @template T @param {Promise<T>} promise */
export async function working(promise) {
  const bar = one("#working");
  const timer = setTimeout(() => (bar.hidden = false), 200);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    bar.hidden = true;
  }
}

/** Reports what no page expected; a silent failure would look like missing data. */
window.addEventListener(
  "unhandledrejection",
  (event) => notice(String(event.reason?.message ?? event.reason), "error"),
);

themeSwitch();
liveDot();
queueCount();
keys();
copyButtons();
