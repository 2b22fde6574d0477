// The cluster: one tile per node on a canvas, grouped by a label and coloured by an amount or a taint.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/preact-htm.js';
import { read, useStore } from './store.js';
import { amount, nodeLink, percent, plural, podLink } from './format.js';
import { Table } from './table.js';

const LOAD = 'load', TAINTS = 'taints';
/** Before the text of a taint; no resource has such a name. */
const TAINT = 'taint ';
const MOST_TAINTS = 50;
/** Sizes of a tile, and the one for clusters that do not fit on the screen with any of them. */
const TILES = [30, 27, 24, 21, 18, 15, 12, 11, 10, 9, 8, 7, 6], SCROLLED_TILE = 10;
const GAP = 2, HEADING = 18, MARGIN = 10;
const DETAILS_DELAY_MS = 150;

/** Colours from free to full, which differ in lightness too; beyond full one of its own. */
const SCALE = ['#dbe9f6', '#a9cbe8', '#6ba6d6', '#3a7cb8', '#1f5a96', '#123a6b'];
const OVER = '#c2185b', NOTHING = '#9aa3ad', TAINTED = '#e08a1e', CORDONED = '#7b5ea7', FREE = '#c9dbc9';

const colourOf = (share) => {
  if (!Number.isFinite(share)) return NOTHING;
  if (share > 1) return OVER;
  return SCALE[Math.min(SCALE.length - 1, Math.floor(share * SCALE.length))];
};

const shareOf = (nodes, resource, row) => nodes.requested[resource][row] / nodes.allocatable[resource][row];

/** The highest share of any resource that the node has. */
function loadOf(nodes, row) {
  let load = 0;
  for (const resource of nodes.resources) {
    if (nodes.allocatable[resource][row] > 0) load = Math.max(load, shareOf(nodes, resource, row));
  }
  return load;
}

const valueOf = (nodes, colour, row) => (colour === LOAD ? loadOf(nodes, row) : shareOf(nodes, colour, row));

const taintsOf = (nodes, row) => nodes.taints.values[nodes.taints.codes[row]];

/** The different taints of all nodes. */
const allTaints = (nodes) => [...new Set(nodes.taints.values.flat())].sort().slice(0, MOST_TAINTS);

const isOfTaints = (colour) => colour === TAINTS || colour.startsWith(TAINT);

/** The colour of a node by its taints: by one that is chosen, or by any. */
function taintColourOf(nodes, colour, row, isCordoned) {
  const taints = taintsOf(nodes, row);
  if (colour !== TAINTS) return taints.includes(colour.slice(TAINT.length)) ? TAINTED : FREE;
  return isCordoned ? CORDONED : taints.length ? TAINTED : FREE;
}

/** The groups of nodes by the value of a label, each with its rows. */
function groupsBy(nodes, key) {
  const column = nodes.labels[key];
  if (!column) return [{ title: 'all nodes', rows: nodes.names.map((_, row) => row) }];
  const groups = ['(without the label)', ...column.values].map((title) => ({ title, rows: [] }));
  column.codes.forEach((code, row) => groups[code].rows.push(row));
  const inOrder = (one, other) => one.title.localeCompare(other.title, 'en', { numeric: true });
  return groups.filter((group) => group.rows.length).sort(inOrder);
}

/** Places of the groups, as blocks from left to right: nearly square ones, or as wide as there is room. */
function blocksOf(groups, width, tile, isWide) {
  const step = tile + GAP;
  const most = Math.max(1, Math.floor((width - MARGIN) / step));
  const blocks = [];
  let x = 0, y = 0, rowHeight = 0;
  for (const { title, rows } of groups) {
    const fitting = Math.max(Math.ceil(120 / step), Math.ceil(Math.sqrt(rows.length * 2.2)));
    const columns = isWide ? Math.min(most, rows.length) : Math.min(most, fitting);
    const blockWidth = Math.min(width, Math.max(columns * step, 120)) + MARGIN;
    if (x > 0 && x + blockWidth > width) { x = 0; y += rowHeight; rowHeight = 0; }
    blocks.push({ title, rows, columns, x, y, width: blockWidth - MARGIN });
    rowHeight = Math.max(rowHeight, HEADING + Math.ceil(rows.length / columns) * step + MARGIN);
    x += blockWidth;
  }
  return { tile, blocks, height: y + rowHeight };
}

/** The blocks with tiles as large as the height allows. */
function fittingBlocks(groups, width, maxHeight) {
  for (const tile of TILES) {
    for (const isWide of groups.length === 1 ? [true] : [false, true]) {
      const found = blocksOf(groups, width, tile, isWide);
      if (found.height <= maxHeight) return found;
    }
  }
  return blocksOf(groups, width, SCROLLED_TILE, true);
}

