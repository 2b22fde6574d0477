// One pod: its attempts, what every plugin says of every node, why this node and not that one, and preemption.

import { html, useEffect, useMemo, useState } from './vendor/preact-htm.js';
import { now, read, useStore } from './store.js';
import { ago, amount, clock, duration, nodeLink, plural, podLink, until } from './format.js';
import { Counterfactuals } from './pending.js';
import { Table } from './table.js';

const NOT_RUN = -2, SKIPPED = -1, PASSED = 0;
const RELOAD_MS = 1500;

/** The details of a pod, read again when it appears among the latest attempts or in another place of the queue. */
function usePod(key) {
  const { decisions, queue } = useStore();
  const attempt = decisions.attempts.find((one) => one.pod === key);
  const place = queue.pods.find((one) => one.pod === key)?.place ?? '';
  const stamp = `${attempt?.number} ${attempt?.time} ${attempt?.node} ${place}`;
  const [found, setFound] = useState({ key: '', pod: null, problem: '', readAt: 0 });
  const [requested, reload] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    const wait = found.key === key ? Math.max(0, found.readAt + RELOAD_MS - Date.now()) : 0;
    const timer = setTimeout(async () => {
      try {
        const pod = await read(`pods/${key.split('/').map(encodeURIComponent).join('/')}`, { signal: controller.signal });
        setFound({ key, pod, problem: '', readAt: Date.now() });
      } catch (error) {
        if (error.name !== 'AbortError') setFound({ key, pod: null, problem: error.message, readAt: Date.now() });
      }
    }, wait);
    return () => { clearTimeout(timer); controller.abort(); };
  }, [key, stamp, requested]);
  return { ...(found.key === key ? found : { pod: null, problem: '' }), reload: () => reload((count) => count + 1) };
}

/** One object per node: its verdicts by filter, its total, rank and scores if the pod fits. */
function nodeRows(evaluation) {
  const { nodes, filters, scores, totals } = evaluation;
  const rows = nodes.map((name, at) => {
    const rejections = filters.filter((filter) => filter.codes[at] > PASSED);
    const status = rejections.length ? rejections[0].statuses[rejections[0].codes[at] - 1] : null;
    return {
      name, at, place: -1, total: null, rank: null,
      rejections: rejections.length, by: rejections[0]?.plugin ?? '', reason: status ? status.reasons.join('; ') : '', code: status?.code ?? '',
    };
  });
  evaluation.rows.forEach((at, place) => {
    const isTied = place > 0 && totals[place] === totals[place - 1];
    const rank = isTied ? rows[evaluation.rows[place - 1]].rank : place + 1;
    Object.assign(rows[at], { place, total: totals[place], rank });
  });
  return { rows, scores };
}

function verdict(filter, at) {
  const code = filter.codes[at];
  if (code === SKIPPED) return html`<span class="quiet">skipped</span>`;
  if (code === NOT_RUN) return html`<span class="quiet">not run</span>`;
  if (code === PASSED) return html`<span class="good">passed</span>`;
  return html`<span class="bad">${filter.statuses[code - 1].reasons.join('; ') || 'rejected'}</span>`;
}

const scoreText = (score, place) => `${score.raw[place]} → ${score.normalized[place]} × ${score.weight} = ${score.normalized[place] * score.weight}`;

