// The REST calls of the pages.

/**
 * @import * as Api from "./api.d.ts"
 * @import { Catalogue, CurveColumns, Experiment, Problem, Spec } from "./types.d.ts"
 */

/** An answer that is not a success, with the errors the server listed. */
export class ApiError extends Error {
  /** @param {number} status @param {{field: string, message: string, value: unknown}[]} errors */
  constructor(status, errors) {
    super(errors.map((error) => (error.field ? `${error.field}: ${error.message}` : error.message)).join("; "));
    this.status = status;
    this.errors = errors;
  }
}

/** What went wrong, as a sentence. @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** What the server found wrong with a document, field by field. @param {unknown} error @returns {Problem[]} */
export function problemsIn(error) {
  return error instanceof ApiError ? error.errors : [{ field: "", message: messageOf(error) }];
}

/** Another question has taken the place of this one. @param {unknown} error */
export function isAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} */
async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { headers: { accept: "application/json" }, ...options });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError(0, [{
      field: "",
      message: "The server does not answer. Is FedArena still running?",
      value: null,
    }]);
  }
  const text = await response.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    body = null; // a proxy's HTML page, for example; the status tells enough
  }
  if (response.ok) return body;
  const errors = body?.errors ??
    [{ field: "", message: `The server answered with status ${response.status}.`, value: null }];
  throw new ApiError(response.status, errors);
}

/**
 * @param {string} path @param {unknown} body @param {Record<string, string>} [headers] @param {AbortSignal} [signal]
 */