/** Places for all tiles, in the order of the groups. */
function layOut(groups, width, maxHeight) {
  const found = fittingBlocks(groups, width, maxHeight);
  const step = found.tile + GAP;
  const tiles = found.blocks.flatMap(({ rows, columns, x, y }) => rows.map(
    (row, at) => ({ row, x: x + (at % columns) * step, y: y + HEADING + Math.floor(at / columns) * step }),
  ));
  return { ...found, tiles };
}

function draw(canvas, layout, nodes, colour, chosen) {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(layout.height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(layout.height * scale);
    canvas.style.height = `${layout.height}px`;
  }
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, layout.height);
  const style = getComputedStyle(canvas);
  context.font = `12px ${style.fontFamily}`;
  context.fillStyle = style.color;
  context.textBaseline = 'top';
  for (const block of layout.blocks) {
    let title = `${block.title} (${block.rows.length})`;
    while (title.length > 4 && context.measureText(title).width > block.width) title = `${title.slice(0, -2)}…`;
    context.fillText(title, block.x, block.y + 2);
  }
  const cordoned = new Set(nodes.cordoned);
  const { tile } = layout;
  for (const { row, x, y } of layout.tiles) {
    context.fillStyle = isOfTaints(colour) ? taintColourOf(nodes, colour, row, cordoned.has(row)) : colourOf(valueOf(nodes, colour, row));
    context.fillRect(x, y, tile, tile);
  }
  context.strokeStyle = CORDONED;
  context.lineWidth = Math.max(1, tile / 8);
  context.beginPath();
  for (const { row, x, y } of layout.tiles) {
    if (cordoned.has(row) && colour !== TAINTS) { context.moveTo(x, y + tile); context.lineTo(x + tile, y); }
  }
  context.stroke();
  const marked = layout.tiles.find(({ row }) => row === chosen);
  if (marked) {
    context.strokeStyle = style.color;
    context.lineWidth = 2;
    context.strokeRect(marked.x - 1, marked.y - 1, tile + 2, tile + 2);
  }
}

/** A node in a sentence, for screen readers. */
function describe(nodes, row, grouping) {
  const column = nodes.labels[grouping];
  const group = column ? `, ${column.values[column.codes[row] - 1] ?? 'without the label'}` : '';
  const shares = nodes.resources.slice(0, 2).map((name) => `${name} ${percent(shareOf(nodes, name, row))}`).join(', ');
  const taints = taintsOf(nodes, row);
  return `${nodes.names[row]}${group}: ${shares}, ${nodes.requested.pods[row]} of ${nodes.allocatable.pods[row]} pods`
    + `${nodes.cordoned.includes(row) ? ', cordoned' : ''}${taints.length ? `, taints ${taints.join(', ')}` : ''}`;
}

/** The tile to which an arrow key leads. */
function neighbour(layout, at, key) {
  const { tiles } = layout;
  if (key === 'Home') return 0;
  if (key === 'End') return tiles.length - 1;
  if (key === 'ArrowRight') return Math.min(tiles.length - 1, at + 1);
  if (key === 'ArrowLeft') return Math.max(0, at - 1);
  const from = tiles[at], sign = key === 'ArrowDown' ? 1 : -1;
  let best = at, least = Infinity;
  tiles.forEach((to, index) => {
    const down = sign * (to.y - from.y);
    if (down <= 0) return;
    const distance = down + 3 * Math.abs(to.x - from.x);
    if (distance < least) { least = distance; best = index; }
  });
  return best;
}

function NodeMap({ nodes, grouping, colour, chosen, onHover, onChoose }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [theme, setTheme] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(canvas.current?.clientWidth ?? 0));
    observer.observe(canvas.current);
    setWidth(canvas.current.clientWidth);
    const repaint = () => setTheme((count) => count + 1);
    const preference = matchMedia('(prefers-color-scheme: dark)');
    preference.addEventListener('change', repaint);
    addEventListener('themechange', repaint);
    return () => {
      observer.disconnect();
      preference.removeEventListener('change', repaint);
      removeEventListener('themechange', repaint);
    };
  }, []);
  const layout = useMemo(
    () => layOut(groupsBy(nodes, grouping), width || 800, Math.max(360, innerHeight * 0.68)),
    [nodes.names, nodes.labels, grouping, width],
  );
  useLayoutEffect(() => { if (width) draw(canvas.current, layout, nodes, colour, chosen); }, [layout, nodes, colour, chosen, width, theme]);

  const rowAt = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    return layout.tiles.find((at) => x >= at.x && x < at.x + layout.tile + GAP && y >= at.y && y < at.y + layout.tile + GAP)?.row ?? -1;
  };
  const onKeyDown = (event) => {
    if (!['Home', 'End', 'ArrowRight', 'ArrowLeft', 'ArrowUp', 'ArrowDown'].includes(event.key) || !layout.tiles.length) return;
    event.preventDefault();
    const at = Math.max(0, layout.tiles.findIndex(({ row }) => row === chosen));
    const to = layout.tiles[chosen < 0 ? 0 : neighbour(layout, at, event.key)];
    const y = canvas.current.getBoundingClientRect().top + to.y;
    if (y < 0 || y > innerHeight - 2 * layout.tile) scrollBy({ top: y - innerHeight / 2 });
    onChoose(to.row);
  };
  return html`<div class="map"><canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="map of nodes"
    aria-label=${`${plural(nodes.names.length, 'node')}; the arrow keys choose one`} onKeyDown=${onKeyDown}
    onPointerMove=${(event) => onHover(rowAt(event))} onPointerLeave=${() => onHover(-1)}
    onClick=${(event) => onChoose(rowAt(event))}></canvas></div>`;
}

