// Copies the page, and what it runs on, to site/ or a folder that is named: `node build.js FOLDER`. Any static host can
// serve it, once the encoder is in models/.
import {cpSync, mkdirSync} from 'node:fs';

const SITE = process.argv[2] ?? 'site';
const PAGE = ['index.html', 'style.css', 'page.js', 'encoder.js', 'README.md'];
const RUNTIME = [
  '@huggingface/transformers/dist/transformers.web.min.js',
  'onnxruntime-web/dist/ort.wasm.bundle.min.mjs', // the CPU alone: half the size of what has WebGPU as well
  'onnxruntime-web/dist/ort-wasm-simd-threaded.wasm',
];

mkdirSync(`${SITE}/runtime`, {recursive: true});
for (const file of PAGE) cpSync(file, `${SITE}/${file}`);
for (const file of RUNTIME) cpSync(`node_modules/${file}`, `${SITE}/runtime/${file.split('/').pop()}`);
