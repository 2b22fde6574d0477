// Pending pods: groups with the same reason, and the change that would help most of them.

import { html, useState } from './vendor/preact-htm.js';
import { now, read, useStore } from './store.js';
import { duration, groupLink, plural, podLink } from './format.js';
import { useSeconds, waitsFor } from './queue.js';

/** The changes at a path, that would make a pod or pods of a group fit, searched for when the button is pressed. */
export function Counterfactuals({ path }) {
  const [search, setSearch] = useState({ state: 'idle' });
  const start = async () => {
    setSearch({ state: 'running' });
    try {
      const found = await read(`${path}/counterfactuals`);
      setSearch({ state: 'found', found });
    } catch (error) {
      setSearch({ state: 'failed', problem: error.message });
    }
  };
  const { found } = search;
  const helped = (change) => (found.pods > 1 ? html` <span class="quiet">(helps ${change.helped.toLocaleString('en')} of ${plural(found.pods, 'pod')})</span>` : '');
  const [best, ...others] = found?.counterfactuals ?? [];
  return html`<div aria-live="polite">
    <div class="toolbar"><button type="button" disabled=${search.state === 'running'} onClick=${start}>${search.state === 'running' ? 'Searching …' : 'What would help?'}</button></div>
    ${search.state === 'failed' && html`<p class="bad">${search.problem}</p>`}
    ${found && (best ? html`<p><strong>${best.text}</strong>${helped(best)}</p>` : html`<p>${found.feasible ? `It fits on ${plural(found.feasible, 'node')} now.` : 'No small change was found with which the pod fits.'}</p>`)}
    ${others.length > 0 && html`<details><summary>${plural(others.length, 'other change')}</summary><ul>${others.map((other) => html`<li>${other.text}${helped(other)}</li>`)}</ul></details>`}
    ${found?.remarks.map((remark) => html`<p class="quiet">${remark}</p>`)}
  </div>`;
}

function Group({ group }) {
  return html`<section class="panel" aria-label=${`${plural(group.count, 'pod')}, ${group.place}`}>
    <h3>${plural(group.count, 'pod')} <span class="quiet">${group.place}, the oldest for ${duration(Math.max(1, Math.round(now() - group.oldest)))}</span></h3>
    ${group.words.length > 0 && html`<ul>${group.words.map((words) => html`<li>${words}</li>`)}</ul>`}
    ${group.message && html`<p class="quiet">The scheduler: <code>${group.message}</code></p>`}
    <dl><dt>Rejected by</dt><dd>${group.plugins.join(', ') || 'no plugin'}</dd>
      <dt>Tried again after</dt><dd>${waitsFor(group.waitsFor)}</dd>
      <dt>Pods</dt><dd>${group.examples.map((pod) => html`<a href=${podLink(pod)}>${pod}</a> `)}${group.count > group.examples.length && html`<a href=${groupLink(group.id)}>all ${plural(group.count, 'pod')}</a>`}</dd></dl>
    <${Counterfactuals} path=${`groups/${encodeURIComponent(group.id)}`} />
  </section>`;
}

export function View() {
  const { queue } = useStore();
  useSeconds();
  const count = queue.groups.reduce((total, group) => total + group.count, 0);
  return html`<h1>Pending pods</h1>
    <p class="quiet">${plural(count, 'pod')} in ${plural(queue.groups.length, 'group')} of the same reason, the largest first.</p>
    ${queue.groups.length ? queue.groups.map((group) => html`<${Group} key=${group.id} group=${group} />`) : html`<p class="empty">No pod has been rejected.</p>`}`;
}