function Legend({ colour }) {
  if (isOfTaints(colour)) {
    const meanings = colour === TAINTS ? [[FREE, 'no taint'], [TAINTED, 'tainted'], [CORDONED, 'cordoned']] : [[TAINTED, colour.slice(TAINT.length)], [FREE, 'without it']];
    return html`<p class="legend">${meanings.map(
      ([fill, text]) => html`<span><${Swatch} fill=${fill} />${text}</span>`)}</p>`;
  }
  const steps = SCALE.map((fill, at) => [fill, `${Math.round((at * 100) / SCALE.length)}–${Math.round(((at + 1) * 100) / SCALE.length)} %`]);
  return html`<p class="legend"><span>requested:</span>${[...steps, [OVER, 'more than there is'], [NOTHING, 'the node has none']].map(
    ([fill, text]) => html`<span><${Swatch} fill=${fill} />${text}</span>`)}<span>diagonal line: cordoned</span></p>`;
}

const Swatch = ({ fill }) => html`<span class="swatch" style=${{ background: fill }} aria-hidden="true"></span>`;

/** The details of a node, fetched again when its amounts change. */
function useDetails(name, stamp) {
  const [found, setFound] = useState({ name: '', details: null, problem: '' });
  useEffect(() => {
    if (!name) return undefined;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const details = await read(`nodes/${encodeURIComponent(name)}`, { signal: controller.signal });
        setFound({ name, details, problem: '' });
      } catch (error) {
        if (error.name !== 'AbortError') setFound({ name, details: null, problem: error.message });
      }
    }, DETAILS_DELAY_MS);
    return () => { clearTimeout(timer); controller.abort(); };
  }, [name, stamp]);
  return found.name === name ? found : { details: null, problem: '' };
}

function NodePanel({ nodes, row }) {
  const name = nodes.names[row] ?? '';
  const stamp = nodes.resources.map((resource) => nodes.requested[resource][row]).join();
  const { details, problem } = useDetails(name, stamp);
  if (!name) return html`<div class="panel aside"><p class="quiet">Point at a node, or choose one with the arrow keys.</p></div>`;
  const taints = taintsOf(nodes, row);
  return html`<section class="panel aside" aria-label=${`Node ${name}`}>
    <h2 class="mono">${name}</h2>
    ${nodes.cordoned.includes(row) && html`<p class="warn">cordoned: no new pods</p>`}
    ${taints.length > 0 && html`<p>Taints: ${taints.map((taint) => html`<code>${taint}</code> `)}</p>`}
    <dl>${nodes.resources.filter((resource) => nodes.allocatable[resource][row] > 0 || nodes.requested[resource][row] > 0).map((resource) => {
      const has = nodes.allocatable[resource][row], used = nodes.requested[resource][row];
      return html`<dt>${resource}</dt><dd>${amount(resource, has - used)} free of ${amount(resource, has)}
        <meter class="bar" min="0" max="1" value=${has ? Math.min(1, used / has) : 0} aria-label=${`${resource} requested`}></meter></dd>`;
    })}</dl>
    ${problem && html`<p class="bad">${problem}</p>`}
    ${details && html`<h3>${plural(details.podCount, 'pod')}</h3>
      <ul>${details.pods.map((pod) => html`<li key=${pod.pod}><a href=${podLink(pod.pod)}>${pod.pod}</a>
        <span class="quiet"> ${Object.entries(pod.requests).map(([resource, value]) => amount(resource, value)).join(', ')}${pod.assumed ? ', assumed' : ''}${pod.terminating ? ', terminating' : ''}</span></li>`)}</ul>
      ${details.pods.length < details.podCount && html`<p class="quiet">The ${details.pods.length} with the highest priority are listed.</p>`}
      ${details.nominated.length > 0 && html`<p>Nominated: ${details.nominated.map((pod) => html`<a href=${podLink(pod)}>${pod}</a> `)}</p>`}`}
  </section>`;
}