function Evaluation({ pod }) {
  const { evaluation } = pod;
  const [filter, setFilter] = useState('');
  const [which, setWhich] = useState('all');
  const [withSkipped, setWithSkipped] = useState(false);
  const { rows, scores } = useMemo(() => nodeRows(evaluation), [evaluation]);
  const filters = evaluation.filters.filter((one) => withSkipped || one.codes.some((code) => code !== SKIPPED));
  const columns = useMemo(() => [
    { title: 'Node', isShort: true, value: (row) => row.name, cell: (row) => html`<a href=${nodeLink(row.name)}>${row.name}</a>${row.name === pod.node ? html` <strong>(its node)</strong>` : ''}` },
    { title: 'Verdict', value: (row) => (row.total === null ? 1 : 0), cell: (row) => (row.total === null ? html`<span class="bad">rejected</span>` : html`<span class="good">fits</span>`) },
    { title: 'Reason', isLong: true, value: (row) => row.reason, cell: (row) => (row.reason ? `${row.by}: ${row.reason}${row.rejections > 1 ? ` (and ${plural(row.rejections - 1, 'plugin')} more)` : ''}` : '') },
    { title: 'Total', number: true, value: (row) => row.total },
    { title: 'Rank', number: true, value: (row) => row.rank },
    ...scores.map((score) => ({
      title: score.plugin, hint: 'raw → normalised × weight = weighted score', number: true,
      value: (row) => (row.place < 0 ? null : score.normalized[row.place] * score.weight),
      cell: (row) => (row.place < 0 ? '' : scoreText(score, row.place)),
    })),
    ...filters.map((one) => ({ title: `${one.plugin} (filter)`, value: (row) => one.codes[row.at], cell: (row) => verdict(one, row.at) })),
  ], [evaluation, withSkipped, pod.node]);
  const wanted = filter.toLowerCase();
  const shown = useMemo(() => rows.filter((row) => (which === 'all' || (which === 'fits') === (row.total !== null))
    && (!wanted || `${row.name} ${row.by} ${row.reason}`.toLowerCase().includes(wanted))), [rows, which, wanted]);
  return html`<h2>Plugins by node</h2>
    <p class="quiet">As of ${clock(pod.time)}: it fits on ${evaluation.rows.length.toLocaleString('en')} of ${plural(rows.length, 'node')}. Scores: raw → normalised × weight = weighted.</p>
    <div class="controls">
      <label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.currentTarget.value)} placeholder="node, plugin or reason" /></label>
      <label>Nodes <select value=${which} onChange=${(event) => setWhich(event.currentTarget.value)}><option value="all">all</option><option value="fits">that fit</option><option value="rejected">that are rejected</option></select></label>
      <label class="check"><input type="checkbox" checked=${withSkipped} onChange=${(event) => setWithSkipped(event.currentTarget.checked)} />plugins that have nothing to check</label>
    </div>
    <${Table} caption="Verdicts and scores by node" columns=${columns} rows=${shown} sortBy=${3} descending=${true} keyOf=${(row) => row.at} empty="No node matches." />
    <${Comparison} pod=${pod} rows=${rows} scores=${scores} />`;
}

function Comparison({ pod, rows, scores }) {
  const { evaluation } = pod;
  const best = evaluation.rows.map((at) => rows[at]);
  const own = rows.find((row) => row.name === pod.node);
  const [names, setNames] = useState([null, null]);
  const one = rows.find((row) => row.name === (names[0] ?? own?.name ?? best[0]?.name ?? rows[0]?.name));
  const other = rows.find((row) => row.name === (names[1] ?? best.find((row) => row !== one)?.name ?? rows.find((row) => row !== one)?.name));
  if (rows.length < 2) return null;
  const choice = (at, row, title) => html`<label>${title} <input list="node-names" value=${names[at] ?? row?.name ?? ''}
    onInput=${(event) => { const { value } = event.currentTarget; setNames((former) => former.map((name, index) => (index === at ? value : name))); }} /></label>`;
  return html`<h2>Why this node and not that one</h2>
    <datalist id="node-names">${rows.slice(0, 1000).map((row) => html`<option value=${row.name} />`)}</datalist>
    <div class="controls">${choice(0, one, 'This node')}${choice(1, other, 'That node')}</div>
    ${one && other ? html`<${Difference} one=${one} other=${other} scores=${scores} />` : html`<p class="quiet">Choose two nodes.</p>`}`;
}

