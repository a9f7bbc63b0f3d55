import {dot, loadEncoder, normalize} from './encoder.js';

const ORDER_FEATURES = 64; // the last ones of a vector, which read order and negation
const PAUSE = 50; // milliseconds without a key before the page answers

const element = (id) => document.getElementById(id);
const number = (x, digits = 2) => x.toFixed(digits).replace('-', '−');
const status = element('status');

let encode;

/** A new element of text or of other elements. */
function make(tag, ...content) {
  const made = document.createElement(tag);
  made.append(...content);
  return made;
}

/** Show the sentences by their cosine with the query. */
async function rank() {
  const query = element('query').value.trim();
  const sentences = element('sentences').value.split('\n').map((line) => line.trim()).filter(Boolean);
  if (!query || sentences.length === 0) {
    return () => element('ranking').replaceChildren(make('li', 'Type a sentence here, and others below.'));
  }
  const begun = performance.now();
  const [first, ...others] = await encode([query, ...sentences]);
  const spent = performance.now() - begun;
  const found = others.map((vector, i) => ({sentence: sentences[i], cosine: dot(first, vector)}));
  found.sort((a, b) => b.cosine - a.cosine);
  const items = found.map(({sentence, cosine}) => {
    const item = make('li', make('span', sentence), make('data', number(cosine)));
    item.style.setProperty('--share', Math.max(0, cosine));
    return item;
  });
  return () => {
    element('ranking').replaceChildren(...items);
    element('speed').textContent = `${sentences.length + 1} sentences encoded in ${number(spent, 1)} ms.`;
  };
}

/** Show which of two sentences is nearer to the first, by the whole vectors and by the features that read order. */
async function compare() {
  const texts = ['text', 'paraphrase', 'exchanged'].map((id) => element(id).value.trim());
  if (!texts.every(Boolean)) {
    return () => {
      element('cosines').replaceChildren();
      element('verdict').textContent = 'Type three sentences.';
    };
  }
  const whole = await encode(texts);
  const order = whole.map((vector) => normalize(vector.slice(-ORDER_FEATURES)));
  const parts = {'Whole vector': whole, 'Features that read order': order};
  const rows = Object.entries(parts).map(([name, vectors]) => {
    const cosines = vectors.slice(1).map((vector) => dot(vectors[0], vector));
    return {name, cosines, nearer: cosines[0] > cosines[1] ? 0 : 1};
  });
  return () => {
    element('cosines').replaceChildren(
      ...rows.map(({name, cosines, nearer}) => {
        const heading = Object.assign(make('th', name), {scope: 'row'});
        const cells = cosines.map((cosine, i) => make('td', make(i === nearer ? 'strong' : 'span', number(cosine))));
        return make('tr', heading, ...cells);
      }),
    );
    element('verdict').replaceChildren(...verdict(texts, rows));
  };
}

/** The answer in words: what the whole vectors say, and whether the others agree. */
function verdict([, ...others], rows) {
  const [whole, order] = rows.map(({nearer}) => nearer);
  const also = whole === order ? 'The features that read order agree.' : 'The features that read order disagree.';
  return ['Nearer by the whole vector: ', make('q', others[whole]), ` ${also}`];
}

/** Answer to what is typed into inputs, when the typist pauses. */
function answer(ids, find) {
  let asked = 0;
  let timer;
  const run = async () => {
    const turn = ++asked;
    const show = await find();
    if (turn === asked) show(); // else there is more by now
  };
  for (const id of ids) {
    element(id).addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(run, PAUSE);
    });
  }
  return run();
}

/** Megabytes that the page has loaded from a folder. */
function loaded(folder) {
  const files = performance.getEntriesByType('resource').filter(({name}) => name.includes(`/${folder}/`));
  return number(files.reduce((sum, file) => sum + file.decodedBodySize, 0) / 1e6, 1);
}

try {
  encode = await loadEncoder('disan-mini-en');
  await rank(); // the browser compiles while the first sentences are encoded: not a time to show
  await Promise.all([
    answer(['query', 'sentences'], rank),
    answer(['text', 'paraphrase', 'exchanged'], compare),
  ]);
  status.textContent = `Ready: ${loaded('models')} MB of encoder and ${loaded('runtime')} MB of runtime were loaded.`;
  document.body.dataset.ready = '';
} catch (error) {
  console.error(error);
  status.textContent = 'The encoder could not be loaded; export it into the folder of the page, as README.md says.';
}
