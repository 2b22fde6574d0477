// What a plugin reports about itself, such as queues of jobs: sections of elements that the server has made.

import { html, h, useEffect, useState } from './vendor/preact-htm.js';
import { read } from './store.js';

/** A report is read again so long after the last answer. */
const RELOAD_MS = 5000;

/** The element of `[tag, attributes, child, …]`; text stays text. */
const build = (data) => (typeof data === 'string' ? data : h(data[0], data[1], ...data.slice(2).map(build)));

/** The report of a plugin, read again and again while it is shown. */
function useReport(plugin) {
  const [found, setFound] = useState({ report: null, problem: '' });
  useEffect(() => {
    const controller = new AbortController();
    let timer = 0;
    const reload = async () => {
      try {
        if (!document.hidden) {
          const report = await read(`reports/${encodeURIComponent(plugin)}`, { signal: controller.signal });
          setFound({ report, problem: '' });
        }
      } catch (error) {
        if (error.name === 'AbortError') return;
        setFound((former) => ({ ...former, problem: error.message }));
      }
      timer = setTimeout(reload, RELOAD_MS);
    };
    setFound({ report: null, problem: '' });
    reload();
    return () => { clearTimeout(timer); controller.abort(); };
  }, [plugin]);
  return found;
}

export function View({ names: [plugin] }) {
  const { report, problem } = useReport(plugin);
  return html`${problem && html`<p class="bad" role="alert">${problem}</p>`}
    ${report ? html`<h1>${report.title}</h1>${report.sections.map(({ title, content }) => html`<section key=${title}><h2>${title}</h2>${content.map(build)}</section>`)}`
      : !problem && html`<p class="starting">Reading the report …</p>`}`;
}
