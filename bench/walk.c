/* walk: fills memory, then visits it in order and at random, and checks every word that it reads.
 *
 *     walk MIB PASSES anon|FILE
 *
 * With FILE the memory is a shared mapping of that file: what a programmer would write by hand instead of
 * borrowing. The output depends on MIB and PASSES alone. The first wrong word ends it with status 3. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, PAGE_WORDS = PAGE_BYTES / 8 };

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void fail(const char *what) {
    perror(what);
    exit(2);
}

/* Reads eight words of a page, checks them, writes one of four pages anew. */
static uint64_t visit(uint64_t *words, uint32_t *generation, uint64_t page, uint64_t pass) {
    uint64_t sum = 0;
    uint64_t *at = words + page * PAGE_WORDS;
    for (int word = 0; word < PAGE_WORDS; word += PAGE_WORDS / 8) {
        uint64_t expected = mix(page * PAGE_WORDS + word) + generation[page];
        if (at[word] != expected) {
            fprintf(stderr, "walk: wrong word %d of page %llu\n", word, (unsigned long long)page);
            exit(3);
        }
        sum += expected;
    }
    if ((page + pass) % 4 == 0) {
        generation[page]++;
        for (int word = 0; word < PAGE_WORDS; word++) at[word]++;
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: walk MIB PASSES anon|FILE\n"), 2;
    uint64_t pages = strtoull(argv[1], NULL, 10) << 8, passes = strtoull(argv[2], NULL, 10);
    size_t bytes = pages * PAGE_BYTES;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
    if (strcmp(argv[3], "anon")) {
        flags = MAP_SHARED;
        fd = open(argv[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)bytes)) fail(argv[3]);
    }
    uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    uint32_t *generation = calloc(pages, sizeof *generation);
    if (words == MAP_FAILED || !generation) fail("memory");
    for (uint64_t i = 0; i < pages * PAGE_WORDS; i++) words[i] = mix(i);
    uint64_t sum = 0;
    for (uint64_t pass = 0; pass < passes; pass++) {
        for (uint64_t page = 0; page < pages; page++) sum = mix(sum ^ visit(words, generation, page, pass));
        for (uint64_t i = 0; i < pages / 2; i++) sum = mix(sum ^ visit(words, generation, mix(pass * pages + i) % pages, pass));
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
