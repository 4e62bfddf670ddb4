/* memwalk: fills memory, then reads and rewrites it in passes and checks every word. Its output is a function of its
 * arguments alone. It never goes on with wrong data: the first wrong word ends it with status 3.
 *
 *     memwalk MIB PASSES random|blocks|sequential [MIB-TO-LOCK]
 *
 * `blocks` visits runs of 16 neighbours, the runs in no order: a page of Loam's default size is then worth fetching whole.
 *
 * Prints a line when the memory is filled and one after each pass, flushed, so that a test can choose its moment. SIGUSR1 ends it after the
 * pass that it is in. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, PAGE_WORDS = PAGE_BYTES / 8, RUN_PAGES = 16 };

static volatile sig_atomic_t is_enough;

static void enough(int signal) {
    (void)signal;
    is_enough = 1;
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
/* What page `page` holds at word `word` after `generation` rewrites; never zero. */
static uint64_t content(uint64_t page, uint64_t word, uint64_t generation) {
    return mix((page * PAGE_WORDS + word) ^ (generation << 48)) | 1;
}

/* Checks the page, folds it into the sum, and rewrites every fourth one. */
static uint64_t visit(volatile uint64_t *at, uint64_t page, uint8_t *generation) {
    uint64_t sum = 0;
    for (uint64_t word = 0; word < PAGE_WORDS; word++) {
        uint64_t expected = content(page, word, *generation), got = at[word];
        if (got != expected) {
            fprintf(stderr, "memwalk: WRONG: page %llu word %llu: expected %016llx, got %016llx\n",
                    (unsigned long long)page, (unsigned long long)word, (unsigned long long)expected,
                    (unsigned long long)got);
            _exit(3);
        }
        sum = (sum << 1 | sum >> 63) ^ got;
    }
    if (mix(page + *generation) % 4 == 0) {
        ++*generation;
        for (uint64_t word = 0; word < PAGE_WORDS; word++) at[word] = content(page, word, *generation);
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc < 4 || argc > 5) {
        fprintf(stderr, "usage: memwalk MIB PASSES random|blocks|sequential [MIB-TO-LOCK]\n");
        return 2;
    }
    uint64_t pages = strtoull(argv[1], NULL, 10) << 8, passes = strtoull(argv[2], NULL, 10);
    int random = strcmp(argv[3], "random") == 0, blocks = strcmp(argv[3], "blocks") == 0;
    uint64_t locked = argc == 5 ? strtoull(argv[4], NULL, 10) << 20 : 0;
    if (pages == 0 || pages > 1u << 28 || locked > pages * PAGE_BYTES) return 2;
    signal(SIGUSR1, enough);
    uint64_t *memory = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *generation = calloc(pages, 1);
    if (memory == MAP_FAILED || generation == NULL) {
        perror("memwalk: no memory");
        return 2;
    }
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t word = 0; word < PAGE_WORDS; word++)
            memory[page * PAGE_WORDS + word] = content(page, word, 0);
    if (locked > 0 && mlock(memory, locked) != 0) {
        perror("memwalk: mlock");
        return 4;
    }
    printf("filled %llu pages\n", (unsigned long long)pages);
    fflush(stdout);
    for (uint64_t pass = 0; pass < passes && !is_enough; pass++) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < pages; i++) {
            uint64_t page = i;
            if (random) page = mix(pass * pages + i) % pages;
            if (blocks) page = (mix(pass * pages + i / RUN_PAGES) % (pages / RUN_PAGES)) * RUN_PAGES + i % RUN_PAGES;
            sum = mix(sum ^ visit(memory + page * PAGE_WORDS, page, &generation[page]));
        }
        printf("pass %llu: %016llx\n", (unsigned long long)pass, (unsigned long long)sum);
        fflush(stdout);
    }
    return 0;
}
