/* parts: sweeps through memory in one part and touches it at random in another, in turn, and checks what it reads.
 *
 *     parts MIB TURNS */
#include "../../crates/loam/include/loam.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE_WORDS = 4096 / 8 };

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    uint64_t pages = strtoull(argv[1], 0, 10) * 256, turns = strtoull(argv[2], 0, 10), sum = 0, at = 1;
    uint64_t *words = malloc(pages * 4096);
    if (!words) return 2;
    for (uint64_t p = 0; p < pages; p++) words[p * PAGE_WORDS] = p + 1;
    for (uint64_t turn = 0; turn < turns; turn++) {
        loam_part_begins(1);
        for (uint64_t p = 0; p < pages; p++) {
            if (words[p * PAGE_WORDS] != p + 1) return 3;
            sum += words[p * PAGE_WORDS];
        }
        loam_part_begins(2);
        for (uint64_t n = 0; n < pages; n++) {
            at = at * 6364136223846793005u + 1442695040888963407u;
            uint64_t p = (at >> 33) % pages;
            if (words[p * PAGE_WORDS] != p + 1) return 3;
            sum += words[p * PAGE_WORDS];
        }
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
