// Builds large maps and arrays of objects and strings, sorts them, drops some; prints digests.
'use strict';
const { createHash } = require('crypto');

const count = Number(process.argv[2]);
let state = 88172645463325252n % 4294967291n;
let x = Number(state);
function next() {
  x ^= x << 13; x ^= x >>> 17; x ^= x << 5;
  return x >>> 0;
}
function digest(name, items) {
  const hash = createHash('sha256');
  for (const item of items) hash.update(String(item) + '\n');
  console.log(name, items.length, hash.digest('hex'));
}

const byName = new Map();
for (let i = 0; i < count; i++) {
  const n = next();
  byName.set('name-' + n.toString(36) + '-' + (i % 97), { n, i, text: 'text ' + n + ' ' + i });
}
digest('built', [...byName.values()].filter((_, i) => i % 5 === 0).map((v) => v.text));
const ordered = [...byName.entries()].sort((a, b) => a[1].n - b[1].n || a[1].i - b[1].i);
digest('ordered', ordered.filter((_, i) => i % 3 === 0).map((e) => e[0]));
for (let i = 0; i < ordered.length; i += 2) byName.delete(ordered[i][0]);
const numbers = new Float64Array(count * 8);
for (let i = 0; i < numbers.length; i++) numbers[i] = next() / 7;
numbers.sort();
digest('numbers', Array.from(numbers.filter((_, i) => i % 101 === 0)));
digest('rest', [...byName.keys()].sort().filter((_, i) => i % 3 === 0));
