// The scheduling queue: how many pods wait where, by pod and by reason.

import { html, useEffect, useState } from './vendor/preact-htm.js';
import { now, useStore } from './store.js';
import { ago, plural, podLink, until } from './format.js';
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

export function View() {
  const { queue } = useStore();
  useSeconds();
  const [place, setPlace] = useState('');
  const groups = new Map(queue.groups.map((group) => [group.id, group]));
  const pods = queue.pods.filter((pod) => !place || pod.place === place);
  const total = place ? queue.counts[place] : PLACES.reduce((count, [name]) => count + queue.counts[name], 0);
  const columns = [
    { title: 'Pod', value: (pod) => pod.pod, cell: (pod) => html`<a href=${podLink(pod.pod)}>${pod.pod}</a>` },
    { title: 'Place', value: (pod) => pod.place },
    { title: 'Since', value: (pod) => pod.since ?? null, cell: (pod) => (pod.since ? ago(pod.since, now()) : '') },
    { title: 'Attempts', number: true, value: (pod) => pod.attempts ?? null },
    { title: 'Priority', number: true, value: (pod) => pod.priority },
    { title: 'Node', value: (pod) => pod.node ?? '' },
    { title: 'Waits for', value: (pod) => reasonOf(pod, groups) },
    { title: 'Tried again', value: (pod) => pod.retryAt ?? pod.deadline ?? null, cell: retryOf },
  ];
  const byReason = [
    { title: 'Pods', number: true, value: (group) => group.count },
    { title: 'Place', value: (group) => group.place },
    { title: 'Reason', value: (group) => group.words.join('; ') || group.message },
    { title: 'Rejected by', value: (group) => group.plugins.join(', ') },
    { title: 'Waits for', value: (group) => waitsFor(group.waitsFor) },
    { title: 'Oldest', value: (group) => group.oldest, cell: (group) => ago(group.oldest, now()) },
  ];
  return html`<h1>Scheduling queue</h1>
    <ul class="cards">${PLACES.map(([name, text]) => html`<li><button type="button" class="card" aria-pressed=${place === name}
      onClick=${() => setPlace(place === name ? '' : name)} title=${text}><strong>${queue.counts[name].toLocaleString('en')}</strong><span class="quiet">${name}</span></button></li>`)}</ul>
    <h2>By reason</h2>
    <${Table} caption="Pending pods by reason" columns=${byReason} rows=${queue.groups.filter((group) => !place || group.place === place)} keyOf=${(group) => group.id} empty="No pod has been rejected." />
    <h2>By pod</h2>
    ${pods.length < total && html`<p class="quiet">${pods.length} of ${plural(total, 'pod')}: of each place those that are tried next.</p>`}
    <${Table} caption="Pending pods" columns=${columns} rows=${pods} keyOf=${(pod) => pod.pod} empty="No pod is pending." />`;
}
