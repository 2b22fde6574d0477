// The state of the page: what the event stream has sent, and requests to the server.

import { useEffect, useState } from './vendor/preact-htm.js';

/** The address below which the data is: …/dashboard/ */
const DATA = new URL('../', import.meta.url);
/** The address of the API server, where `kubestow up` serves the page. */
const API = new URL('../../', import.meta.url);

const RECONNECT_MS = [500, 1000, 2000, 5000, 10000];
/** A hidden page ends its stream after so many milliseconds. */
const HIDDEN_MS = 60000;
const TIMELINE_SECONDS = 300;

export const state = {
  status: 'connecting', problem: '', time: 0, clockSkew: 0, revision: 0,
  version: null, nodes: null, queue: null, decisions: null, gangs: null, reports: null, api: false,
};

const listeners = new Set();
let token = '';
let askForToken = null;
let stream = null;

function changed(values) {
  Object.assign(state, values);
  state.revision += 1;
  for (const listener of listeners) listener(state.revision);
}

/** Render a component again whenever something arrives. */
export function useStore() {
  const [, setRevision] = useState(0);
  useEffect(() => {
    listeners.add(setRevision);
    return () => listeners.delete(setRevision);
  }, []);
  return state;
}

/** Seconds since 1970 as the scheduler's clock has them. */
export const now = () => Date.now() / 1000 + state.clockSkew;

const headers = (more = {}) => (token ? { ...more, Authorization: `Bearer ${token}` } : more);

async function problemOf(response) {
  try {
    return (await response.json()).message || response.statusText;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

/** Read plain data below /dashboard/. Throws an Error with the server's message. */
export async function read(path, options = {}) {
  const response = await fetch(new URL(path, DATA), { ...options, headers: headers() });
  if (!response.ok) throw new Error(await problemOf(response));
  return response.json();
}

/** Send a request to the API server. Throws an Error with its message. */
export async function send(method, path, body, contentType = 'application/json') {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const sent = { method, headers: headers(body === undefined ? {} : { 'Content-Type': contentType }) };
  const response = await fetch(new URL(path, API), body === undefined ? sent : { ...sent, body: text });
  if (!response.ok) throw new Error(await problemOf(response));
  return response.json();
}

// -- the stream -------------------------------------------------------------------------------------------------------

function applyNodes(change) {
  if (change.names) return change;
  const { nodes } = state;
  const cordoned = new Set(nodes.cordoned);
  change.rows.forEach((row, at) => {
    for (const kind of ['requested', 'allocatable']) {
      for (const [name, values] of Object.entries(change[kind])) nodes[kind][name][row] = values[at];
    }
    if (change.cordoned[at]) cordoned.add(row); else cordoned.delete(row);
  });
  return { ...nodes, cordoned: [...cordoned] };
}

function applyDecisions(change) {
  const points = new Map((state.decisions?.points ?? []).map((point) => [point.time, point]));
  for (const point of change.points) points.set(point.time, point);
  const oldest = now() - TIMELINE_SECONDS;
  const kept = [...points.values()].filter((point) => point.time > oldest).sort((one, other) => one.time - other.time);
  return { points: kept, attempts: change.attempts };
}

function receive(event, data) {
  const values = { time: data.time, status: 'live', problem: '', clockSkew: data.time - Date.now() / 1000 };
  if (event === 'snapshot') {
    changed({ ...values, version: data.version, nodes: data.nodes, queue: data.queue, decisions: data.decisions, gangs: data.gangs, reports: data.reports });
    return;
  }
  if (data.nodes) values.nodes = applyNodes(data.nodes);
  if (data.queue) values.queue = data.queue;
  if (data.decisions) values.decisions = applyDecisions(data.decisions);
  if (data.gangs) values.gangs = data.gangs;
  if (data.reports) values.reports = data.reports;
  changed(values);
}

async function readEvents(signal) {
  const response = await fetch(new URL('events', DATA), { headers: headers(), cache: 'no-store', signal });
  if (response.status === 401 || response.status === 403) {
    changed({ status: 'denied', problem: await problemOf(response) });
    await new Promise((resolve) => { askForToken = resolve; });
    return;
  }
  if (!response.ok) throw new Error(await problemOf(response));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    pending += value;
    for (let end = pending.indexOf('\n\n'); end >= 0; end = pending.indexOf('\n\n')) {
      const [event, data] = pending.slice(0, end).split('\n', 2);
      pending = pending.slice(end + 2);
      if (data) receive(event.slice('event: '.length), JSON.parse(data.slice('data: '.length)));
    }
  }
}

const visible = () => new Promise((resolve) => {
  if (!document.hidden) resolve();
  else document.addEventListener('visibilitychange', resolve, { once: true });
});

async function follow() {
  for (let failures = 0; ;) {
    await visible();
    stream = new AbortController();
    const revision = state.revision;
    try {
      await readEvents(stream.signal);
    } catch (error) {
      if (!document.hidden) changed({ status: 'lost', problem: error.message });
    }
    failures = state.revision > revision + 1 ? 0 : failures + 1;
    await new Promise((resolve) => { setTimeout(resolve, RECONNECT_MS[Math.min(failures, RECONNECT_MS.length - 1)]); });
  }
}

/** Use a bearer token from now on. It is kept in memory only. */
export function authenticate(given) {
  token = given.trim();
  changed({ status: 'connecting', problem: '' });
  askForToken?.();
  detectAPI();
}

/** Whether this is a development cluster, whose API server serves the page. */
async function detectAPI() {
  try {
    const version = await (await fetch(new URL('version', API), { headers: headers() })).json();
    changed({ api: version.compiler === 'kubestow' });
  } catch {
    changed({ api: false });
  }
}

export function start() {
  let timer = 0;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => stream?.abort(), HIDDEN_MS);
  });
  follow();
  detectAPI();
}
