// The REST calls of the pages.

/** An answer that is not a success, with the errors the server listed. */
export class ApiError extends Error {
  /** @param {number} status @param {{field: string, message: string, value: unknown}[]} errors */
  constructor(status, errors) {
    super(errors.map((error) => (error.field ? `${error.field}: ${error.message}` : error.message)).join("; "));
    this.status = status;
    this.errors = errors;
  }
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { headers: { accept: "application/json" }, ...options });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
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

function post(path, body, headers = {}, signal = undefined) {
  return call(path, {
    method: "POST",
    headers: { accept: "application/json", "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal,
  });
}

function patch(path, body) {
  return call(path, {
    method: "PATCH",
    headers: { accept: "application/json", "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** YAML goes as it was written: the server alone reads it. */
function postText(path, text, headers = {}, signal = undefined) {
  return call(path, {
    method: "POST",
    headers: { accept: "application/json", "content-type": "application/yaml", ...headers },
    body: text,
    signal,
  });
}

function query(values) {
  const parts = Object.entries(values)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => `${key}=${encodeURIComponent(String(value)).replaceAll("%2C", ",")}`);
  return parts.length ? `?${parts.join("&")}` : "";
}

/** A key of a submission: a request that is sent again with it makes nothing twice. Also where a page came without TLS. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const api = {
  experiments: (filter = {}) => call(`/api/experiments${query(filter)}`),
  experiment: (id) => call(`/api/experiments/${encodeURIComponent(id)}`),
  rounds: (id, after = -1) => call(`/api/experiments/${encodeURIComponent(id)}/rounds${query({ after })}`),
  curves: (ids, points) => call(`/api/compare/curves${query({ ids: ids.join(","), points })}`),
  clients: (ids, at) => call(`/api/compare/clients${query({ ids: ids.join(","), at })}`),
  costToTarget: (ids, target) => call(`/api/compare/target${query({ ids: ids.join(","), target })}`),
  significance: (ids, options) => call(`/api/compare/significance${query({ ids: ids.join(","), ...options })}`),
  /** As its worker drew it; refused where the data here give another one. */
  partitionOf: (id) => call(`/api/experiments/${encodeURIComponent(id)}/partition`),
  cancel: (id) => post(`/api/experiments/${encodeURIComponent(id)}/cancel`, {}),
  pause: (id) => post(`/api/experiments/${encodeURIComponent(id)}/pause`, {}),
  resume: (id) => post(`/api/experiments/${encodeURIComponent(id)}/resume`, {}),
  retry: (id) => post(`/api/experiments/${encodeURIComponent(id)}/retry`, {}),
  /** With another number of rounds. */
  extend: (id, rounds, key) =>
    post(`/api/experiments/${encodeURIComponent(id)}/extend`, { rounds }, { "idempotency-key": key }),
  remove: (id) =>
    call(`/api/experiments/${encodeURIComponent(id)}`, { method: "DELETE", headers: { accept: "application/json" } }),
  undelete: (id) => post(`/api/experiments/${encodeURIComponent(id)}/undelete`, {}),
  log: (id, after = 0) => call(`/api/experiments/${encodeURIComponent(id)}/log${query({ after })}`),
  relabel: (id, labels) => patch(`/api/experiments/${encodeURIComponent(id)}`, labels),
  sweeps: (filter = {}) => call(`/api/sweeps${query(filter)}`),
  sweep: (id) => call(`/api/sweeps/${encodeURIComponent(id)}`),
  checkSweep: (text, signal) => postText("/api/sweeps/check", text, {}, signal),
  /** The same, and two rounds tried of what was never measured: it may take some seconds. */
  rehearseSweep: (text, signal) => postText("/api/sweeps/check?rehearse=true", text, {}, signal),
  submitSweep: (text, key) => postText("/api/sweeps", text, { "idempotency-key": key }),
  pauseSweep: (id) => post(`/api/sweeps/${encodeURIComponent(id)}/pause`, {}),
  resumeSweep: (id) => post(`/api/sweeps/${encodeURIComponent(id)}/resume`, {}),
  cancelSweep: (id) => post(`/api/sweeps/${encodeURIComponent(id)}/cancel`, {}),
  retrySweep: (id, cell = null) => post(`/api/sweeps/${encodeURIComponent(id)}/retry${query({ cell })}`, {}),
  artifacts: (id) => call(`/api/experiments/${encodeURIComponent(id)}/artifacts`),
  want: (id, kind, parameters = {}) =>
    post(`/api/experiments/${encodeURIComponent(id)}/artifacts`, { kind, parameters }),
  document: (path) => call(path),
  catalog: () => call("/api/catalog"),
  check: (spec, signal) => post("/api/check", spec, {}, signal),
  estimate: (spec, signal) => post("/api/estimate", spec, {}, signal),
  partition: (spec, signal) => post("/api/partition", spec, {}, signal),
  /** The key makes a repeated click or a repeated request harmless. */
  submit: (spec, key) => post("/api/experiments", spec, { "idempotency-key": key }),
};
