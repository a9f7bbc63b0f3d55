// An exported encoder in the browser. Everything comes from beside the page: nothing is asked of another host.
import {AutoModel, AutoTokenizer, env} from '@huggingface/transformers';

env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = './models/';
env.useBrowserCache = false; // the browser's own cache serves, and notices a new export
env.backends.onnx.wasm.wasmPaths = {wasm: new URL('./runtime/ort-wasm-simd-threaded.wasm', import.meta.url).href};

/**
 * Load the encoder in models/NAME, as `hf-blosan export` writes it.
 *
 * @param {string} name
 * @param {'fp32' | 'q8'} dtype q8 is the int8 graph.
 * @returns {Promise<(texts: string[]) => Promise<Float32Array[]>>} from texts to vectors of length 1.
 */
export async function loadEncoder(name, dtype = 'fp32') {
  const tokenizer = await AutoTokenizer.from_pretrained(name);
  // Without a progress_callback, which asks for the size first: a server that knows no ranges sends the graph twice.
  const model = await AutoModel.from_pretrained(name, {dtype});
  return async (texts) => {
    const {sentence_embedding: vectors} = await model(tokenizer(texts, {padding: true, truncation: true}));
    const size = vectors.dims[1];
    return texts.map((_, row) => normalize(vectors.data.slice(row * size, (row + 1) * size)));
  };
}

export function normalize(vector) {
  const length = Math.sqrt(dot(vector, vector));
  return vector.map((x) => x / length);
}

export function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}
