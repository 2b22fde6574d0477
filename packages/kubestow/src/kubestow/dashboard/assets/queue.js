// The scheduling queue: how many pods wait where, by pod and by reason.

import { html, useEffect, useMemo, useState } from './vendor/preact-htm.js';
import { now, read, useStore } from './store.js';
import { ago, groupLink, plural, podLink, until } from './format.js';
import { Table } from './table.js';

const PLACES = [
  ['active', 'ready, in the order of their priority'],
  ['in flight', 'popped, being scheduled'],
  ['waiting on permit', 'assumed on a node, a plugin holds the binding'],
  ['backoff', 'tried again when the backoff ends'],
  ['error backoff', 'an internal error ended the attempt'],
  ['unschedulable', 'no node fits, waits for an event'],
  ['gated', 'not admitted to the queue yet'],
];

/** Pods of a page, as the server sends them. */
const PAGE = 100;
/** A page is read again after so many milliseconds at the earliest, and a text is searched when typing pauses. */
const RELOAD_MS = 3000, TYPING_MS = 200;

/** Render a component every second, for times that count down. */
export function useSeconds() {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
}

/** The events that requeue the pods of a group, as text. */
export function waitsFor(events) {
  const all = [...new Set(Object.values(events ?? {}).flat())];
  if (!all.length) return 'no event';
  return all.length > 4 ? `${all.slice(0, 4).join(', ')} and ${all.length - 4} more events` : all.join(', ');
}

function reasonOf(pod, groups) {
  const group = groups.get(pod.group);
  if (pod.plugins) return `permission of ${pod.plugins.join(', ')}`;
  if (!group) return '';
  if (pod.place === 'backoff' || pod.place === 'error backoff') return 'the end of its backoff';
  return waitsFor(group.waitsFor);
}

function retryOf(pod) {
  if (pod.place === 'active') return 'next in turn';
  if (pod.deadline) return `rejected ${until(pod.deadline, now())} at the latest`;
  if (pod.retryAt) return `${pod.place === 'unschedulable' ? 'without an event ' : ''}${until(pod.retryAt, now())}`;
  return pod.place === 'gated' ? 'when the gate opens' : '';
}

/** A page of the queue, read again when the queue changes; null while the stream lists all its pods, or none is read. */
function usePage(isNeeded, place, group, text, offset, stamp) {
  const wanted = `${place} ${group} ${offset} ${text}`;
  const [found, setFound] = useState({ wanted: '', page: null, problem: '', readAt: 0 });
  useEffect(() => {
    if (!isNeeded) return undefined;
    const controller = new AbortController();
    const wait = found.wanted === wanted ? Math.max(0, found.readAt + RELOAD_MS - Date.now()) : TYPING_MS;
    const timer = setTimeout(async () => {
      try {
        const page = await read(`queue?${new URLSearchParams({ place, group, text, offset })}`, { signal: controller.signal });
        setFound({ wanted, page, problem: '', readAt: Date.now() });
      } catch (error) {
        if (error.name !== 'AbortError') setFound({ wanted, page: null, problem: error.message, readAt: Date.now() });
      }
    }, wait);
    return () => { clearTimeout(timer); controller.abort(); };
  }, [isNeeded, wanted, stamp]);
  return isNeeded ? found : { page: null, problem: '' };
}

function Pager({ offset, shown, matches, onMove }) {
  const move = (to, text) => html`<button type="button" disabled=${to < 0 || to >= matches} onClick=${() => onMove(to)}>${text}</button>`;
  return html`<nav class="toolbar" aria-label="Pages of pods">
    ${move(offset ? 0 : -1, 'First')}${move(offset - PAGE, 'Previous')}${move(offset + PAGE, 'Next')}${move(offset + PAGE < matches ? Math.floor((matches - 1) / PAGE) * PAGE : -1, 'Last')}
    <span class="quiet" role="status">${shown ? `${(offset + 1).toLocaleString('en')} to ${(offset + shown).toLocaleString('en')} of ` : ''}${plural(matches, 'pod')}, those that are tried next first</span></nav>`;
}

