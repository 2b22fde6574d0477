// Try it, in a development cluster only: create pods, cordon, taint and stop nodes. All of it are requests to the API.

import { html, useState } from './vendor/preact-htm.js';
import { send, useStore } from './store.js';
import { plural, podLink } from './format.js';

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata:
  name: example
  namespace: default
spec:
  containers:
  - name: main
    image: nginx
    resources:
      requests: {cpu: "2", memory: 4Gi}
`;
const KUBELET = 'kubestow.dev/kubelet';
const AT_ONCE = 16;

/** A form whose requests report their result below it. */
function Action({ title, onSubmit, children }) {
  const [result, setResult] = useState({ text: '', isBad: false });
  const [isBusy, setIsBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget, event.submitter));
    setIsBusy(true);
    try {
      setResult({ text: await onSubmit(values), isBad: false });
    } catch (error) {
      setResult({ text: error.message, isBad: true });
    }
    setIsBusy(false);
  };
  return html`<section class="panel" aria-label=${title}><h2>${title}</h2><form onSubmit=${submit} aria-busy=${isBusy}>${children}</form>
    <p role="status" class=${result.isBad ? 'bad' : ''}>${result.text}</p></section>`;
}

const pairs = (text) => Object.fromEntries(text.split(',').map((pair) => pair.trim()).filter(Boolean).map((pair) => {
  const at = pair.indexOf('=');
  return at < 0 ? [pair, ''] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
}));

async function createPods(values) {
  const count = Number(values.count);
  const requests = Object.fromEntries(['cpu', 'memory'].filter((name) => values[name].trim()).map((name) => [name, values[name].trim()]));
  const pod = {
    apiVersion: 'v1', kind: 'Pod',
    metadata: { generateName: `${values.name.trim()}-`, labels: { app: values.name.trim() } },
    spec: {
      containers: [{ name: 'main', image: 'nginx', resources: { requests } }],
      ...(values.priority && { priorityClassName: values.priority }),
      ...(values.selector.trim() && { nodeSelector: pairs(values.selector) }),
    },
  };
  const path = `api/v1/namespaces/${encodeURIComponent(values.namespace.trim())}/pods`;
  for (let made = 0; made < count; made += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - made) }, () => send('POST', path, pod)));
  }
  return `${plural(count, 'pod')} created`;
}

/** The path of the collection that an object belongs to. Throws an Error for a kind that is not served. */
async function collectionOf(document) {
  const field = (name) => document.match(new RegExp(`^${name}:\\s*["']?([^"'\\s#]+)`, 'm'))?.[1];
  const version = field('apiVersion'), kind = field('kind');
  if (!version || !kind) throw new Error('expected apiVersion and kind at the beginning of a line, in each document');
  const group = version.includes('/') ? `apis/${version}` : `api/${version}`;
  const { resources } = await send('GET', group);
  const resource = resources.find((one) => one.kind === kind && !one.name.includes('/'));
  if (!resource) throw new Error(`${version} ${kind} is not served`);
  if (!resource.namespaced) return `${group}/${resource.name}`;
  const namespace = document.match(/^ +namespace:\s*["']?([^"'\s#]+)/m)?.[1] ?? 'default';
  return `${group}/namespaces/${encodeURIComponent(namespace)}/${resource.name}`;
}

async function createObjects({ yaml }) {
  const documents = yaml.split(/^---\s*$/m).filter((text) => text.trim());
  const created = [];
  for (const document of documents) {
    const object = await send('POST', await collectionOf(document), document, 'application/yaml');
    created.push(`${object.kind} ${object.metadata.name}`);
  }
  return created.length ? `created: ${created.join(', ')}` : 'nothing to create';
}

const nodePath = (name) => `api/v1/nodes/${encodeURIComponent(name.trim())}`;
const patchNode = (name, patch) => send('PATCH', nodePath(name), patch, 'application/merge-patch+json');

async function changeNode({ node, action }) {
  if (action === 'stop' || action === 'start') {
    await patchNode(node, { metadata: { annotations: { [KUBELET]: action === 'stop' ? 'stopped' : null } } });
    return action === 'stop' ? `${node}: the kubelet has stopped; the node is marked unhealthy when its heartbeats are overdue` : `${node}: the kubelet has started`;
  }
  await patchNode(node, { spec: { unschedulable: action === 'cordon' ? true : null } });
  return `${node} ${action}ed`;
}

async function taintNode({ node, key, value, effect, action }) {
  const { metadata, spec } = await send('GET', nodePath(node));
  const others = (spec.taints ?? []).filter((taint) => taint.key !== key.trim() || taint.effect !== effect);
  const taints = action === 'add' ? [...others, { key: key.trim(), value: value.trim(), effect }] : others;
  await patchNode(node, { metadata: { resourceVersion: metadata.resourceVersion }, spec: { taints } });
  return `${node}: ${taints.length ? `taints ${taints.map((taint) => `${taint.key}=${taint.value ?? ''}:${taint.effect}`).join(', ')}` : 'no taints'}`;
}

async function deletePods({ namespace, name }) {
  const path = `api/v1/namespaces/${encodeURIComponent(namespace.trim())}/pods`;
  if (name.trim()) {
    await send('DELETE', `${path}/${encodeURIComponent(name.trim())}`);
    return `pod ${name.trim()} deleted`;
  }
  const { items } = await send('DELETE', path);
  return `${plural(items?.length ?? 0, 'pod')} deleted`;
}

export function View() {
  const { nodes, decisions } = useStore();
  const field = (name, label, value, attributes = {}) => html`<label class="field">${label} <input name=${name} defaultValue=${value} ...${attributes} /></label>`;
  const node = () => field('node', 'Node', nodes?.names[0] ?? '', { list: 'try-nodes', required: true });
  const buttons = (...names) => html`<div class="toolbar">${names.map(([value, text]) => html`<button name="action" value=${value}>${text}</button>`)}</div>`;
  return html`<h1>Try it</h1>
    <p class="quiet">This is a development cluster: nothing real runs on it. Changes are ordinary API requests, so kubectl shows them too.</p>
    <datalist id="try-nodes">${nodes?.names.slice(0, 1000).map((name) => html`<option value=${name} />`)}</datalist>
    <div class="forms">
      <${Action} title="Create pods" onSubmit=${createPods}>
        ${field('name', 'Name', 'web', { required: true })}${field('namespace', 'Namespace', 'default', { required: true })}
        <span class="short">${field('count', 'Pods', '10', { type: 'number', min: 1, max: 1000, required: true })}</span>
        <span class="short">${field('cpu', 'CPU', '500m')}</span><span class="short">${field('memory', 'Memory', '1Gi')}</span>
        ${field('selector', 'Node selector', '', { placeholder: 'key=value, …' })}
        <label class="field">Priority <select name="priority"><option value="">default</option><option value="system-cluster-critical">system-cluster-critical</option><option value="system-node-critical">system-node-critical</option></select></label>
        <div class="toolbar"><button class="primary">Create</button></div>
      </${Action}>
      <${Action} title="Create from YAML" onSubmit=${createObjects}>
        <label class="field wide">Objects of any kind, separated by --- <textarea name="yaml" spellcheck=${false} defaultValue=${EXAMPLE}></textarea></label>
        <div class="toolbar"><button class="primary">Create</button></div>
      </${Action}>
      <${Action} title="Cordon or stop a node" onSubmit=${changeNode}>${node()}
        ${buttons(['cordon', 'Cordon'], ['uncordon', 'Uncordon'], ['stop', 'Stop'], ['start', 'Start'])}
      </${Action}>
      <${Action} title="Taint a node" onSubmit=${taintNode}>${node()}
        ${field('key', 'Key', 'dedicated', { required: true })}${field('value', 'Value', 'test')}
        <label class="field">Effect <select name="effect"><option value="NoSchedule">NoSchedule</option><option value="PreferNoSchedule">PreferNoSchedule</option><option value="NoExecute">NoExecute</option></select></label>
        ${buttons(['add', 'Add the taint'], ['remove', 'Remove it'])}
      </${Action}>
      <${Action} title="Delete pods" onSubmit=${deletePods}>
        ${field('namespace', 'Namespace', 'default', { required: true })}${field('name', 'Pod, empty for all', '')}
        <div class="toolbar"><button>Delete</button></div>
      </${Action}>
      <section class="panel" aria-label="What happened"><h2>What happened</h2>
        ${decisions?.attempts.length ? html`<ul>${decisions.attempts.slice(0, 12).map((one) => html`<li key=${`${one.pod} ${one.number}`}><a href=${podLink(one.pod)}>${one.pod}</a> ${one.node ? `on ${one.node}` : one.result}</li>`)}</ul>` : html`<p class="quiet">No pod has been attempted yet.</p>`}
      </section>
    </div>`;
}
