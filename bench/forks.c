/* forks: a parent with much memory, and children.
 *
 *     forks snapshot MIB CHILDREN WRITE_MIB   children one after the other that end at once; the parent writes WRITE_MIB each time
 *     forks pool     MIB CHILDREN WRITE_MIB   CHILDREN at a time, each of which writes WRITE_MIB of what it inherited, as does the parent
 *     forks save     MIB CHILDREN WRITE_MIB   CHILDREN at a time, which read all; meanwhile the parent writes a word in WRITE_MIB of pages, at random
 *
 * Prints a sum of all that the parent has at the end, which depends on the arguments alone, and to the error output the seconds between
 * the first fork and the last child's end. A child that reads something wrong ends it with status 3. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_WORDS = 512 };

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void write_pages(uint64_t *words, uint64_t pages, uint64_t by) {
    for (uint64_t page = 0; page < pages; page++) words[page * PAGE_WORDS] += by;
}

/* The same pages in the same order each time. */
static void write_some(uint64_t *words, uint64_t pages, uint64_t written) {
    for (uint64_t n = 0, at = 1; n < written; n++) {
        at = (at * 6364136223846793005u + 1442695040888963407u) % pages;
        words[at * PAGE_WORDS + 1] += 1;
    }
}

/* Every page has its own number in the first word, plus what was added to all of them. */
static int is_right(const uint64_t *words, uint64_t first_page, uint64_t pages, uint64_t added) {
    for (uint64_t page = 0; page < pages; page++)
        if (words[page * PAGE_WORDS] != first_page + page + added) return 0;
    return 1;
}

static pid_t forked(void) {
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    return pid;
}

static void ended(int children) {
    for (int i = 0, status; i < children; i++)
        if (wait(&status) < 0 || status != 0) exit(3);
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: forks snapshot|pool|save MIB CHILDREN WRITE_MIB\n"), 2;
    int is_pool = strcmp(argv[1], "pool") == 0, is_save = strcmp(argv[1], "save") == 0;
    uint64_t pages = strtoull(argv[2], NULL, 10) << 8, written = strtoull(argv[4], NULL, 10) << 8;
    int children = atoi(argv[3]);
    if (written > pages) return fprintf(stderr, "forks: more is written than there is\n"), 2;
    uint64_t *words = malloc(pages * PAGE_WORDS * sizeof *words);
    if (words == NULL) return perror("malloc"), 2;
    for (uint64_t word = 0; word < pages * PAGE_WORDS; word++)
        words[word] = word % PAGE_WORDS == 0 ? word / PAGE_WORDS : word * 0x9e3779b97f4a7c15u;
    uint64_t first = pages - written, *last = words + first * PAGE_WORDS;
    double start_s = now_s();
    for (int child = 1; child <= children; child++) {
        if (forked() == 0) {
            if (is_pool) {
                write_pages(last, written, (uint64_t)child);
                _exit(is_right(last, first, written, (uint64_t)child) ? 0 : 3);
            }
            _exit(!is_save || is_right(words, 0, pages, 0) ? 0 : 3);
        }
        if (!is_pool && !is_save) {
            write_pages(last, written, 1);
            ended(1);
        }
    }
    if (is_save) {
        write_some(words, pages, written);
        ended(children);
    }
    if (is_pool) {
        write_pages(last, written, (uint64_t)children);
        ended(children);
    }
    if (!is_right(last, first, written, is_save ? 0 : (uint64_t)children)) return fprintf(stderr, "forks: wrong words\n"), 3;
    fprintf(stderr, "%.3f\n", now_s() - start_s);
    uint64_t sum = 0;
    for (uint64_t word = 0; word < pages * PAGE_WORDS; word++) sum = sum * 31 + words[word];
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
