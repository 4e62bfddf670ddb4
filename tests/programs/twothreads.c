/* Two threads in the same large pages, each in base pages of its own: twothreads MIB ROUNDS. Fills MIB of memory, then each thread goes
 * through large pages in the same random order, reads and rewrites base pages of its parity there, and sums up what it read. What is
 * wrong is told at once; the sums do not depend on who is quicker. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BASE = 4096, LARGE = 1 << 20, WORDS = BASE / 8, TOUCHES = 6 };

static uint64_t *memory;
static uint64_t large_pages, rounds;

static uint64_t scramble(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void *walk(void *which) {
    uint64_t parity = (uint64_t)(uintptr_t)which, sum = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t large = scramble(round) % large_pages;
        for (uint64_t touch = 0; touch < TOUCHES; touch++) {
            uint64_t draw = scramble(round * TOUCHES + touch + (parity << 40));
            uint64_t base = large * (LARGE / BASE) + draw % (LARGE / BASE / 2) * 2 + parity;
            uint64_t at = base * WORDS + (draw >> 32) % (WORDS - 1);
            /* The last word of each base page counts how often the page was rewritten. */
            uint64_t count = memory[base * WORDS + WORDS - 1];
            uint64_t want = scramble(at) ^ base;
            if (memory[at] != want) {
                printf("WRONG word %llu: %llx instead of %llx\n", (unsigned long long)at,
                       (unsigned long long)memory[at], (unsigned long long)want);
                fflush(stdout);
                exit(3);
            }
            sum = scramble(sum ^ memory[at]) + count;
            memory[base * WORDS + WORDS - 1] = count + 1;
        }
    }
    uint64_t *out = malloc(sizeof *out);
    *out = sum;
    return out;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: twothreads MIB ROUNDS\n");
        return 2;
    }
    large_pages = strtoull(argv[1], 0, 10) - 1;
    rounds = strtoull(argv[2], 0, 10);
    void *all = malloc((large_pages + 1) * LARGE);
    memory = (uint64_t *)(((uintptr_t)all + LARGE - 1) & ~(uintptr_t)(LARGE - 1));
    for (uint64_t base = 0; base < large_pages * (LARGE / BASE); base++) {
        for (uint64_t word = 0; word < WORDS - 1; word++)
            memory[base * WORDS + word] = scramble(base * WORDS + word) ^ base;
        memory[base * WORDS + WORDS - 1] = 0;
    }
    pthread_t threads[2];
    for (uintptr_t which = 0; which < 2; which++)
        if (pthread_create(&threads[which], 0, walk, (void *)which))
            return 2;
    for (int which = 0; which < 2; which++) {
        void *sum;
        pthread_join(threads[which], &sum);
        printf("%016llx\n", (unsigned long long)*(uint64_t *)sum);
    }
    return 0;
}
