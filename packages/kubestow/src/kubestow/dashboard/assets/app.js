// The frame of the page: navigation, the state of the connection, and the views.

import { html, render, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { authenticate, start, useStore } from './store.js';
import { podLink } from './format.js';
import { Cluster } from './cluster.js';

/** Views that are loaded when they are first opened. */
const VIEWS = {
  queue: () => import('./queue.js'),
  pending: () => import('./pending.js'),
  pod: () => import('./pod.js'),
  decisions: () => import('./decisions.js'),
  report: () => import('./report.js'),
  try: () => import('./try.js'),
};
const TITLES = { cluster: 'Cluster', queue: 'Queue', pending: 'Pending', pod: 'Pod', decisions: 'Decisions', report: 'Report', try: 'Try it' };

function route() {
  const [view, ...rest] = location.hash.replace(/^#\//, '').split('/');
  const names = rest.map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { view: Object.hasOwn(TITLES, view) ? view : 'cluster', names };
}

function useRoute() {
  const [current, setCurrent] = useState(route());
  useEffect(() => {
    const update = () => setCurrent(route());
    addEventListener('hashchange', update);
    return () => removeEventListener('hashchange', update);
  }, []);
  return current;
}

/** The component of a view, null while it is being loaded. */
function useView(name) {
  const [loaded, setLoaded] = useState({ cluster: Cluster });
  useEffect(() => {
    if (loaded[name]) return;
    VIEWS[name]().then((module) => setLoaded((former) => ({ ...former, [name]: module.View })));
  }, [name]);
  return loaded[name] ?? null;
}

const STATUS = { connecting: 'connecting', live: 'live', lost: 'connection lost', denied: 'not authorized' };

function ThemeButton() {
  const themes = ['auto', 'light', 'dark'];
  const [theme, setTheme] = useState(() => { try { return localStorage.getItem('theme') ?? 'auto'; } catch { return 'auto'; } });
  useEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try { localStorage.setItem('theme', theme); } catch { /* it lasts until the page is closed */ }
    dispatchEvent(new Event('themechange'));
  }, [theme]);
  return html`<button type="button" onClick=${() => setTheme(themes[(themes.indexOf(theme) + 1) % 3])}>Theme: ${theme}</button>`;
}

function PodSearch() {
  const open = (event) => {
    event.preventDefault();
    const key = new FormData(event.currentTarget).get('pod').trim();
    if (key) location.hash = podLink(key.includes('/') ? key : `default/${key}`);
  };
  return html`<form role="search" onSubmit=${open}>
    <input name="pod" aria-label="Pod, as namespace/name" placeholder="namespace/pod" autocomplete="off" spellcheck=${false} />
    <button>Open pod</button></form>`;
}

function TokenDialog({ problem }) {
  const dialog = useRef(null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  const use = (event) => {
    event.preventDefault();
    authenticate(new FormData(event.currentTarget).get('token'));
  };
  return html`<dialog ref=${dialog} aria-labelledby="token-title" onCancel=${(event) => event.preventDefault()}>
    <h2 id="token-title">A bearer token is needed</h2>
    <p class="quiet">${problem}</p>
    <p>A token of an account that may get <code>/dashboard</code> and <code>/dashboard/*</code>, such as the output of${' '}
      <code>kubectl create token NAME</code>. It stays in the memory of this page.</p>
    <form onSubmit=${use}><label class="field">Token <input type="password" name="token" required autocomplete="off" /></label>
      <div class="toolbar"><button class="primary">Use it</button></div></form></dialog>`;
}

function App() {
  const state = useStore();
  const { view, names } = useRoute();
  const View = useView(view);
  const main = useRef(null);
  const isFirst = useRef(true);
  const reports = Object.entries(state.reports ?? {});
  const subject = view === 'pod' && names.length ? names.join('/') : view === 'report' ? state.reports?.[names[0]] ?? names[0] : TITLES[view];
  useEffect(() => {
    document.title = `${subject} – kubestow`;
    if (!isFirst.current) {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    isFirst.current = false;
  }, [subject]);
  const shown = ['cluster', 'queue', 'pending', 'decisions', ...(state.api ? ['try'] : [])];
  const link = (name) => html`<li><a href=${`#/${name}`} aria-current=${view === name ? 'page' : undefined}>${TITLES[name]}</a></li>`;
  const reportLink = ([plugin, title]) => html`<li><a href=${`#/report/${encodeURIComponent(plugin)}`} aria-current=${view === 'report' && names[0] === plugin ? 'page' : undefined}>${title}</a></li>`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/cluster">kubestow</a>
      <nav aria-label="Views"><ul>${shown.map(link)}${reports.map(reportLink)}</ul></nav>
      ${state.version && html`<span class="quiet" title=${state.version.caveat}>Kubernetes ${state.version.emulated}${state.version.server && `, API server ${state.version.server}`}</span>`}
      <span class=${`status ${state.status}`} role="status" title=${state.problem}>${STATUS[state.status]}${state.status === 'lost' ? `: ${state.problem}` : ''}</span>
      <${PodSearch} /><${ThemeButton} />
    </header>
    <main ref=${main} tabindex="-1" id="main">${View && (state.nodes || view === 'try')
      ? html`<${View} names=${names} />` : html`<p class="starting">Waiting for the scheduler …</p>`}</main>
    ${state.status === 'denied' && html`<${TokenDialog} problem=${state.problem} />`}`;
}

start();
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
