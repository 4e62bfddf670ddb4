/*
 * Radix sort of 64-bit keys, eight bits a pass: each pass reads one array in order and dirties the other through 256 cursors.
 *
 *     radix MIB [REPEAT]      MIB of keys, and as much to sort them into
 *
 * Each repetition mixes the sorted keys anew. Prints a sum over keys and places; exits 1 if the order is wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

int main(int argc, char **argv)
{
	size_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, repeat = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	if (mib < 1 || mib > 1u << 20 || repeat < 1) {
		fprintf(stderr, "usage: radix MIB [REPEAT]\n");
		return 2;
	}
	size_t keys = (mib << 20) / sizeof(uint64_t);
	uint64_t *from = malloc(keys * sizeof *from), *to = malloc(keys * sizeof *to), sum = 0;
	if (!from || !to) {
		perror("radix");
		return 2;
	}
	for (size_t i = 0; i < keys; i++)
		from[i] = i;
	for (size_t round = 0; round < repeat; round++) {
		for (size_t i = 0; i < keys; i++)
			from[i] = mix(from[i] + round);
		for (int shift = 0; shift < 64; shift += 8) {
			size_t next[256] = {0}, begin = 0;
			for (size_t i = 0; i < keys; i++)
				next[(from[i] >> shift) & 255]++;
			for (int digit = 0; digit < 256; digit++) {
				size_t count = next[digit];
				next[digit] = begin;
				begin += count;
			}
			for (size_t i = 0; i < keys; i++)
				to[next[(from[i] >> shift) & 255]++] = from[i];
			uint64_t *other = from;
			from = to;
			to = other;
		}
		for (size_t i = 0; i < keys; i++) {
			if (i > 0 && from[i - 1] > from[i]) {
				fprintf(stderr, "radix: key %zu is out of order\n", i);
				return 1;
			}
			sum = mix(sum ^ (from[i] + i));
		}
	}
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
