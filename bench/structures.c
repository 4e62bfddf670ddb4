/* Three data structures that want three ways to memory, for docs/advise.md:
 *
 *     cc -O1 -o structures bench/structures.c && loam trace record -o structures.trace -- ./structures >structures.csv
 *     loam advise structures.trace --local 12M --structures structures.csv
 *
 * An array that is swept, a table of which single words are read here and there, and counters that are used all the time. Where they are goes to stdout. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MIB = 1 << 20, ARRAY = 8 * MIB / 8, TABLE = 8 * MIB / 8, COUNTERS = 2 * MIB / 8, SWEEPS = 2, LOOKUPS = 60000 };

static uint64_t *structure(const char *name, uint64_t words) {
    uint64_t *memory = calloc(words, 8);
    if (!memory) exit(1);
    printf("%s,%p,%llu\n", name, (void *)memory, (unsigned long long)words * 8);
    return memory;
}

int main(void) {
    uint64_t *array = structure("array", ARRAY), *table = structure("table", TABLE), *counters = structure("counters", COUNTERS);
    uint64_t random = 1, sum = 0;
    fflush(stdout);
    for (uint64_t at = 0; at < TABLE; at += 8) table[at] = at;
    for (uint64_t at = 0; at < ARRAY; at++) array[at] = at * at;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (uint64_t at = 0; at < ARRAY; at++) {
            sum += array[at];
            if (at % 16 == 0) counters[at * 17 % COUNTERS]++;
        }
    for (int lookup = 0; lookup < LOOKUPS; lookup++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        sum += table[(random >> 33) % TABLE / 8 * 8];
        counters[sum % COUNTERS]++;
    }
    fprintf(stderr, "%llu\n", (unsigned long long)sum);
    return 0;
}