function NodeTable({ nodes, grouping }) {
  const column = nodes.labels[grouping];
  const rows = useMemo(() => nodes.names.map((_, row) => row), [nodes.names]);
  const columns = [
    { title: 'Node', value: (row) => nodes.names[row], cell: (row) => html`<a href=${nodeLink(nodes.names[row])}>${nodes.names[row]}</a>` },
    ...(column ? [{ title: grouping, value: (row) => column.values[column.codes[row] - 1] ?? '' }] : []),
    { title: 'Load', number: true, value: (row) => loadOf(nodes, row), cell: (row) => percent(loadOf(nodes, row)) },
    ...nodes.resources.map((resource) => ({
      title: `${resource} free`, number: true,
      value: (row) => nodes.allocatable[resource][row] - nodes.requested[resource][row],
      cell: (row) => `${amount(resource, nodes.allocatable[resource][row] - nodes.requested[resource][row])} (${percent(shareOf(nodes, resource, row))} used)`,
    })),
    { title: 'Taints', value: (row) => taintsOf(nodes, row).join(', ') },
    { title: 'Cordoned', value: (row) => (nodes.cordoned.includes(row) ? 'yes' : '') },
  ];
  return html`<${Table} caption="Nodes" columns=${columns} rows=${rows} keyOf=${(row) => row} sortBy=${0} />`;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

export function Cluster({ names }) {
  const { nodes } = useStore();
  const keys = Object.keys(nodes.labels);
  const [grouping, setGrouping] = useState(null);
  const [wantedColour, setColour] = useState(LOAD);
  const [asTable, setAsTable] = useState(false);
  const [hovered, setHovered] = useState(-1);
  const chosen = names[0] ? nodes.names.indexOf(names[0]) : -1;
  const by = grouping ?? keys[0] ?? '';
  const taints = useMemo(() => allTaints(nodes), [nodes.taints]);
  const colours = [LOAD, ...nodes.resources, TAINTS, ...taints.map((taint) => TAINT + taint)];
  const colour = colours.includes(wantedColour) ? wantedColour : LOAD; // what it names may have gone
  const choose = (row) => { if (row >= 0) history.replaceState(null, '', nodeLink(nodes.names[row])); dispatchEvent(new Event('hashchange')); };
  const shown = hovered >= 0 ? hovered : chosen;
  return html`<h1>Cluster</h1>
    <ul class="cards">
      <li class="card"><strong>${nodes.names.length.toLocaleString('en')}</strong><span class="quiet">nodes${nodes.cordoned.length ? `, ${nodes.cordoned.length} cordoned` : ''}</span></li>
      ${nodes.resources.slice(0, 5).map((resource) => {
        const has = sum(nodes.allocatable[resource]), used = sum(nodes.requested[resource]);
        return html`<li class="card"><strong>${resource === 'pods' ? used.toLocaleString('en') : percent(used / has)}</strong><span class="quiet">${resource === 'pods' ? 'pods' : `of ${amount(resource, has)}${resource === 'cpu' ? '' : ` ${resource}`} requested`}</span></li>`;
      })}
    </ul>
    <div class="controls">
      <label>Group by <select value=${by} onChange=${(event) => setGrouping(event.currentTarget.value)}>
        ${keys.map((key) => html`<option value=${key}>${key}</option>`)}<option value="">nothing</option></select></label>
      <label>Colour by <select value=${colour} onChange=${(event) => setColour(event.currentTarget.value)}>
        <option value=${LOAD}>load (the fullest resource)</option>
        ${nodes.resources.map((resource) => html`<option value=${resource}>${resource}</option>`)}
        <option value=${TAINTS}>any taint</option>
        ${taints.map((taint) => html`<option value=${TAINT + taint}>${taint}</option>`)}</select></label>
      <button type="button" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>As a table</button>
    </div>
    ${asTable ? html`<${NodeTable} nodes=${nodes} grouping=${by} />`
      : html`<${Legend} colour=${colour} />
        <div class="split"><${NodeMap} nodes=${nodes} grouping=${by} colour=${colour} chosen=${shown} onHover=${setHovered} onChoose=${choose} />
        <${NodePanel} nodes=${nodes} row=${shown} /></div>
        <p class="sr" aria-live="polite">${chosen >= 0 ? describe(nodes, chosen, by) : ''}</p>`}`;
}
