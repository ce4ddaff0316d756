'use strict';
// Elements that stay: the page is described afresh for each answer, and only what differs is
// written to it. All that is shown comes through text and attributes: users choose the names of
// jobs.

const kSvg = 'http' +
    '://www.w3.org/2000/svg';
const kDrawn = ['svg', 'rect', 'title'];

// What an element is to be. Among the children of one element, their tags and keys tell them
// apart, or else their order.
const el = (tag, {key = '', ...attributes} = {}, ...children) =>
    ({tag, key, attributes, children: children.flat(Infinity).filter(is_there).map(as_element)});
const is_there = child => child !== null && child !== undefined && child !== '';
const as_element = child =>
    typeof child === 'object' ? child : {tag: '#text', key: '', text: String(child)};

// By node that is shown: its name among its siblings, and its attributes as written.
const states = new WeakMap();

function made(name, {tag}) {
  const node = tag === '#text' ? document.createTextNode('') :
      kDrawn.includes(tag)     ? document.createElementNS(kSvg, tag) :
                                 document.createElement(tag);
  states.set(node, {name, attributes: {}});
  return node;
}

function names_of(children) {
  const counts = new Map();
  return children.map(({tag, key}) => {
    const kind = `${tag} ${key}`;
    counts.set(kind, (counts.get(kind) || 0) + 1);
    return `${kind} ${counts.get(kind)}`;
  });
}

// A node that is moved loses the viewer's focus and selection, so others step aside for it.
const in_use = node =>
    node.contains(document.activeElement) || node.contains(getSelection().anchorNode);

// Makes the children of a node what they are to be. Nodes that are there already stay, and only
// what differs is written: selections, focus, tooltips, scroll positions and what is typed live
// through it.
function place(parent, children) {
  const names = names_of(children), wanted = new Set(names), there = new Map();
  for (const node of [...parent.childNodes]) {
    const name = states.get(node)?.name;
    if (wanted.has(name))
      there.set(name, node);
    else
      node.remove();
  }
  let at = parent.firstChild;
  children.forEach((child, i) => {
    const node = there.get(names[i]) || made(names[i], child);
    while (node !== at && node.parentNode && in_use(node)) {
      const aside = at;
      at = at.nextSibling;
      parent.append(aside);
    }
    if (node === at)
      at = at.nextSibling;
    else
      parent.insertBefore(node, at);
    write(node, child);
  });
}

function write(node, {tag, text, attributes, children}) {
  if (tag === '#text') return write_text(node, text);
  const state = states.get(node);
  for (const name of Object.keys({...state.attributes, ...attributes})) {
    if (attributes[name] === state.attributes[name]) continue;
    if (attributes[name] === undefined)
      node.removeAttribute(name);
    else
      node.setAttribute(name, attributes[name]);
  }
  state.attributes = attributes;
  place(node, children);
}

// Writes the part that differs, so that a selection around it stays.
function write_text(node, text) {
  const old = node.data;
  if (old === text) return;
  const least = Math.min(old.length, text.length);
  let head = 0, tail = 0;
  while (head < least && old[head] === text[head]) ++head;
  while (tail < least - head && old.at(-1 - tail) === text.at(-1 - tail)) ++tail;
  node.replaceData(head, old.length - head - tail, text.slice(head, text.length - tail));
}

// What the viewer has unfolded, typed and ticked: by data-choice of the element.
const choices = new Map();
function choose({target}) {
  const {choice} = target.dataset;
  if (!choice) return;
  choices.set(
      choice,
      target.localName === 'details' ? target.open :
          target.type === 'checkbox' ? target.checked :
                                       target.value);
  redraw();
}
document.addEventListener('toggle', choose, true);
document.addEventListener('input', choose);

// The contents are made only when they are seen.
const folded = (choice, summary, contents) =>
    el('details', {key: choice, 'data-choice': choice, open: choices.get(choice) ? '' : undefined},
       el('summary', {}, summary), choices.get(choice) ? contents() : '');

// The first ones, and the rest folded.
function some_of(list, most, choice, word, shown) {
  const rest = list.slice(most);
  return [
    shown(list.slice(0, most)),
    rest.length ? folded(choice, plural(rest.length, `more ${word}`), () => shown(rest)) : ''
  ];
}