function Difference({ one, other, scores }) {
  const rejected = [one, other].filter((row) => row.total === null);
  if (rejected.length) {
    return html`<ul aria-live="polite">${rejected.map((row) => html`<li><strong>${row.name}</strong> is rejected by ${row.by}: ${row.reason}</li>`)}</ul>`;
  }
  const lines = scores.map((score) => ({
    plugin: score.plugin, one: scoreText(score, one.place), other: scoreText(score, other.place),
    difference: (score.normalized[one.place] - score.normalized[other.place]) * score.weight,
  }));
  const difference = one.total - other.total;
  const [ahead, behind] = difference >= 0 ? [one, other] : [other, one];
  const decisive = lines.filter((line) => line.difference).sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
  const text = difference === 0 ? `${one.name} and ${other.name} have the same total, ${one.total}: one of them is chosen at random.`
    : `${ahead.name} (total ${ahead.total}) is preferred to ${behind.name} (total ${behind.total}), mainly by ${decisive[0]?.plugin}.`;
  const columns = [
    { title: 'Plugin', value: (line) => line.plugin },
    { title: one.name, value: (line) => line.one },
    { title: other.name, value: (line) => line.other },
    { title: 'Difference', number: true, value: (line) => line.difference, cell: (line) => (line.difference > 0 ? `+${line.difference}` : String(line.difference)) },
  ];
  return html`<p aria-live="polite">${text}</p><${Table} caption="Scores of both nodes" columns=${columns} rows=${lines} keyOf=${(line) => line.plugin} />`;
}

/** Preemption candidates with the scheduler's criteria, which are compared from left to right. */
function Candidates({ candidates, caption, marked, mark }) {
  const rows = candidates.map((candidate, at) => ({ ...candidate, at }));
  const columns = [
    { title: 'Order', number: true, value: (row) => row.at + 1 },
    { title: 'Node', isShort: true, value: (row) => row.node, cell: (row) => html`<a href=${nodeLink(row.node)}>${row.node}</a>${row.node === marked ? html` <strong>(${mark})</strong>` : ''}` },
    { title: 'Budget violations', number: true, value: (row) => row.violations },
    { title: 'Highest priority', number: true, value: (row) => row.highestPriority },
    { title: 'Sum of priorities', number: true, value: (row) => row.prioritySum },
    { title: 'Victims', number: true, value: (row) => row.count },
    { title: 'Started first', value: (row) => row.earliestStart, cell: (row) => (row.earliestStart ? clock(row.earliestStart) : '') },
    { title: 'Pods', value: (row) => row.victims.length, cell: (row) => html`<${Victims} candidate=${row} />` },
  ];
  return html`<${Table} caption=${caption} columns=${columns} rows=${rows} keyOf=${(row) => row.node} empty="No evictions would make the pod fit." />`;
}

function Victims({ candidate }) {
  const others = candidate.count - candidate.victims.length;
  return html`${candidate.victims.map((victim) => html`<a href=${podLink(victim.pod)}>${victim.pod}</a> `)}${others > 0 ? `and ${others} more` : ''}`;
}

function Preemption({ pod }) {
  const { candidates, note, tried } = pod.preemption;
  if (!tried) return html`<h2>Preemption now</h2><p>${note[0].toUpperCase()}${note.slice(1)}.</p>`;
  return html`<h2>Preemption now</h2>
    <p class="quiet">Nodes where evictions would make the pod fit, of ${plural(tried, 'node')} tried. The criteria are compared from left to right; less is better, and a later start.${note ? ` ${note[0].toUpperCase()}${note.slice(1)}.` : ''}</p>
    <${Candidates} caption="Preemption candidates" candidates=${candidates} marked=${pod.nominatedNode} mark="nominated" />`;
}

/** The preemptions of past attempts, as they were decided on. */
function PastPreemptions({ attempts }) {
  const preempting = attempts.filter((attempt) => attempt.preemption).reverse();
  if (!preempting.length) return null;
  return html`<h2>Preemption in past attempts</h2>${preempting.map(({ number, time, preemption: { chosen, best, found } }, at) => html`
    <details key=${number} class="panel" open=${at === 0}>
      <summary>Attempt ${number}, ${clock(time)}: ${plural(chosen.count, 'pod')} evicted from ${chosen.node === 'cluster' ? 'the nodes of the gang' : chosen.node}</summary>
      ${found === null ? html`<p class="quiet">${chosen.violations === null ? 'The victims of a gang are chosen in the whole cluster.' : 'The other candidates were not recorded: that is done while a dashboard is open.'}</p>`
        : html`<p class="quiet">The best of ${plural(found, 'candidate')} at that time. The criteria are compared from left to right; less is better, and a later start.</p>`}
      <${Candidates} caption=${`Preemption candidates of attempt ${number}`} candidates=${best.length ? best : [chosen]} marked=${chosen.node} mark="chosen" />
    </details>`)}`;
}

