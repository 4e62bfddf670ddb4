// Builds a large map of buffers, checks and rewrites them in order, drops some, sorts typed arrays; prints digests.
'use strict';
const { createHash } = require('crypto');

const BYTES = 2048;
const count = Number(process.argv[2]);
let x = 2463534242;
function next() {
  x ^= x << 13; x ^= x >>> 17; x ^= x << 5;
  return x >>> 0;
}
function digest(name, items) {
  const hash = createHash('sha256');
  let n = 0;
  for (const item of items) { hash.update(item); n++; }
  console.log(name, n, hash.digest('hex'));
}
function block() {
  const words = new Uint32Array(BYTES / 4);
  const first = next();
  for (let i = 0; i < words.length; i++) words[i] = first + Math.imul(i, 2654435761);
  return words;
}

const byName = new Map();
for (let i = 0; i < count; i++) byName.set('name-' + next().toString(36) + '-' + i, block());
digest('built', byName.values());
const names = [...byName.keys()].sort();
digest('names', names);
let i = 0;
for (const [name, words] of byName) {
  if (i % 3 === 0) words.reverse();
  else if (i % 10 === 1) byName.delete(name);
  i++;
}
digest('rest', byName.values());
const numbers = new Float64Array(count * 8);
for (let i = 0; i < numbers.length; i++) numbers[i] = next() / 7;
numbers.sort();
digest('numbers', [new Uint8Array(numbers.buffer)]);
for (let i = 0; i < count / 10; i++) byName.set('late-' + i, block());
digest('rebuilt', byName.values());
