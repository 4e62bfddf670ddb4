/* A table that is larger than what may stay here, from C.
 *
 *     table MIB [FLAG...]      a table of MIB, a quarter of which may be here; flags of `loam run`
 *
 *     cc table.c $(pkg-config --cflags --libs loam) -o table */
#include <loam.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

int main(int argc, char **argv) {
    uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    if (mib < 1 || mib > 1u << 20) {
        fprintf(stderr, "usage: table MIB [FLAG...]\n");
        return 2;
    }
    if (loam_connect(mib << 18, mib << 22, (const char *const *)argv + 2) != LOAM_OK) {
        fprintf(stderr, "table: %s\n", loam_error());
        return 1;
    }
    uint64_t count = (mib << 20) / sizeof(uint64_t), wrong = 0, sum = 0;
    uint64_t *table = loam_calloc(count / 2, sizeof *table);
    if (!table) {
        fprintf(stderr, "table: %s\n", loam_error());
        return 1;
    }
    for (uint64_t i = 0; i < count / 2; i++) {
        wrong += table[i] != 0;
        table[i] = mix(i);
    }
    uint64_t *larger = loam_realloc(table, count * sizeof *table);
    if (!larger) {
        fprintf(stderr, "table: %s\n", loam_error());
        return 1;
    }
    table = larger;
    for (uint64_t i = count / 2; i < count; i++) table[i] = mix(i);
    /* What follows is mostly in no order; other memory, if there were any, would be worth more. */
    if (loam_advise(table, count * sizeof *table, LOAM_RANDOM) || loam_prioritize(table, count * sizeof *table, LOAM_PRIORITY_LOW)) {
        fprintf(stderr, "table: %s\n", loam_error());
        return 1;
    }
    /* A part of it has pages of its own, and only so much of that stays here. */
    struct loam_terms terms = {.page_bytes = 16 << 10, .local_bytes = 1 << 20, .plan = LOAM_PLAN_EAGER}, none = {.page_bytes = 5000};
    if (loam_set_terms(table, count, &terms) || loam_set_terms(table + count / 2, count, NULL)) {
        fprintf(stderr, "table: %s\n", loam_error());
        return 1;
    }
    wrong += loam_set_terms(table, 1, &none) != LOAM_INVALID;
    wrong += loam_advise(table, 1, 77) != LOAM_INVALID || loam_prioritize(table, 1, -1) != LOAM_INVALID;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = mix(i * 4099) % count;
        wrong += table[at] != mix(at);
        sum += table[i];
        /* Many places at random, and then some. */
        if (i > 20000) i += 4095;
    }
    loam_free(table);
    printf("%016llx, %llu wrong\n", (unsigned long long)sum, (unsigned long long)wrong);
    return wrong != 0;
}