function Attempts({ attempts }) {
  const columns = [
    { title: 'Attempt', number: true, value: (one) => one.number },
    { title: 'Time', value: (one) => one.time, cell: (one) => clock(one.time) },
    { title: 'Took', number: true, value: (one) => one.seconds, cell: (one) => duration(one.seconds) },
    { title: 'Result', value: (one) => one.result, cell: (one) => html`<span class=${one.result === 'scheduled' ? 'good' : 'bad'}>${one.result}</span>` },
    { title: 'Node or message', isLong: true, value: (one) => one.node || one.message },
  ];
  return html`<h2>Attempts</h2><${Table} caption="Scheduling attempts of the pod" columns=${columns} rows=${attempts} sortBy=${0} descending=${true} keyOf=${(one) => one.number} empty="None is known." />`;
}

function Overview() {
  const { decisions } = useStore();
  return html`<h1>Pod</h1><p>Open a pod by its name above, or one of those attempted last:</p>
    <ul>${decisions.attempts.slice(0, 20).map((one) => html`<li key=${one.pod}><a href=${podLink(one.pod)}>${one.pod}</a> <span class="quiet">${one.result}</span></li>`)}</ul>`;
}

export function View({ names }) {
  return names.length === 2 ? html`<${Pod} key=${names.join('/')} name=${names.join('/')} />` : html`<${Overview} />`;
}

function Pod({ name }) {
  const { pod, problem, reload } = usePod(name);
  if (problem) return html`<h1 class="mono">${name}</h1><p class="bad" role="alert">${problem}</p>`;
  if (!pod) return html`<h1 class="mono">${name}</h1><p class="starting">Evaluating all nodes …</p>`;
  const { queue } = pod;
  return html`<h1 class="mono">${name}</h1>
    <div class="panel"><p>${pod.summary}</p>
      <dl><dt>Requests</dt><dd>${Object.entries(pod.requests).map(([resource, value]) => `${resource} ${amount(resource, value)}`).join(', ') || 'nothing'}</dd>
        <dt>Priority</dt><dd>${pod.priority}</dd>
        ${pod.node && html`<dt>Node</dt><dd><a href=${nodeLink(pod.node)}>${pod.node}</a>${pod.isBound ? '' : ' (assumed)'}</dd>`}
        ${pod.nominatedNode && html`<dt>Nominated</dt><dd><a href=${nodeLink(pod.nominatedNode)}>${pod.nominatedNode}</a></dd>`}
        ${queue && html`<dt>Queue</dt><dd>${queue.place}, since ${ago(queue.since, now())}${queue.retryAt ? `; tried again ${until(queue.retryAt, now())} at the latest` : ''}</dd>`}
        ${queue && html`<dt>Waits for</dt><dd>${Object.entries(queue.waitsFor).map(([plugin, events]) => html`<div>${plugin}: ${events.join(', ')}</div>`)}</dd>`}
        ${Object.keys(pod.labels).length > 0 && html`<dt>Labels</dt><dd>${Object.entries(pod.labels).map(([key, value]) => html`<code>${key}=${value}</code> `)}</dd>`}
      </dl>
      <div class="toolbar"><button type="button" onClick=${reload}>Evaluate again</button></div>
      ${pod.evaluation && !pod.evaluation.rows.length && html`<${Counterfactuals} path=${`pods/${name.split('/').map(encodeURIComponent).join('/')}`} />`}</div>
    <${Attempts} attempts=${pod.attempts} />
    <${PastPreemptions} attempts=${pod.attempts} />
    ${pod.error && html`<p class="bad">${pod.error}</p>`}
    ${pod.evaluation && html`<${Evaluation} pod=${pod} />`}
    ${pod.preemption && html`<${Preemption} pod=${pod} />`}`;
}
