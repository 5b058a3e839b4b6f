// What an experiment left behind beside its rounds: enhanced images, features in the plane, files.

/** @import { ArtifactView } from "./api.d.ts" */

import { api, messageOf } from "./api.js";
import { onThemeChange } from "./colours.js";
import { all, fill, h, one, setText } from "./dom.js";
import { live } from "./live.js";
import { Plane } from "./plane.js";
import { notice, working } from "./shell.js";
import { formatBytes, integer } from "./units.js";

const POLL_MILLISECONDS = 2000;
const OPEN = new Set(["wanted", "running"]);

/** @type {Record<string, string>} */
const WHAT = {
  features: "t-SNE of the features",
  "feature-vectors": "The features themselves",
  pictures: "Enhanced images",
  "picture-values": "The images as numbers",
  weights: "Trained networks",
};

/** @type {Record<string, string>} */
const WAITING = {
  features: "Features and t-SNE",
  pictures: "Enhanced images",
  weights: "Trained networks",
};

/** The section of one experiment. */
class Artifacts {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.experiment = root.dataset.experiment ?? "";
    /** @type {ArtifactView[]} */
    this.rows = [];
    this.state = "";
    this.timer = 0;
    /** The artifact whose points are drawn. */
    this.drawn = "";
    /** @type {Plane|null} */
    this.plane = null;
    for (const button of all("[data-want]", root)) {
      button.addEventListener("click", () => this.want(button.dataset.want ?? ""));
    }
    live.onState((experiment) => {
      if (experiment.id === this.experiment && !experiment.deleted_at) this.look(experiment.state);
    });
    document.addEventListener("visibilitychange", () => this.lookAgain(0));
    onThemeChange(() => this.plane?.draw());
  }

  /** @param {string} state */
  async look(state = this.state) {
    clearTimeout(this.timer);
    this.state = state;
    try {
      const { artifacts } = await api.artifacts(this.experiment);
      this.rows = artifacts;
    } catch (error) {
      setText(one("#artifacts-hint"), `Not known: ${messageOf(error)}`);
      return;
    }
    this.render();
    this.lookAgain(POLL_MILLISECONDS);
  }

  /**
   * A safety net: changes come with the events, unless the connection is down. Not while nobody looks.
   * @param {number} wait
   */
  lookAgain(wait) {
    clearTimeout(this.timer);
    if (document.hidden || this.state !== "finished" || !this.rows.some((row) => OPEN.has(row.state))) return;
    this.timer = window.setTimeout(() => this.look(), wait);
  }

  /** @param {string} kind */
  async want(kind) {
    try {
      await working(api.want(this.experiment, kind));
      await this.look();
    } catch (error) {
      notice(`Not asked for: ${messageOf(error)}`, "error");
    }
  }

  render() {
    const finished = this.state === "finished";
    const ready = this.rows.filter((row) => row.state === "ready");
    const open = this.rows.filter((row) => OPEN.has(row.state));
    const failed = this.rows.filter((row) => row.state === "failed");
    setText(
      one("#artifacts-hint"),
      finished
        ? (this.rows.length ? "" : "Made by a worker when you ask for them.")
        : "Available when the experiment has finished.",
    );
    for (const button of this.root.querySelectorAll("[data-want]")) {
      const kind = /** @type {HTMLElement} */ (button).dataset.want;
      /** @type {HTMLElement} */ (button).hidden = !finished || ready.some((row) => row.kind === kind);
      /** @type {HTMLButtonElement} */ (button).disabled = open.some((row) => row.kind === kind);
    }
    const lines = [
      ...(finished ? open : []).map((row) =>
        `${WAITING[row.kind] ?? row.kind}: ${
          row.state === "running"
            ? "a worker makes them now"
            : "waiting for a worker; they are made before the next experiment"
        } …`
      ),
      ...failed.map((row) => `${WAITING[row.kind] ?? row.kind} failed: ${row.error}`),
    ];
    const progress = one("#artifacts-progress");
    progress.hidden = lines.length === 0;
    progress.dataset.failed = String(failed.length > 0);
    setText(progress, lines.join(" · "));
    this.renderFiles(ready);
    this.renderPictures(ready.find((row) => row.kind === "pictures"));
    this.renderPlane(ready.findLast((row) => row.kind === "features"));
  }

  /** @param {ArtifactView[]} ready */
  renderFiles(ready) {
    const frame = one("#artifact-files");
    frame.hidden = ready.length === 0;
    fill(
      one("tbody", frame),
      ready.map((row) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, h("a", { href: address(row), download: row.name }, row.name)),
          h("td", {}, WHAT[row.kind] ?? row.kind),
          h("td", { class: "right" }, formatBytes(row.bytes)),
          h("td", { class: "code", title: row.sha256 }, `${row.sha256?.slice(0, 12)}…`),
          h(
            "td",
            { class: "right" },
            row.kind === "weights"
              ? h("button", {
                type: "button",
                class: "tool",
                "data-copy": "",
                "data-text": pretrained(row),
                title: "The lines of a spec that starts from these networks",
              }, "Copy as models.pretrained")
              : h("button", {
                type: "button",
                class: "tool",
                "data-copy": "",
                "data-text": row.sha256,
                "aria-label": `Copy the checksum of ${row.name}`,
              }, "Copy"),
          ),
        )
      ),
    );
  }

  /** @param {ArtifactView|undefined} row */
  renderPictures(row) {
    const place = one("#artifact-pictures");
    if (!row || place.dataset.drawn === row.id) return;
    place.dataset.drawn = row.id;
    const { samples, count, part } = row.parameters;
    fill(
      place,
      h(
        "figure",
        { class: "pictures" },
        h("img", {
          src: address(row),
          alt: `Images of ${count} clients above what the shared proxy makes of them`,
          loading: "lazy",
        }),
        h(
          "figcaption",
          { class: "muted small" },
          `${
            part === "test" ? "Test" : "Training"
          } images above what the shared proxy of the last round makes of them, up to ${
            integer(samples)
          } of each client. Enhanced values have no fixed range: every image is stretched to black and white on its own. The numbers themselves are in the file below.`,
        ),
      ),
    );
  }

  /** @param {ArtifactView|undefined} row */
  async renderPlane(row) {
    if (!row || this.drawn === row.id) return;
    this.drawn = row.id;
    try {
      const document = await api.document(address(row));
      this.plane = new Plane(one("#artifact-plane"), document, `tsne-${row.id}`);
    } catch (error) {
      this.drawn = "";
      notice(`The t-SNE cannot be read: ${messageOf(error)}`, "error");
    }
  }
}

/** @param {ArtifactView} row */
function address(row) {
  return `/api/artifacts/${encodeURIComponent(row.id)}/file`;
}

/** @param {ArtifactView} row */
function pretrained(row) {
  return `models:\n  pretrained:\n    weights: [${row.sha256}]\n    part: body\n`;
}

/** @param {string} state the experiment's state now */
export function showArtifacts(state) {
  const section = new Artifacts(one("#artifacts"));
  section.look(state);
}
