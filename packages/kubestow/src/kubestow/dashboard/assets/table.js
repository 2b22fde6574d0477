// A table that sorts by any column, and renders only the rows in view when there are many.

import { html, useMemo, useRef, useState } from './vendor/preact-htm.js';

const ROW_HEIGHT = 30;
const WINDOWED_FROM = 200;

/** The order of two values in a direction, 1 or -1; missing ones come last in either. */
function compare(one, other, sign) {
  const missing = [one, other].map((value) => value === null || value === undefined);
  if (missing[0] || missing[1]) return missing[0] - missing[1];
  return one === other ? 0 : sign * (one < other ? -1 : 1);
}

/**
 * `columns` have a `title`, `value(row)` to sort by, and optionally `cell(row)` to show, `number`, `hint`
 * `isShort` for cells in one line and `isLong` for sentences.
 * `caption` is for screen readers.
 */
export function Table({ columns, rows, caption, sortBy = -1, descending = false, keyOf = (row, at) => at, empty = 'None.' }) {
  const [sort, setSort] = useState({ column: sortBy, descending });
  const [top, setTop] = useState(0);
  const scroller = useRef(null);
  const sorted = useMemo(() => {
    const column = columns[sort.column];
    if (!column) return rows;
    const sign = sort.descending ? -1 : 1;
    return [...rows].sort((one, other) => compare(column.value(one), column.value(other), sign));
  }, [rows, sort, columns]);

  const isWindowed = sorted.length > WINDOWED_FROM;
  const height = scroller.current?.clientHeight || 600;
  const first = isWindowed ? Math.max(0, Math.floor(top / ROW_HEIGHT) - 10) : 0;
  const last = isWindowed ? Math.min(sorted.length, first + Math.ceil(height / ROW_HEIGHT) + 20) : sorted.length;
  const space = (count) => count > 0 && html`<tr aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${count * ROW_HEIGHT}px`, padding: 0 }}></td></tr>`;

  const head = columns.map((column, at) => {
    const isSorted = sort.column === at;
    const change = () => setSort({ column: at, descending: isSorted ? !sort.descending : Boolean(column.number) });
    return html`<th scope="col" class=${column.number ? 'number' : ''} title=${column.hint}
      aria-sort=${isSorted ? (sort.descending ? 'descending' : 'ascending') : 'none'}>
      <button type="button" onClick=${change}>${column.title}${isSorted && html`<span aria-hidden="true">${sort.descending ? ' ▾' : ' ▴'}</span>`}</button></th>`;
  });
  const body = sorted.slice(first, last).map((row, at) => html`<tr key=${keyOf(row, first + at)} aria-rowindex=${isWindowed ? first + at + 2 : undefined}>
    ${columns.map((column) => html`<td class=${`${column.number ? 'number' : ''} ${isWindowed || column.isShort ? 'nowrap' : ''} ${column.isLong ? 'long' : ''}`}>${(column.cell ?? column.value)(row)}</td>`)}</tr>`);

  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" ref=${scroller} tabindex="0" role="region" aria-label=${caption}
    onScroll=${isWindowed ? (event) => setTop(event.currentTarget.scrollTop) : undefined}>
    <table aria-rowcount=${isWindowed ? sorted.length + 1 : undefined}>
      <caption class="sr">${caption}</caption>
      <thead><tr>${head}</tr></thead>
      <tbody>${space(first)}${body}${space(sorted.length - last)}</tbody>
    </table></div>`;
}