function post(path, body, headers = {}, signal) {
  return call(path, {
    method: "POST",
    headers: { accept: "application/json", "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal,
  });
}

/** @param {string} path @param {unknown} body */
function patch(path, body) {
  return call(path, {
    method: "PATCH",
    headers: { accept: "application/json", "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

/**
 * YAML goes as it was written: the server alone reads it.
 * @param {string} path @param {string} text @param {Record<string, string>} [headers] @param {AbortSignal} [signal]
 */
function postText(path, text, headers = {}, signal) {
  return call(path, {
    method: "POST",
    headers: { accept: "application/json", "content-type": "application/yaml", ...headers },
    body: text,
    signal,
  });
}

/** @param {Record<string, unknown>} values */
function query(values) {
  const parts = Object.entries(values)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => `${key}=${encodeURIComponent(String(value)).replaceAll("%2C", ",")}`);
  return parts.length ? `?${parts.join("&")}` : "";
}

/**
 * A key of a submission: a request that is sent again with it makes nothing twice. Also where a page came without TLS.
 */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const api = {
  /**
   * @param {Record<string, unknown>} [filter]
   * @returns {Promise<{items: Experiment[], next: string|null, total: number, seq: number}>}
   */
  experiments: (filter = {}) => call(`/api/experiments${query(filter)}`),
  /** @param {string} id @returns {Promise<Experiment>} */
  experiment: (id) => call(`/api/experiments/${encodeURIComponent(id)}`),
  /** @param {string} id @param {number} [after] @returns {Promise<Api.Rounds>} */
  rounds: (id, after = -1) => call(`/api/experiments/${encodeURIComponent(id)}/rounds${query({ after })}`),
  /**
   * @param {string[]} ids @param {number} [points]
   * @returns {Promise<{experiments: Record<string, CurveColumns>, seq: number}>}
   */
  curves: (ids, points) => call(`/api/compare/curves${query({ ids: ids.join(","), points })}`),
  /** @param {string[]} ids @param {string} at @returns {Promise<Api.ClientTable>} */
  clients: (ids, at) => call(`/api/compare/clients${query({ ids: ids.join(","), at })}`),
  /** @param {string[]} ids @param {number} target @returns {Promise<Api.Costs>} */
  costToTarget: (ids, target) => call(`/api/compare/target${query({ ids: ids.join(","), target })}`),
  /** @param {string[]} ids @param {Record<string, string>} options @returns {Promise<Api.Significance>} */
  significance: (ids, options) => call(`/api/compare/significance${query({ ids: ids.join(","), ...options })}`),
  /**
   * As its worker drew it; refused where the data here give another one.
   * @param {string} id @returns {Promise<Api.PartitionPreview>}
   */
  partitionOf: (id) => call(`/api/experiments/${encodeURIComponent(id)}/partition`),
  /** @param {string} id @returns {Promise<Experiment>} */
  cancel: (id) => post(`/api/experiments/${encodeURIComponent(id)}/cancel`, {}),
  /** @param {string} id @returns {Promise<Experiment>} */
  pause: (id) => post(`/api/experiments/${encodeURIComponent(id)}/pause`, {}),
  /** @param {string} id @returns {Promise<Experiment>} */
  resume: (id) => post(`/api/experiments/${encodeURIComponent(id)}/resume`, {}),
  /** @param {string} id @returns {Promise<Experiment>} */
  retry: (id) => post(`/api/experiments/${encodeURIComponent(id)}/retry`, {}),
  /**
   * With another number of rounds.
   * @param {string} id @param {number} rounds @param {string} key @returns {Promise<Api.ExtendedView>}
   */
  extend: (id, rounds, key) =>
    post(`/api/experiments/${encodeURIComponent(id)}/extend`, { rounds }, { "idempotency-key": key }),
  /** @param {string} id @returns {Promise<Experiment>} */
  remove: (id) =>
    call(`/api/experiments/${encodeURIComponent(id)}`, { method: "DELETE", headers: { accept: "application/json" } }),
  /** @param {string} id @returns {Promise<Experiment>} */
  undelete: (id) => post(`/api/experiments/${encodeURIComponent(id)}/undelete`, {}),
  /** @param {string} id @param {number} [after] @returns {Promise<Api.Log>} */
  log: (id, after = 0) => call(`/api/experiments/${encodeURIComponent(id)}/log${query({ after })}`),
  /** @param {string} id @param {Record<string, unknown>} labels @returns {Promise<Experiment>} */
  relabel: (id, labels) => patch(`/api/experiments/${encodeURIComponent(id)}`, labels),
  /** @param {Record<string, unknown>} [filter] @returns {Promise<Api.SweepPage>} */
  sweeps: (filter = {}) => call(`/api/sweeps${query(filter)}`),
  /** @param {string} id @returns {Promise<Api.SweepView>} */
  sweep: (id) => call(`/api/sweeps/${encodeURIComponent(id)}`),
  /** @param {string} text @param {AbortSignal} signal @returns {Promise<Api.SweepCheck>} */
  checkSweep: (text, signal) => postText("/api/sweeps/check", text, {}, signal),
  /**
   * The same, and two rounds tried of what was never measured: it may take some seconds.
   * @param {string} text @param {AbortSignal} signal @returns {Promise<Api.SweepCheck>}
   */
  rehearseSweep: (text, signal) => postText("/api/sweeps/check?rehearse=true", text, {}, signal),
  /** @param {string} text @param {string} key @returns {Promise<Api.SweepView>} */
  submitSweep: (text, key) => postText("/api/sweeps", text, { "idempotency-key": key }),
  /** @param {string} id @returns {Promise<Api.SweepView>} */
  pauseSweep: (id) => post(`/api/sweeps/${encodeURIComponent(id)}/pause`, {}),
  /** @param {string} id @returns {Promise<Api.SweepView>} */
  resumeSweep: (id) => post(`/api/sweeps/${encodeURIComponent(id)}/resume`, {}),
  /** @param {string} id @returns {Promise<Api.SweepView>} */
  cancelSweep: (id) => post(`/api/sweeps/${encodeURIComponent(id)}/cancel`, {}),
  /** @param {string} id @param {number|null} [cell] @returns {Promise<Api.SweepView>} */
  retrySweep: (id, cell = null) => post(`/api/sweeps/${encodeURIComponent(id)}/retry${query({ cell })}`, {}),
  /** @param {string} id @returns {Promise<Api.ArtifactList>} */
  artifacts: (id) => call(`/api/experiments/${encodeURIComponent(id)}/artifacts`),
  /**
   * @param {string} id @param {string} kind @param {Record<string, unknown>} [parameters]
   * @returns {Promise<Api.ArtifactView>}
   */
  want: (id, kind, parameters = {}) =>
    post(`/api/experiments/${encodeURIComponent(id)}/artifacts`, { kind, parameters }),
  /** @param {string} path @returns {Promise<any>} */
  document: (path) => call(path),
  /** @returns {Promise<Catalogue>} */
  catalog: () => call("/api/catalog"),
  /** @param {unknown} spec @param {AbortSignal} signal @returns {Promise<{fingerprint: string, spec: Spec}>} */
  check: (spec, signal) => post("/api/check", spec, {}, signal),
  /** @param {unknown} spec @param {AbortSignal} signal @returns {Promise<Api.Estimated>} */
  estimate: (spec, signal) => post("/api/estimate", spec, {}, signal),
  /** @param {unknown} spec @param {AbortSignal} signal @returns {Promise<Api.PartitionPreview>} */
  partition: (spec, signal) => post("/api/partition", spec, {}, signal),
  /**
   * The key makes a repeated click or a repeated request harmless.
   * @param {unknown} spec @param {string} key @returns {Promise<Experiment>}
   */
  submit: (spec, key) => post("/api/experiments", spec, { "idempotency-key": key }),
};
