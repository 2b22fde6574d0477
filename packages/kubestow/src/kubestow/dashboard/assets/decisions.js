// Decisions: attempts per second, their latency and reasons on a timeline, and gangs.

import { html, useEffect, useMemo, useRef } from './vendor/preact-htm.js';
import uPlot from './vendor/uplot.js';
import { now, useStore } from './store.js';
import { clock, duration, nodeLink, plural, podLink } from './format.js';
import { Table } from './table.js';

const SECONDS = 300;
const COLOURS = { scheduled: '#2f8f5b', unschedulable: '#d98a1f', error: '#cc3d3d', p50: '#4a90d9', p90: '#8a63c4', p99: '#cc3d7a' };

/** The timeline as columns, with zeros (or gaps) for seconds without an attempt. */
function timeline(points, end) {
  const byTime = new Map(points.map((point) => [point.time, point]));
  const times = Array.from({ length: SECONDS }, (_, at) => end - SECONDS + 1 + at);
  const column = (read, none) => times.map((time) => { const point = byTime.get(time); return point ? read(point) : none; });
  return {
    rates: [times, ...['scheduled', 'unschedulable', 'error'].map((result) => column((point) => point[result], 0))],
    latencies: [times, ...[0, 1, 2].map((at) => column((point) => point.latency[at], null))],
  };
}

function Chart({ title, series, data, axis, summary }) {
  const place = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const create = () => {
      plot.current?.destroy();
      const colour = getComputedStyle(place.current).color;
      const grid = { stroke: 'rgba(128, 128, 128, .2)' };
      plot.current = new uPlot({
        title, width: Math.max(280, place.current.clientWidth - 16), height: 220,
        scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1e-6) || 1] } },
        axes: [{ stroke: colour, grid, space: 80, values: (_, times) => times.map(clock) }, { stroke: colour, grid, size: 64, values: (_, ticks) => ticks.map(axis) }],
        series: [{ value: (_, time) => (time === null ? '–' : clock(time)) }, ...series.map(({ label, stroke, isBar }) => ({
          label, stroke, width: 1.5, fill: isBar ? `${stroke}33` : undefined, points: { show: !isBar, size: 4 },
          value: (_, value) => (value === null ? '–' : axis(value)),
        }))],
      }, data, place.current);
    };
    create();
    const observer = new ResizeObserver(() => plot.current.setSize({ width: Math.max(280, place.current.clientWidth - 16), height: 220 }));
    observer.observe(place.current);
    addEventListener('themechange', create);
    return () => { observer.disconnect(); removeEventListener('themechange', create); plot.current.destroy(); };
  }, []);
  useEffect(() => { plot.current?.setData(data); }, [data]);
  return html`<figure class="chart" role="group" aria-label=${`${title}. ${summary}`} ref=${place}></figure>`;
}

const reasonsOf = (points) => {
  const counts = new Map();
  for (const point of points) {
    for (const [reason, count] of Object.entries(point.reasons)) counts.set(reason, (counts.get(reason) ?? 0) + count);
  }
  return [...counts].map(([reason, count]) => ({ reason, count }));
};

function Gang({ gang }) {
  const missing = gang.minCount === null ? 0 : Math.max(0, gang.minCount - gang.placed);
  const absent = gang.minCount === null ? 0 : Math.max(0, gang.minCount - gang.pods);
  const need = absent ? `, ${absent} more must be created` : missing ? `, ${missing} more must be placed` : '';
  return html`<section class="panel" aria-label=${`Gang ${gang.name}`}>
    <h3><span class="mono">${gang.name}</span> <span class=${missing ? 'warn' : 'good'}>${gang.placed} of ${plural(gang.pods, 'pod')} placed</span></h3>
    <p class="quiet">${gang.api}${gang.minCount === null ? '; its profile schedules the pods one by one' : `; at least ${gang.minCount} at the same time${need}`}</p>
    <ul class="members">${gang.members.map((member) => html`<li key=${member.pod}><a href=${podLink(member.pod)}>${member.pod.split('/')[1]}</a> ${member.state}${member.node && html` on <a href=${nodeLink(member.node)}>${member.node}</a>`}</li>`)}</ul>
    ${gang.members.length < gang.pods && html`<p class="quiet">The first ${gang.members.length} are listed.</p>`}
  </section>`;
}

export function View() {
  const { decisions, gangs, time } = useStore();
  const end = Math.floor(time || now()) - 1;
  const { rates, latencies } = useMemo(() => timeline(decisions.points, end), [decisions.points, end]);
  const recent = decisions.points.filter((point) => point.time > end - 60);
  const per = (result) => recent.reduce((total, point) => total + point[result], 0);
  const worst = recent.reduce((most, point) => Math.max(most, point.latency[2]), 0);
  const attempts = [
    { title: 'Time', value: (one) => one.time, cell: (one) => clock(one.time) },
    { title: 'Pod', value: (one) => one.pod, cell: (one) => html`<a href=${podLink(one.pod)}>${one.pod}</a>` },
    { title: 'Attempt', number: true, value: (one) => one.number },
    { title: 'Result', value: (one) => one.result, cell: (one) => html`<span class=${one.result === 'scheduled' ? 'good' : 'bad'}>${one.result}</span>` },
    { title: 'Took', number: true, value: (one) => one.seconds, cell: (one) => duration(one.seconds) },
    { title: 'Node or message', isLong: true, value: (one) => one.node || one.message },
  ];
  const reasons = [
    { title: 'Attempts', number: true, value: (one) => one.count },
    { title: 'Reason', value: (one) => one.reason },
  ];
  return html`<h1>Decisions</h1>
    <ul class="cards">
      ${['scheduled', 'unschedulable', 'error'].map((result) => html`<li class="card"><strong>${per(result).toLocaleString('en')}</strong><span class="quiet">${result} in the last minute</span></li>`)}
      <li class="card"><strong>${recent.length ? duration(worst) : '–'}</strong><span class="quiet">slowest 99th percentile</span></li>
    </ul>
    <${Chart} title="Attempts per second" data=${rates} axis=${(value) => value.toLocaleString('en')} summary=${`${per('scheduled')} scheduled in the last minute`}
      series=${['scheduled', 'unschedulable', 'error'].map((label) => ({ label, stroke: COLOURS[label], isBar: true }))} />
    <${Chart} title="Latency of attempts, from pop to binding" data=${latencies} axis=${duration} summary=${`the slowest 99th percentile of the last minute is ${duration(worst)}`}
      series=${['p50', 'p90', 'p99'].map((label) => ({ label, stroke: COLOURS[label] }))} />
    <h2>Why attempts failed</h2>
    <${Table} caption="Reasons of failed attempts in the last five minutes" columns=${reasons} rows=${reasonsOf(decisions.points)} sortBy=${0} descending=${true} keyOf=${(one) => one.reason} empty="None failed in the last five minutes." />
    <h2>Latest attempts</h2>
    <${Table} caption="Pods attempted last" columns=${attempts} rows=${decisions.attempts} keyOf=${(one) => `${one.pod} ${one.number}`} empty="None yet." />
    <h2>Gangs</h2>
    ${gangs.gangs.length ? gangs.gangs.map((gang) => html`<${Gang} key=${`${gang.api} ${gang.name}`} gang=${gang} />`) : html`<p class="empty">No pod belongs to a gang.</p>`}
    ${gangs.gangs.length < gangs.count && html`<p class="quiet">${gangs.gangs.length} of ${gangs.count} gangs: those with most pods without a node.</p>`}`;
}
