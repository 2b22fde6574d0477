// Amounts, shares and times as text.

const BINARY = [['Ti', 2 ** 40], ['Gi', 2 ** 30], ['Mi', 2 ** 20], ['Ki', 2 ** 10]];

const isBytes = (resource) => /^(memory|ephemeral-storage|hugepages-.*)$/.test(resource);

const decimals = (value, digits) => Number(value.toFixed(digits)).toLocaleString('en');

/** An amount of a resource: cores, bytes or a count. */
export function amount(resource, value) {
  if (resource === 'cpu') return `${decimals(value / 1000, 2)} CPU`;
  if (isBytes(resource)) {
    const [unit, size] = BINARY.find(([, size]) => Math.abs(value) >= size) ?? ['', 1];
    return `${decimals(value / size, 1)} ${unit}B`;
  }
  return value.toLocaleString('en');
}

export const percent = (share) => (Number.isFinite(share) ? `${Math.round(share * 100)} %` : '–');

/** A duration in seconds: 0.4 ms, 12 s, 3 min, 2 h. */
export function duration(seconds) {
  const size = Math.abs(seconds);
  if (size < 0.001) return `${decimals(seconds * 1e6, 0)}\u00a0µs`;
  if (size < 1) return `${decimals(seconds * 1000, 1)}\u00a0ms`;
  if (size < 100) return `${decimals(seconds, size < 10 ? 1 : 0)}\u00a0s`;
  if (size < 6000) return `${decimals(seconds / 60, 0)}\u00a0min`;
  return `${decimals(seconds / 3600, 1)}\u00a0h`;
}

/** How long ago a time was, in whole seconds, minutes or hours. */
export const ago = (time, now) => (now - time < 1.5 ? 'now' : `${duration(Math.max(1, Math.round(now - time)))} ago`);

/** When something happens at the latest. */
export const until = (time, now) => (time <= now ? 'now' : `in ${duration(Math.max(1, Math.round(time - now)))}`);

export const clock = (time) => new Date(time * 1000).toLocaleTimeString('en-GB');

export const plural = (count, noun) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;

/** The address of a pod's view. */
export const podLink = (key) => `#/pod/${key.split('/').map(encodeURIComponent).join('/')}`;

/** The address of the view of all pods that wait for the same reason. */
export const groupLink = (id) => `#/queue/${encodeURIComponent(id)}`;

export const nodeLink = (name) => `#/cluster/${encodeURIComponent(name)}`;