/** The pods of a place or a group: all of them from the stream if it lists them, else page by page from the server. */
function Pods({ queue, place, group, total }) {
  const [text, setText] = useState('');
  const [offset, setOffset] = useState(0);
  useEffect(() => setOffset(0), [place, group, text]);
  const listed = useMemo(() => queue.pods.filter((pod) => (!place || pod.place === place) && (!group || pod.group === group)), [queue.pods, place, group]);
  const wanted = text.trim().toLowerCase();
  const isComplete = listed.length >= total;
  const { page, problem } = usePage(!isComplete, place, group, wanted, offset, queue);
  const pods = useMemo(
    () => (isComplete || !page ? listed.filter((pod) => pod.pod.includes(wanted)) : page.pods),
    [isComplete, page, listed, wanted],
  );
  const groups = new Map([...queue.groups, ...(page?.groups ?? [])].map((group) => [group.id, group]));
  const columns = [
    { title: 'Pod', value: (pod) => pod.pod, cell: (pod) => html`<a href=${podLink(pod.pod)}>${pod.pod}</a>` },
    { title: 'Place', value: (pod) => pod.place },
    { title: 'Since', isShort: true, value: (pod) => pod.since ?? null, cell: (pod) => (pod.since ? ago(pod.since, now()) : '') },
    { title: 'Attempts', number: true, value: (pod) => pod.attempts ?? null },
    { title: 'Priority', number: true, value: (pod) => pod.priority },
    { title: 'Node', value: (pod) => pod.node ?? '' },
    { title: 'Waits for', isLong: true, value: (pod) => reasonOf(pod, groups) },
    { title: 'Tried again', isShort: true, value: (pod) => pod.retryAt ?? pod.deadline ?? null, cell: retryOf },
  ];
  return html`<div class="controls"><label>Search <input type="search" value=${text} maxlength="320" placeholder="namespace/name"
      onInput=${(event) => setText(event.currentTarget.value)} /></label></div>
    ${!isComplete && page && html`<${Pager} offset=${page.offset} shown=${page.pods.length} matches=${page.matches} onMove=${setOffset} />`}
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    <${Table} caption="Pending pods" columns=${columns} rows=${pods} keyOf=${(pod) => pod.pod} empty=${wanted ? 'No pod matches.' : 'No pod is pending.'} />`;
}

/** The pods that wait for the same reason. The stream has the largest groups only; of others the number is not known. */
function Group({ queue, id }) {
  const group = queue.groups.find((one) => one.id === id);
  return html`<h1>Pods with the same reason</h1>
    <div class="panel">${group ? html`<p>${group.place}: ${group.words.join('; ') || group.message}</p>
      <dl><dt>Rejected by</dt><dd>${group.plugins.join(', ') || 'no plugin'}</dd><dt>Waits for</dt><dd>${waitsFor(group.waitsFor)}</dd></dl>` : html`<p>The reason is not among the commonest now.</p>`}
      <p><a href="#/queue">The whole queue</a></p></div>
    <${Pods} key=${id} queue=${queue} place="" group=${id} total=${group ? group.count : Infinity} />`;
}

export function View({ names: [group] }) {
  const { queue } = useStore();
  useSeconds();
  return group ? html`<${Group} queue=${queue} id=${group} />` : html`<${Queue} queue=${queue} />`;
}

function Queue({ queue }) {
  const [place, setPlace] = useState('');
  const total = place ? queue.counts[place] : PLACES.reduce((count, [name]) => count + queue.counts[name], 0);
  const byReason = [
    { title: 'Pods', number: true, value: (group) => group.count, cell: (group) => html`<a href=${groupLink(group.id)} aria-label=${`${plural(group.count, 'pod')}: list them`}>${group.count.toLocaleString('en')}</a>` },
    { title: 'Place', value: (group) => group.place },
    { title: 'Reason', isLong: true, value: (group) => group.words.join('; ') || group.message },
    { title: 'Rejected by', value: (group) => group.plugins.join(', ') },
    { title: 'Waits for', isLong: true, value: (group) => waitsFor(group.waitsFor) },
    { title: 'Oldest', isShort: true, value: (group) => group.oldest, cell: (group) => ago(group.oldest, now()) },
  ];
  return html`<h1>Scheduling queue</h1>
    <ul class="cards">${PLACES.map(([name, text]) => html`<li><button type="button" class="card" aria-pressed=${place === name}
      onClick=${() => setPlace(place === name ? '' : name)} title=${text}><strong>${queue.counts[name].toLocaleString('en')}</strong><span class="quiet">${name}</span></button></li>`)}</ul>
    <h2>By reason</h2>
    <${Table} caption="Pending pods by reason" columns=${byReason} rows=${queue.groups.filter((group) => !place || group.place === place)} keyOf=${(group) => group.id} empty="No pod has been rejected." />
    <h2>By pod</h2>
    <${Pods} queue=${queue} place=${place} group="" total=${total} />`;
}
